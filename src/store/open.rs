//! From a store's URL to the store.

use std::path::PathBuf;
use std::sync::Arc;

use super::Store;
use super::embedded::EmbeddedStore;
use super::memory::MemoryStore;

/// Why a store could not be opened. Names the scheme and the directory, never the rest of a URL,
/// which may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The URL names no store.
    #[error("{0}; a store is memory: or embedded:DIR, as in embedded:./data")]
    Url(String),
    /// Another store, here or in another process, has the directory.
    #[error("the store in {} is in use by another process", .0.display())]
    InUse(PathBuf),
    /// The files cannot be created, read or written, or hold something else.
    #[error("cannot open the store in {}: {reason}", dir.display())]
    Failed {
        /// Where the files lie.
        dir: PathBuf,
        /// What went wrong.
        reason: String,
    },
}

/// Opens the store that a URL names: `memory:`, or `embedded:DIR` with a directory that is created if
/// need be.
pub async fn open(url: &str) -> Result<Arc<dyn Store>, OpenError> {
    match url.split_once(':') {
        Some(("memory", "")) => Ok(Arc::new(MemoryStore::default())),
        Some(("memory", _)) => Err(OpenError::Url("memory: takes nothing after the colon".into())),
        Some(("embedded", "")) => Err(OpenError::Url("embedded: lacks a directory".into())),
        Some(("embedded", dir)) => Ok(Arc::new(EmbeddedStore::open(dir).await?)),
        Some((scheme, _)) => Err(OpenError::Url(format!("unknown store {scheme:?}"))),
        None => Err(OpenError::Url("a store's URL has a colon".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn refusal(url: &str) -> String {
        open(url).await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn urls_name_stores() {
        assert!(open("memory:").await.is_ok());
        let dir = tempfile::tempdir().unwrap();
        let store = open(&format!("embedded:{}", dir.path().join("new/data").display())).await.unwrap();
        assert_eq!(store.health().await, Ok(()));
    }

    #[tokio::test]
    async fn other_urls_are_refused_without_their_secrets() {
        let hint = "; a store is memory: or embedded:DIR, as in embedded:./data";
        assert_eq!(refusal("memory://x").await, format!("memory: takes nothing after the colon{hint}"));
        assert_eq!(refusal("embedded:").await, format!("embedded: lacks a directory{hint}"));
        assert_eq!(refusal("mysql://root:secret@db").await, format!("unknown store \"mysql\"{hint}"));
        assert_eq!(refusal("./data").await, format!("a store's URL has a colon{hint}"));
    }

    #[tokio::test]
    async fn directory_that_cannot_be_made_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let refusal = refusal(&format!("embedded:{}/data", file.path().display())).await;
        assert!(
            refusal.starts_with(&format!("cannot open the store in {}/data: ", file.path().display())),
            "{refusal}"
        );
    }
}
