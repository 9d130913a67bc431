//! What is stored of runs and sessions, under which names, and what changes together.
//!
//! Knows nothing of the rooms that read and write it.

pub(super) mod callback;
pub(super) mod claim;
pub mod collection;
pub(super) mod commits;
pub(super) mod document;
pub(super) mod due;
mod ended;
pub(super) mod head;
pub(super) mod keys;
pub(super) mod log;
pub(super) mod offers;
pub(super) mod outbox;
pub mod retention;
mod room;
pub mod session;
pub(super) mod stored;

use std::pin::pin;
use std::sync::Arc;

use futures_util::TryStreamExt;
use tokio::sync::Mutex;

use crate::agent::error::LookupError;
use crate::agent::ledger::document::decode;
use crate::agent::ledger::ended::EndedRuns;
use crate::agent::ledger::head::Head;
use crate::agent::ledger::retention::Retention;
use crate::store::pages::log_pages;
use crate::store::{CommitError, Partition, Store, Tx, Unavailable};
use crate::types::{Event, Outcome, Record, RunId, RunSpec, SessionId, Tenant};

/// The documents and logs of runs and sessions. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Ledger {
    store: Arc<dyn Store>,
    retention: Arc<Retention>,
    /// Where what lies in the store takes this process's memory.
    ended: Option<Arc<EndedRuns>>,
    /// Held while a tenant's storage is counted anew.
    recounting: Arc<Mutex<()>>,
}

impl Ledger {
    /// What lies in this store, and is kept as long as `retention` says.
    pub(super) fn new(store: Arc<dyn Store>, retention: Retention) -> Self {
        let ended = retention.ended_bytes.map(|limit| Arc::new(EndedRuns::new(limit)));
        Self { store, retention: Arc::new(retention), ended, recounting: Arc::default() }
    }

    /// Where it lies.
    pub(super) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// How long it is kept.
    pub(super) fn retention(&self) -> Retention {
        *self.retention
    }

    /// How long it is kept, for what must be small.
    pub(super) fn shared_retention(&self) -> Arc<Retention> {
        self.retention.clone()
    }

    /// Changes it: all of `tx`, or nothing.
    pub(super) async fn commit(&self, tx: Tx) -> Result<(), CommitError> {
        self.store.commit(tx).await
    }

    /// Where a run of this tenant lies, and its head.
    pub(super) async fn find_run(&self, tenant: &Tenant, id: &RunId) -> Result<(Partition, Head), LookupError> {
        let missing = || LookupError::RunNotFound(id.to_string());
        let entry = self.store.get(&keys::tenant_partition(tenant), &keys::run_entry(id)).await?.ok_or_else(missing)?;
        let session: Option<SessionId> = decode(&entry.value)?;
        let partition = keys::run_partition(tenant, session.as_ref(), id);
        let head = self.head(&partition, id).await?.ok_or_else(missing)?;
        Ok((partition, head))
    }

    /// A run's head; `None` if there is no such run.
    pub(super) async fn head(&self, partition: &Partition, run: &RunId) -> Result<Option<Head>, Unavailable> {
        let document = self.store.get(partition, &keys::head(run)).await?;
        document.map(|document| decode(&document.value)).transpose()
    }

    /// Whether there is such a run, and it has not ended.
    pub(super) async fn is_live(
        &self,
        tenant: &Tenant,
        session: Option<&SessionId>,
        run: &RunId,
    ) -> Result<bool, Unavailable> {
        let head = self.head(&keys::run_partition(tenant, session, run), run).await?;
        Ok(head.is_some_and(|head| !head.status.is_final()))
    }

    /// What a run is asked to do; `None` once it has ended, unless its response is stored.
    pub(super) async fn spec(&self, partition: &Partition, run: &RunId) -> Result<Option<RunSpec>, Unavailable> {
        let document = self.store.get(partition, &keys::spec(run)).await?;
        document.map(|document| decode(&document.value)).transpose()
    }

    /// Reads all records of a run, a page of the log at a time, with the bytes that each takes there.
    pub(super) async fn read_records(&self, spec: &RunSpec, take: impl FnMut(Record, usize)) -> Result<(), ReadError> {
        self.read_log(&keys::partition_of(spec), &spec.id, take).await
    }

    /// The same, of a run in this partition.
    pub(super) async fn read_log(
        &self,
        partition: &Partition,
        run: &RunId,
        mut take: impl FnMut(Record, usize),
    ) -> Result<(), ReadError> {
        let mut pages = pin!(log_pages(&*self.store, partition, keys::events(run), 0..u64::MAX, PAGE));
        while let Some(page) = pages.try_next().await? {
            for entry in &page {
                take(log::decode(entry)?, entry.len());
            }
        }
        Ok(())
    }

    /// The newest record of a run; `None` if its log is empty or gone.
    pub(super) async fn last_record(&self, partition: &Partition, id: &RunId) -> Result<Option<Record>, ReadError> {
        let log = keys::events(id);
        let head = self.store.read_log(partition, &log, u64::MAX, 1).await?.head;
        if head == 0 {
            return Ok(None);
        }
        let page = self.store.read_log(partition, &log, head - 1, 1).await?;
        Ok(page.entries.first().map(|entry| log::decode(entry)).transpose()?)
    }

    /// Whether a run recorded something of this claim beyond that number.
    pub(super) async fn is_recorded(
        &self,
        partition: &Partition,
        run: &RunId,
        after: u64,
        claim: &str,
    ) -> Result<bool, ReadError> {
        let mut pages = pin!(log_pages(&*self.store, partition, keys::events(run), after..u64::MAX, PAGE));
        while let Some(page) = pages.try_next().await? {
            for entry in &page {
                if log::decode(entry)?.event.claim() == Some(claim) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// How a run ended or why it waits; `None` while its log does not end so.
    pub(super) async fn outcome(&self, partition: &Partition, id: &RunId) -> Result<Option<Outcome>, Unavailable> {
        match self.last_record(partition, id).await?.map(|record| record.event) {
            Some(Event::RunFinished(outcome)) => Ok(Some(*outcome)),
            _ => Ok(None),
        }
    }
}

/// Log entries read at a time.
const PAGE: usize = 256;

/// Why a run's log was not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    /// An entry cannot be read, at least not by this version.
    #[error("a log entry is damaged: {0}")]
    Damaged(#[from] serde_json::Error),
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] Unavailable),
}

impl From<ReadError> for Unavailable {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Damaged(_) => Self(error.to_string()),
            ReadError::Store(error) => error,
        }
    }
}
