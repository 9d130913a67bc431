//! Which definitions of tools count that sources offer, as replicas agree on it through the store.
//!
//! A document for each source says which definitions were accepted and which are held back. Each replica reads it when a
//! source of its own has other tools, when it is nudged, and every so often. What a replica has not read counts for nothing.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{pending, select_all};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::agent::error::unavailable;
use crate::agent::generation::{Generation, Generations};
use crate::agent::ledger::document::{decode, encode};
use crate::agent::ledger::keys;
use crate::agent::ownership::seldom::Seldom;
use crate::store::{CommitError, Store, Tx, Unavailable};
use crate::tools::Definitions;
use crate::tools::definitions::{KEPT_DAYS, KnownTools, own_name};
use crate::types::clock::now_ms;

/// How often the documents are read without a nudge, which is rarely lost.
const READ_EVERY: Duration = Duration::from_secs(30);
/// The same after the store did not answer.
const RETRY_AFTER: Duration = Duration::from_secs(2);
/// How long what is known of a source is kept that no replica has any more.
const KEPT: Duration = Duration::from_secs((KEPT_DAYS + 14) * 24 * 3_600);
const MS_OF_A_DAY: u64 = 24 * 3_600 * 1_000;
/// How often a change is tried that another replica's comes before.
const ATTEMPTS: usize = 5;

/// Why a definition is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// No source that changes may have such a tool.
    #[error("no server of tools has a tool named `{0}` that could change")]
    Unknown(String),
    /// It is not the one that is held back.
    #[error("the definition {hash} of `{name}` is not held back; `GET /v1/tools` shows what is")]
    NotHeld {
        /// The tool.
        name: String,
        /// The definition.
        hash: String,
    },
    /// The store did not answer.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// Shares with the other replicas which definitions count.
#[derive(Debug)]
pub struct StoredDefinitions {
    store: Arc<dyn Store>,
    generations: Arc<Generations>,
    /// What was read last.
    known: Mutex<Definitions>,
    cannot_read: Seldom,
}

impl StoredDefinitions {
    pub(super) fn new(store: Arc<dyn Store>, generations: Arc<Generations>) -> Self {
        Self { store, generations, known: Mutex::default(), cannot_read: Seldom::default() }
    }

    /// Keeps the tools of the current generation as its sources have them, as far as these count; for ever.
    pub(super) async fn keep(&self) {
        let mut generations = self.generations.subscribe();
        let mut nudges = self.store.watch(&keys::definitions_topic());
        loop {
            let generation = generations.borrow_and_update().clone();
            let mut changes: Vec<_> = generation.tools.sources().iter().map(|source| source.changes()).collect();
            for change in &mut changes {
                change.mark_unchanged();
            }
            let pause = match self.review(&generation).await {
                Ok(()) => READ_EVERY,
                Err(error) => {
                    if self.cannot_read.is_due() {
                        tracing::warn!(%error, "could not read which definitions of tools were accepted");
                    }
                    RETRY_AFTER
                }
            };
            let is_fixed = changes.is_empty();
            tokio::select! {
                _ = generations.changed() => {}
                () = any_of(&mut changes) => {}
                () = nudges.changed(), if !is_fixed => {}
                () = tokio::time::sleep(pause), if !is_fixed => {}
            }
        }
    }

    /// Gives a generation the tools of sources that are known to count, so that it lacks none of them when it is put in force.
    pub(super) fn prepare(&self, next: &Generation) {
        next.tools.admit(&self.known.lock());
    }

    /// Accepts the definition of a tool that is held back, at all replicas.
    pub async fn accept(&self, name: &str, hash: &str) -> Result<(), AcceptError> {
        let generation = self.generations.current();
        let sources = generation.tools.sources();
        let source = sources.iter().find(|source| own_name(source.name(), name).is_some());
        let source = source.ok_or_else(|| AcceptError::Unknown(name.to_owned()))?;
        let not_held = || AcceptError::NotHeld { name: name.to_owned(), hash: hash.to_owned() };
        let mut was_held = true;
        self.change(source.name(), |known| {
            let next = known.accepting(name, hash);
            was_held = next.is_some() || known.has_accepted(name, hash);
            next
        })
        .await?;
        if !was_held {
            return Err(not_held());
        }
        tracing::info!(tool = name, hash, "the definition of a tool was accepted");
        Ok(self.review(&generation).await?)
    }

    /// Reads what counts of the tools that the sources of a generation have now, notes what is new, and has the generation
    /// take it up.
    async fn review(&self, generation: &Generation) -> Result<(), Unavailable> {
        let (mut result, today) = (Ok(()), now_ms() / MS_OF_A_DAY);
        for source in generation.tools.sources() {
            let Some(tools) = source.tools() else { continue };
            let offered = || tools.iter().map(|tool| (tool.spec().name.as_str(), tool.pin()));
            let own = || offered().filter(|(name, _)| own_name(source.name(), name).is_some());
            match self.change(source.name(), |known| known.after(source.pins(), source.name(), own(), today)).await {
                Ok(known) => drop(self.known.lock().0.insert(source.name().to_owned(), known)),
                Err(error) => result = Err(error),
            }
        }
        let before = generation.tools.current();
        generation.tools.admit(&self.known.lock());
        let after = generation.tools.current();
        for (name, held) in after.held() {
            if before.held().get(name).is_none_or(|before| before.tool.pin() != held.tool.pin()) {
                let (hash, why) = (held.tool.pin(), held.why.as_str());
                tracing::warn!(tool = name, hash, why, "the definition of a tool is held back until it is accepted");
            }
        }
        result
    }

    /// Changes what is known of a source's tools, unless `change` finds nothing to change. Returns what is known then.
    async fn change(
        &self,
        source: &str,
        mut change: impl FnMut(&KnownTools) -> Option<KnownTools>,
    ) -> Result<KnownTools, Unavailable> {
        let (partition, key) = (keys::definitions_partition(), keys::definitions(source));
        for _ in 0..ATTEMPTS {
            let found = self.store.get(&partition, &key).await?;
            let version = found.as_ref().map_or(0, |document| document.version);
            let known = found.map(|document| decode::<KnownTools>(&document.value)).transpose()?.unwrap_or_default();
            let Some(next) = change(&known) else { return Ok(known) };
            let mut tx = Tx::new(partition.clone()).put_at(key.clone(), version, encode(&next), Some(KEPT));
            tx.notify = Some(keys::definitions_topic());
            match self.store.commit(tx).await {
                Ok(()) => return Ok(next),
                Err(CommitError::VersionConflict { .. }) => {}
                Err(error) => return Err(unavailable(error)),
            }
        }
        Err(Unavailable(format!("what is known of the tools of {source} changed too often meanwhile")))
    }
}

/// Returns once one of the sources has other tools.
async fn any_of(changes: &mut [watch::Receiver<u64>]) {
    let each = changes.iter_mut().map(|change| {
        async {
            if change.changed().await.is_err() {
                // The source is gone with its generation.
                pending::<()>().await;
            }
        }
        .boxed()
    });
    let each: Vec<_> = each.collect();
    if each.is_empty() { pending().await } else { drop(select_all(each).await) }
}
