//! Which tokens keys have revoked that they gave to pages.
//!
//! A document of each key says so. A replica reads it when a token of the key is shown and what it knows of the key is older than
//! [`MAX_AGE`]: so a revocation counts on every replica that soon, and a replica that is shown no token asks the store nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::agent::error::unavailable;
use crate::agent::ledger::document::{decode, encode};
use crate::agent::ledger::keys;
use crate::store::{CommitError, Store, Tx, Unavailable};
use crate::types::Tenant;

/// How old what a process knows of a key's revocations may be.
pub const MAX_AGE: Duration = Duration::from_secs(3);
/// How long the store may take to say what a key has revoked.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a failure to read it is remembered: meanwhile the store is not asked again, and nobody waits for it.
const FAILED_AGE: Duration = Duration::from_secs(1);
/// The longest life of a token: what revoked it is kept no longer than twice that.
pub const LONGEST_LIFE: Duration = Duration::from_secs(3_600);
/// Most tokens of a key that are revoked one by one at a time. All of them together take one entry.
const MOST: usize = 1_000;
/// Of so many keys something is known at a time.
const KEYS: u64 = 10_000;
/// How often a change is tried that another one comes before.
const ATTEMPTS: usize = 8;

/// Why nothing was revoked.
#[derive(Debug, thiserror::Error)]
pub enum RevokeError {
    /// So many tokens are revoked one by one.
    #[error(
        "{MOST} tokens of this key were revoked one by one within the last hour; `DELETE /v1/tokens` revokes all of them at once"
    )]
    TooMany,
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] Unavailable),
}

/// What a key has revoked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Revoked {
    /// Tokens with a lower one are void. It is the time at which all of them were revoked last, in Unix milliseconds.
    #[serde(default)]
    epoch: u64,
    /// Tokens that are void besides, and until when this must be known, in Unix milliseconds.
    #[serde(default)]
    ids: BTreeMap<String, u64>,
}

impl Revoked {
    /// The same with this token, without those that have expired anyhow; `None` if there are too many.
    fn with(&self, id: &str, now_ms: u64) -> Option<Self> {
        let mut next = self.clone();
        next.ids.retain(|_, until_ms| *until_ms > now_ms);
        next.ids.insert(id.to_owned(), now_ms + life_ms());
        (next.ids.len() <= MOST).then_some(next)
    }

    /// All tokens that were given until now are void.
    fn all(&self, now_ms: u64) -> Self {
        // Of two that come within a millisecond, or by clocks that differ, the later one voids what was given between them.
        Self { epoch: now_ms.max(self.epoch + 1), ids: BTreeMap::new() }
    }

    fn voids(&self, id: &str, epoch: u64) -> bool {
        epoch < self.epoch || self.ids.contains_key(id)
    }
}

fn life_ms() -> u64 {
    u64::try_from(LONGEST_LIFE.as_millis()).unwrap_or(u64::MAX)
}

/// What was read of a key and since when it is known, or why it could not be read.
type Found = (Instant, Result<Arc<Revoked>, Unavailable>);

/// What is known of a key. Whoever reads it anew holds it, so that it is read once however many ask.
type Known = Arc<Mutex<Option<Found>>>;

/// Reads and changes which tokens are revoked.
#[derive(Debug)]
pub struct Revocations {
    store: Arc<dyn Store>,
    known: Cache<(Tenant, String), Known>,
}

impl Revocations {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, known: Cache::new(KEYS) }
    }

    /// The time by which tokens expire: that of the clock which all replicas share.
    pub fn now_ms(&self) -> u64 {
        self.store.now_ms()
    }

    /// What a token must hold that this key gives now.
    pub async fn epoch(&self, tenant: &Tenant, key_name: &str) -> Result<u64, Unavailable> {
        Ok(self.read(tenant, key_name).await?.1.epoch)
    }

    /// Whether a token is void that this key gave in this epoch.
    pub async fn is_revoked(&self, tenant: &Tenant, key_name: &str, id: &str, epoch: u64) -> Result<bool, Unavailable> {
        let known = self.known(tenant, key_name);
        let mut known = known.lock().await;
        if let Some((since, found)) = known.as_ref() {
            let age = if found.is_ok() { MAX_AGE } else { FAILED_AGE };
            if since.elapsed() < age {
                return found.clone().map(|revoked| revoked.voids(id, epoch));
            }
        }
        // The time of asking: what is changed while the store answers is read again in time.
        let asked_at = Instant::now();
        let found = match tokio::time::timeout(LOOK_TIMEOUT, self.read(tenant, key_name)).await {
            Ok(read) => read.map(|(_, revoked)| Arc::new(revoked)),
            Err(_) => Err(Unavailable("the store did not say in time what the key has revoked".to_owned())),
        };
        let since = if found.is_ok() { asked_at } else { Instant::now() };
        *known = Some((since, found.clone()));
        found.map(|revoked| revoked.voids(id, epoch))
    }

    /// Makes one token void that this key gave.
    pub async fn revoke(&self, tenant: &Tenant, key_name: &str, id: &str) -> Result<(), RevokeError> {
        self.change(tenant, key_name, |revoked, now_ms| revoked.with(id, now_ms)).await
    }

    /// Makes all tokens void that this key gave until now.
    pub async fn revoke_all(&self, tenant: &Tenant, key_name: &str) -> Result<(), RevokeError> {
        self.change(tenant, key_name, |revoked, now_ms| Some(revoked.all(now_ms))).await
    }

    async fn change(
        &self,
        tenant: &Tenant,
        key_name: &str,
        change: impl Fn(&Revoked, u64) -> Option<Revoked>,
    ) -> Result<(), RevokeError> {
        let (partition, key) = (keys::revocations_partition(tenant), keys::revocations(key_name));
        for _ in 0..ATTEMPTS {
            let (version, revoked) = self.read(tenant, key_name).await?;
            let next = change(&revoked, self.store.now_ms()).ok_or(RevokeError::TooMany)?;
            let tx = Tx::new(partition.clone()).put_at(key.clone(), version, encode(&next), Some(LONGEST_LIFE * 2));
            match self.store.commit(tx).await {
                Ok(()) => {
                    // Here it counts at once.
                    *self.known(tenant, key_name).lock().await = None;
                    return Ok(());
                }
                Err(CommitError::VersionConflict { .. }) => {}
                Err(error) => return Err(unavailable(error).into()),
            }
        }
        Err(Unavailable("what the key revoked changed too often meanwhile".to_owned()).into())
    }

    /// What a key has revoked, and the version of that.
    async fn read(&self, tenant: &Tenant, key_name: &str) -> Result<(u64, Revoked), Unavailable> {
        let (partition, key) = (keys::revocations_partition(tenant), keys::revocations(key_name));
        let Some(found) = self.store.get(&partition, &key).await? else { return Ok((0, Revoked::default())) };
        Ok((found.version, decode(&found.value)?))
    }

    fn known(&self, tenant: &Tenant, key_name: &str) -> Known {
        self.known.get_with((tenant.clone(), key_name.to_owned()), Known::default)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::store::layer::StoreLayer;
    use crate::store::memory::MemoryStore;
    use crate::store::{Document, Key, Partition};

    #[test]
    fn what_was_given_before_all_were_revoked_is_void_and_what_is_given_after_is_not() {
        let before = Revoked::default();
        assert!(!before.voids("a", 0));
        let after = before.all(1_000);
        assert!(after.voids("a", 0) && after.voids("a", 999) && !after.voids("a", after.epoch));
        // By a clock that stands still or goes back.
        let again = after.all(900);
        assert!(again.voids("a", after.epoch) && !again.voids("a", again.epoch));
    }

    #[test]
    fn single_tokens_are_forgotten_once_they_have_expired_and_are_bounded() {
        let mut revoked = Revoked::default();
        for number in 0..MOST {
            revoked = revoked.with(&format!("{number}"), 5).unwrap();
        }
        assert_eq!(revoked.with("one more", 5), None);
        assert!(revoked.with("7", 5).is_some(), "it is among them");
        let later = revoked.with("one more", 5 + life_ms()).unwrap();
        assert_eq!(later.ids.len(), 1);
    }

    /// A store that counts what is read.
    #[derive(Debug, Default)]
    struct Counted(MemoryStore, AtomicUsize);

    #[async_trait::async_trait]
    impl StoreLayer for Counted {
        fn inner(&self) -> &dyn Store {
            &self.0
        }

        async fn on_get(&self, partition: &Partition, key: &Key) -> Result<Option<Document>, Unavailable> {
            self.1.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            self.0.get(partition, key).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_store_is_asked_once_in_a_while_however_many_tokens_are_shown() {
        let store = Arc::new(Counted::default());
        let replica = Revocations::new(store.clone());
        let tenant = Tenant::default_tenant();
        for reads in 1..4 {
            let shown = (0..50).map(|_| replica.is_revoked(&tenant, "k", "tok", 0));
            futures_util::future::join_all(shown).await;
            assert_eq!(store.1.load(Ordering::Relaxed), reads);
            tokio::time::advance(MAX_AGE).await;
        }
        tokio::time::advance(MAX_AGE * 10).await;
        assert_eq!(store.1.load(Ordering::Relaxed), 3, "nobody shows a token");
    }

    /// A store that never answers, and counts how often it is asked.
    #[derive(Debug, Default)]
    struct Hanging(MemoryStore, AtomicUsize);

    #[async_trait::async_trait]
    impl StoreLayer for Hanging {
        fn inner(&self) -> &dyn Store {
            &self.0
        }

        async fn on_get(&self, _partition: &Partition, _key: &Key) -> Result<Option<Document>, Unavailable> {
            self.1.fetch_add(1, Ordering::Relaxed);
            std::future::pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_hangs_is_asked_once_a_while_and_keeps_all_who_ask_waiting_once() {
        let store = Arc::new(Hanging::default());
        let replica = Revocations::new(store.clone());
        let tenant = Tenant::default_tenant();
        for looks in 1..4 {
            let began = Instant::now();
            for _ in 0..2 {
                let shown = (0..50).map(|_| replica.is_revoked(&tenant, "k", "tok", 0));
                let told = futures_util::future::join_all(shown).await;
                assert!(told.iter().all(Result::is_err), "{told:?}");
                assert_eq!(store.1.load(Ordering::Relaxed), looks);
            }
            assert!(began.elapsed() < LOOK_TIMEOUT * 2, "{:?}", began.elapsed());
            tokio::time::advance(FAILED_AGE).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_revocation_counts_at_once_here_and_within_its_time_elsewhere() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let [here, there] = [(); 2].map(|()| Revocations::new(store.clone()));
        let tenant = Tenant::default_tenant();
        let epoch = here.epoch(&tenant, "k").await.unwrap();
        for replica in [&here, &there] {
            assert!(!replica.is_revoked(&tenant, "k", "tok", epoch).await.unwrap());
        }
        here.revoke(&tenant, "k", "tok").await.unwrap();
        assert!(here.is_revoked(&tenant, "k", "tok", epoch).await.unwrap());
        assert!(!there.is_revoked(&tenant, "k", "tok", epoch).await.unwrap(), "it knows what it read just now");
        tokio::time::advance(MAX_AGE).await;
        assert!(there.is_revoked(&tenant, "k", "tok", epoch).await.unwrap());
        assert!(!there.is_revoked(&tenant, "k", "other", epoch).await.unwrap());
        assert!(!there.is_revoked(&tenant, "another", "tok", epoch).await.unwrap(), "a key revokes what it gave");
        here.revoke_all(&tenant, "k").await.unwrap();
        assert!(here.is_revoked(&tenant, "k", "other", epoch).await.unwrap());
        let next = there.epoch(&tenant, "k").await.unwrap();
        assert!(!here.is_revoked(&tenant, "k", "new", next).await.unwrap());
    }
}
