//! The health of upstreams as replicas share it through the store.
//!
//! A document says of each model that is not asked until when, and which replica probes it. It is written when a breaker
//! opens or closes and when a probe is claimed, so calls of a model that is well ask the store nothing. Each replica reads all
//! documents when it is nudged, and every few seconds.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::sync::{Mutex, mpsc};
use tokio::time::timeout;

use crate::agent::error::unavailable;
use crate::agent::ledger::document::{decode, encode};
use crate::agent::ledger::keys;
use crate::agent::ownership::seldom::Seldom;
use crate::llm::error_class::ErrorClass;
use crate::llm::health::Health;
use crate::llm::health::breaker::{Change, Opening};
use crate::llm::health::shared::{Claim, SharedHealth, Target};
use crate::store::{CommitError, Key, Order, Scan, Store, Tx, Unavailable, Write};

/// How often a replica reads what the others know without being nudged. Not a setting: a nudge is rarely lost.
const READ_EVERY: Duration = Duration::from_secs(30);
/// The same while a model is left alone: a nudge that was lost would keep it so.
const READ_WHILE_OPEN: Duration = Duration::from_secs(5);
/// How long a document outlives the time at which a probe is due: as long as nothing asks for the model.
const KEPT: Duration = Duration::from_secs(600);
/// Most models that are read at a time.
const MOST: usize = 1_000;
/// How long a probe waits for the store; then another call may try.
const CLAIM_TIMEOUT_MS: u64 = 1_000;
/// How often a claim is tried that another replica's change comes before.
const CLAIM_ATTEMPTS: usize = 3;

/// What replicas know of a model that is not asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    upstream: Arc<str>,
    fingerprint: Arc<str>,
    model: Arc<str>,
    class: ErrorClass,
    streak: u32,
    /// When a probe is due, by the store's clock in Unix milliseconds.
    until_ms: u64,
    /// Which replica probes, and until when at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    probe: Option<(String, u64)>,
}

/// Tells the other replicas, and learns from them.
#[derive(Debug)]
pub(super) struct StoredHealth {
    store: Arc<dyn Store>,
    health: Weak<Health>,
    replica: String,
    changes: mpsc::UnboundedSender<(Target, Change)>,
    /// Held by the task that tells them.
    untold: Mutex<mpsc::UnboundedReceiver<(Target, Change)>>,
    cannot_share: Seldom,
}

impl StoredHealth {
    /// Shares this health under the name of this replica, if other processes use the store.
    pub(super) fn new(store: Arc<dyn Store>, health: &Arc<Health>, replica: &str) -> Arc<Self> {
        let (changes, untold) = mpsc::unbounded_channel();
        let (untold, cannot_share) = (Mutex::new(untold), Seldom::default());
        let (shared, replica) = (Arc::downgrade(health), replica.to_owned());
        let stored = Arc::new(Self { store, health: shared, replica, changes, untold, cannot_share });
        if stored.store.is_shared() {
            health.share(stored.clone());
        }
        stored
    }

    /// Tells and learns, for ever.
    pub(super) async fn keep(&self) {
        if !self.store.is_shared() {
            return std::future::pending().await;
        }
        let mut untold = self.untold.lock().await;
        let mut nudges = self.store.watch(&keys::health_topic());
        loop {
            let read = self.read().await;
            let pause = if matches!(read, Ok(true)) { READ_WHILE_OPEN } else { READ_EVERY };
            self.note(read.map(drop));
            let change = tokio::select! {
                biased;
                change = untold.recv() => change,
                () = nudges.changed() => None,
                () = tokio::time::sleep(pause) => None,
            };
            // What was told before is read before it is compared with what is stored.
            let mut next = change;
            while let Some((target, change)) = next {
                self.note(self.put(&target, change).await);
                if let Some(health) = self.health.upgrade() {
                    health.note_told(&target);
                }
                next = untold.try_recv().ok();
            }
        }
    }

    /// Learns what is stored. Returns whether a model is left alone.
    async fn read(&self) -> Result<bool, Unavailable> {
        let scan = Scan { prefix: String::new(), after: None, limit: MOST, order: Order::Ascending };
        let found = self.store.scan(&keys::health_partition(), scan).await?;
        let now_ms = self.store.now_ms();
        let entries = found.iter().filter_map(|(_, document)| decode::<Entry>(&document.value).ok());
        let open: Vec<_> = entries.map(|entry| (entry.target(), entry.opening(now_ms))).collect();
        if let Some(health) = self.health.upgrade() {
            health.learn(&open);
        }
        Ok(!open.is_empty())
    }

    /// Stores a change, whose times are from now.
    async fn put(&self, target: &Target, change: Change) -> Result<(), Unavailable> {
        let (key, now_ms) = (key(target), self.store.now_ms());
        let mut tx = Tx::new(keys::health_partition()).written();
        tx.notify = Some(keys::health_topic());
        let tx = match change {
            Change::Closed => tx.write(Write::Delete { key }),
            Change::Opened(opening) => {
                let until_ms = now_ms.saturating_add(opening.until_ms);
                tx.write(put_entry(key, &Entry::new(target, Opening { until_ms, ..opening }, None), now_ms))
            }
            Change::Released => {
                let Some(document) = self.store.get(&keys::health_partition(), &key).await? else { return Ok(()) };
                let entry = decode::<Entry>(&document.value)?;
                if entry.probe.as_ref().is_none_or(|(replica, _)| *replica != self.replica) {
                    return Ok(());
                }
                tx.write(put_entry(key, &Entry { until_ms: now_ms, probe: None, ..entry }, now_ms))
            }
        };
        self.store.commit(tx).await.map_err(unavailable)
    }

    async fn try_claim(&self, target: &Target, opening: Opening, probe_ms: u64) -> Result<Claim, Unavailable> {
        let (partition, key) = (keys::health_partition(), key(target));
        for _ in 0..CLAIM_ATTEMPTS {
            let now_ms = self.store.now_ms();
            let found = self.store.get(&partition, &key).await?;
            let version = found.as_ref().map_or(0, |document| document.version);
            let known = found.map(|document| decode::<Entry>(&document.value)).transpose()?;
            if let Some(busy_ms) = known.as_ref().map(Entry::busy_until_ms).filter(|until_ms| *until_ms > now_ms) {
                return Ok(Claim::Denied(busy_ms - now_ms));
            }
            let known = known.unwrap_or_else(|| Entry::new(target, Opening { until_ms: now_ms, ..opening }, None));
            let claimed = Entry { probe: Some((self.replica.clone(), now_ms.saturating_add(probe_ms))), ..known };
            let ttl = Some(Duration::from_millis(probe_ms).saturating_add(KEPT));
            let tx = Tx::new(partition.clone()).written().put_at(key.clone(), version, encode(&claimed), ttl);
            match self.store.commit(tx).await {
                Ok(()) => return Ok(Claim::Granted),
                Err(CommitError::VersionConflict { .. }) => {}
                Err(error) => return Err(unavailable(error)),
            }
        }
        Ok(Claim::Denied(CLAIM_TIMEOUT_MS))
    }

    fn note(&self, shared: Result<(), Unavailable>) {
        if let Err(error) = shared
            && self.cannot_share.is_due()
        {
            tracing::warn!(%error, "could not share with the other replicas which models are not asked");
        }
    }
}

impl SharedHealth for StoredHealth {
    fn tell(&self, target: &Target, change: Change) {
        // The receiver lives as long as this.
        let _ = self.changes.send((target.clone(), change));
    }

    fn claim<'a>(&'a self, target: &'a Target, opening: Opening, probe_ms: u64) -> BoxFuture<'a, Claim> {
        let claim = timeout(Duration::from_millis(CLAIM_TIMEOUT_MS), self.try_claim(target, opening, probe_ms));
        claim
            .map(|claimed| match claimed {
                Ok(Ok(claim)) => claim,
                Ok(Err(_)) | Err(_) => Claim::Denied(CLAIM_TIMEOUT_MS),
            })
            .boxed()
    }
}

impl Entry {
    fn new(target: &Target, opening: Opening, probe: Option<(String, u64)>) -> Self {
        let Target { upstream, fingerprint, model } = target.clone();
        let Opening { class, streak, until_ms } = opening;
        Self { upstream, fingerprint, model, class, streak, until_ms, probe }
    }

    fn target(&self) -> Target {
        let Self { upstream, fingerprint, model, .. } = self.clone();
        Target { upstream, fingerprint, model }
    }

    /// Until when no probe may begin.
    fn busy_until_ms(&self) -> u64 {
        self.probe.as_ref().map_or(self.until_ms, |(_, until_ms)| self.until_ms.max(*until_ms))
    }

    /// Why the model is not asked, with times from now.
    fn opening(&self, now_ms: u64) -> Opening {
        let until_ms = self.busy_until_ms().saturating_sub(now_ms);
        Opening { class: self.class, streak: self.streak, until_ms }
    }
}

/// The name of a model's document. Names of models may hold anything, and be of any length.
fn key(target: &Target) -> Key {
    let Target { upstream, fingerprint, model } = target;
    let digest = Sha256::digest([&**upstream, "\0", fingerprint, "\0", model].concat());
    format!("{:x}", bytes::Bytes::copy_from_slice(&digest)).into()
}

/// Puts an entry that lasts for as long as it says something.
fn put_entry(key: Key, entry: &Entry, now_ms: u64) -> Write {
    let ttl = Duration::from_millis(entry.busy_until_ms().saturating_sub(now_ms)).saturating_add(KEPT);
    Write::Put { key, value: encode(entry), ttl: Some(ttl) }
}
