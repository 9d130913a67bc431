//! From a store's URL to the store.

use std::sync::Arc;

use super::embedded::EmbeddedStore;
use super::memory::MemoryStore;
use super::redis::RedisStore;
use super::{OpenError, Store};
use crate::config::{BackupConfig, StoreUrl};

/// Opens the store that a URL names. A missing directory is created; a Redis that does not answer yet is looked for
/// in the background. If a store can say that it has less room than a tenant may use, it does so in the log.
/// The embedded store is copied as `backup` says.
pub async fn open(
    url: &StoreUrl,
    tenant_limit: u64,
    backup: Option<&BackupConfig>,
) -> Result<Arc<dyn Store>, OpenError> {
    Ok(match url {
        StoreUrl::Memory => Arc::new(MemoryStore::default()),
        StoreUrl::Embedded(dir) => Arc::new(EmbeddedStore::open(dir).await?.with_backups(backup.cloned())),
        StoreUrl::Redis(url) => Arc::new(RedisStore::open_for(url, Some(tenant_limit)).await?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn opened(url: &str) -> Result<Arc<dyn Store>, OpenError> {
        open(&url.parse().unwrap(), u64::MAX, None).await
    }

    #[tokio::test]
    async fn urls_name_stores() {
        assert!(opened("memory:").await.is_ok());
        let dir = tempfile::tempdir().unwrap();
        let store = opened(&format!("embedded:{}", dir.path().join("new/data").display())).await.unwrap();
        assert_eq!(store.health().await, Ok(()));
    }

    #[tokio::test]
    async fn directory_that_cannot_be_made_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let refusal = opened(&format!("embedded:{}/data", file.path().display())).await.unwrap_err().to_string();
        assert!(
            refusal.starts_with(&format!("cannot open the store in {}/data: ", file.path().display())),
            "{refusal}"
        );
    }
}
