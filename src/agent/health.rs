//! The health of upstreams as replicas share it through the store.
//!
//! A document says of each model that is not asked until when, and which replica probes it. It is written when a breaker
//! opens or closes and when a probe is claimed, so calls of a model that is well ask the store nothing. Each replica reads all
//! documents when it is nudged, and every few seconds. A change is tried until it is stored or a newer one takes its place.

mod entry;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, TryStreamExt};
use sha2::{Digest, Sha256};
use tokio::sync::Notify;
use tokio::time::timeout;

use self::entry::{Edit, Editor, Entry};
use crate::agent::error::unavailable;
use crate::agent::ledger::document::{decode, encode};
use crate::agent::ledger::keys;
use crate::agent::ownership::seldom::Seldom;
use crate::llm::health::Health;
use crate::llm::health::breaker::Change;
use crate::llm::health::shared::{Claim, SharedHealth, Target};
use crate::store::pages::scan_pages;
use crate::store::{Check, CommitError, Key, Order, Scan, Store, Tx, Unavailable, Write};

/// How often a replica reads what the others know without being nudged. Not a setting: a nudge is rarely lost.
const READ_EVERY: Duration = Duration::from_secs(30);
/// The same while a model is left alone: a nudge that was lost would keep it so, and a claim ends that is not renewed.
const READ_WHILE_OPEN: Duration = Duration::from_secs(5);
/// When what failed is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// The least time between two reads, however often a replica is nudged.
const LEAST_PAUSE: Duration = Duration::from_millis(20);
/// Models that are read at a time.
const PAGE: usize = 1_000;
/// Most models that are read.
const MOST: usize = 10_000;
/// How long a probe waits for the store; then another call may try.
const CLAIM_TIMEOUT_MS: u64 = 1_000;
/// How often a change is tried that another replica's comes before.
const ATTEMPTS: usize = 5;

/// Tells the other replicas, and learns from them.
#[derive(Debug)]
pub(super) struct StoredHealth {
    store: Arc<dyn Store>,
    health: Weak<Health>,
    replica: String,
    has_changed: Notify,
    cannot_share: Seldom,
}

impl StoredHealth {
    /// Shares this health under the name of this replica, if other processes use the store.
    pub(super) fn new(store: Arc<dyn Store>, health: &Arc<Health>, replica: &str) -> Arc<Self> {
        let (shared, replica) = (Arc::downgrade(health), replica.to_owned());
        let (has_changed, cannot_share) = (Notify::new(), Seldom::default());
        let stored = Arc::new(Self { store, health: shared, replica, has_changed, cannot_share });
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
        let mut nudges = self.store.watch(&keys::health_topic());
        loop {
            let pause = match self.exchange().await {
                Ok(true) => READ_WHILE_OPEN,
                Ok(false) => READ_EVERY,
                Err(error) => {
                    if self.cannot_share.is_due() {
                        tracing::warn!(%error, "could not share with the other replicas which models are not asked");
                    }
                    RETRY_AFTER
                }
            };
            tokio::time::sleep(LEAST_PAUSE).await;
            tokio::select! {
                () = self.has_changed.notified() => {}
                () = nudges.changed() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Tells the others what they do not know yet, and learns what is stored. Returns whether a model is left alone.
    async fn exchange(&self) -> Result<bool, Unavailable> {
        let Some(health) = self.health.upgrade() else { return Ok(false) };
        for (target, unsaved) in health.unsaved() {
            let save = |editor: Editor<'_>, found: Option<&Entry>| (editor.save(&target, found, unsaved.change), ());
            self.edit(&target, true, save).await?;
            health.note_saved(&target, unsaved.tick);
        }
        for target in health.probed() {
            // What is put off keeps others away from a probe, and tells them nothing that is new.
            self.edit(&target, false, |editor, found| (editor.renew(found), ())).await?;
        }
        self.read(&health).await
    }

    /// Learns what is stored. Returns whether a model is left alone.
    async fn read(&self, health: &Health) -> Result<bool, Unavailable> {
        let (tick, partition) = (health.tick(), keys::health_partition());
        let scan = Scan { prefix: String::new(), after: None, limit: PAGE, order: Order::Ascending };
        let (mut open, mut is_all) = (HashMap::new(), true);
        let mut pages = pin!(scan_pages(&*self.store, &partition, scan));
        while let Some(page) = pages.try_next().await? {
            let entries = page.iter().filter_map(|(_, document)| decode::<Entry>(&document.value).ok());
            open.extend(entries.map(|entry| (entry.target(), self.editor().read(&entry))));
            is_all = open.len() < MOST;
            if !is_all {
                break;
            }
        }
        health.learn(tick, &open, is_all);
        Ok(!open.is_empty())
    }

    /// Changes the document of a model as `decide` says, though other replicas change it as well. `nudge` tells them.
    async fn edit<T>(
        &self,
        target: &Target,
        nudge: bool,
        decide: impl Fn(Editor<'_>, Option<&Entry>) -> (Edit, T),
    ) -> Result<T, Unavailable> {
        let (partition, key) = (keys::health_partition(), key(target));
        for _ in 0..ATTEMPTS {
            let found = self.store.get(&partition, &key).await?;
            let version = found.as_ref().map_or(0, |document| document.version);
            let found = found.map(|document| decode::<Entry>(&document.value)).transpose()?;
            let editor = self.editor();
            let (edit, told) = decide(editor, found.as_ref());
            let tx = Tx::new(partition.clone()).written();
            let mut tx = match edit {
                Edit::Keep => return Ok(told),
                Edit::Put(next) => tx.put_at(key.clone(), version, encode(&next), Some(next.ttl(editor.now_ms))),
                Edit::Delete => {
                    tx.check(Check::Version { key: key.clone(), version }).write(Write::Delete { key: key.clone() })
                }
            };
            tx.notify = nudge.then(keys::health_topic);
            match self.store.commit(tx).await {
                Ok(()) => return Ok(told),
                Err(CommitError::VersionConflict { .. }) => {}
                Err(error) => return Err(unavailable(error)),
            }
        }
        Err(Unavailable("the other replicas change it all the time".to_owned()))
    }

    fn editor(&self) -> Editor<'_> {
        Editor { replica: &self.replica, now_ms: self.store.now_ms() }
    }
}

impl SharedHealth for StoredHealth {
    fn note_changes(&self) {
        self.has_changed.notify_one();
    }

    fn claim<'a>(&'a self, target: &'a Target, unsaved: Option<Change>) -> BoxFuture<'a, Claim> {
        let claim = self.edit(target, false, move |editor, found| editor.claim(target, found, unsaved));
        let claim = timeout(Duration::from_millis(CLAIM_TIMEOUT_MS), claim);
        claim
            .map(|claimed| match claimed {
                Ok(Ok(claim)) => claim,
                Ok(Err(_)) | Err(_) => Claim::Denied(CLAIM_TIMEOUT_MS),
            })
            .boxed()
    }
}

/// The name of a model's document. Names of models may hold anything, and be of any length.
fn key(target: &Target) -> Key {
    let Target { upstream, fingerprint, model } = target;
    let digest = Sha256::digest([&**upstream, "\0", fingerprint, "\0", model].concat());
    format!("{:x}", bytes::Bytes::copy_from_slice(&digest)).into()
}
