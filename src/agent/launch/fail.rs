//! Ends a run that can neither be driven nor waited for: the store lost a part of it, an entry of its log cannot be
//! read, or driving it kills the replica.
//!
//! Stores do not lose documents, but their memory may be cleared, a failover may go to a replica that
//! lacked much, and an operator may delete what should not be touched. Readers of such a run get
//! its end, and its session can be used again.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::agent::error::unavailable;
use crate::agent::launch::Launcher;
use crate::agent::ledger::commits::{self, Lost};
use crate::agent::ledger::head::Head;
use crate::agent::ledger::session::Versioned;
use crate::agent::ledger::{ReadError, document, keys, log};
use crate::agent::machine::Run;
use crate::agent::ownership::lease::Lease;
use crate::agent::ownership::registry::Registration;
use crate::store::{CommitError, Unavailable};
use crate::types::clock::now_ms;
use crate::types::delegate::Delegated;
use crate::types::{Event, Outcome, Record, RunId, RunSpec, SessionId, StopReason};

impl Launcher {
    /// Ends the run whose log cannot be read, unless it has a driver or has ended by itself.
    pub(in crate::agent) async fn fail_lost(
        self: &Arc<Self>,
        run: &RunId,
        entry: &Registration,
    ) -> Result<(), Unavailable> {
        self.fail(run, entry, Outcome::unknown(StopReason::StoreLostState), None).await
    }

    /// Ends the run so, unless it has a driver or has ended by itself, or its log has another length than `entries`.
    pub(in crate::agent) async fn fail(
        self: &Arc<Self>,
        run: &RunId,
        entry: &Registration,
        outcome: Outcome,
        entries: Option<u64>,
    ) -> Result<(), Unavailable> {
        let why = outcome.reason;
        let partition = keys::run_partition(&entry.tenant, entry.session.as_ref(), run);
        let Some(lease) = self.ownership.acquire_run(&partition, run).await? else { return Ok(()) };
        let ended = self.record_end(run, entry, (outcome, entries), &lease).await;
        lease.release().await?;
        if let Some(next) = ended? {
            let (tenant, session) = (&entry.tenant, entry.session.as_ref().map(SessionId::as_str));
            tracing::error!(%run, session, %tenant, reason = why.as_str(), "the run cannot be resumed; it fails");
            if let Some(head) = self.ledger.head(&partition, run).await? {
                self.tell_parent(&entry.tenant, &head).await?;
                self.usage.count_found(&entry.tenant, &partition, &head).await?;
            }
            self.ledger.note_end(&entry.tenant, &partition, run, None).await;
            self.ownership.unregister(run, entry, next.as_ref()).await?;
        }
        Ok(())
    }

    /// Records the end; the run that is next in the session. `None` if there was nothing to end.
    async fn record_end(
        &self,
        run: &RunId,
        entry: &Registration,
        (outcome, entries): (Outcome, Option<u64>),
        lease: &Lease,
    ) -> Result<Option<Option<RunId>>, Unavailable> {
        let Some((lost, end)) = self.read_lost(run, entry, &outcome).await? else { return Ok(None) };
        if entries.is_some_and(|entries| entries != lost.length) {
            // The run came further: the sweep looks at it again.
            return Ok(None);
        }
        if lost.end.is_some() {
            self.stop_children(entry, &lost).await?;
        }
        // An end that the log has already was counted by the replica that recorded it.
        let (head, ends_now) = (lost.head.clone(), lost.end.is_some());
        // Which hooks a run has is in its specification: of a run that lost it, or of which it is damaged, none is told. If the
        // store does not answer, the sweep looks at the run again.
        let spec = self.ledger.store().get(&lost.partition, &keys::spec(run)).await?;
        let spec = spec.and_then(|document| document::decode::<RunSpec>(&document.value).ok());
        let (known, ends) = (spec.map(|spec| Run::new(Arc::new(spec))), end.as_slice());
        let told = match &known {
            Some(known) => self.tell(known, ends).await?,
            None => None,
        };
        let (tx, next) = commits::fail(lease.fence(), lost, self.ledger.retention());
        match self.ledger.commit(told.iter().fold(tx, |tx, told| told.put(tx))).await {
            Ok(()) => {
                if let Some(told) = told {
                    told.stored();
                }
                if ends_now {
                    self.telemetry.metrics.failed_run(&head.agent, &entry.tenant, outcome.reason);
                    self.telemetry.traces.failed_run(&entry.tenant, || head.subject(), &outcome);
                }
                Ok(Some(next))
            }
            // The sweep looks at the run again.
            Err(CommitError::VersionConflict { .. }) => Ok(None),
            Err(error) => Err(unavailable(error)),
        }
    }

    /// Stops the runs that it began, as far as its log can be read, before its end is recorded.
    async fn stop_children(&self, entry: &Registration, lost: &Lost) -> Result<(), Unavailable> {
        let mut live = Vec::new();
        let note = |record: Record, _| {
            let Event::Delegated(delegated) = record.event else { return };
            match *delegated {
                Delegated::Started(child) => live.push(child.run),
                Delegated::Completed(child) => live.retain(|run| *run != child.run),
            }
        };
        match self.ledger.read_log(&lost.partition, &lost.head.id, note).await {
            Ok(()) | Err(ReadError::Damaged(_)) => {}
            Err(ReadError::Store(error)) => return Err(error),
        }
        let Some(delegating) = self.generations.current().delegating.clone() else { return Ok(()) };
        let root = lost.head.parent.as_ref().map_or(&lost.head.id, |parent| &parent.root);
        let stopping = live.iter().map(|child| delegating.stop(&entry.tenant, root, child));
        futures_util::future::try_join_all(stopping).await.map(drop)
    }

    /// Reads what the store still has of a run, and decides how the run ends, with its last record if the log lacks that; `None` if
    /// it has ended.
    async fn read_lost(
        &self,
        run: &RunId,
        entry: &Registration,
        outcome: &Outcome,
    ) -> Result<Option<(Lost, Option<Arc<Record>>)>, Unavailable> {
        let partition = keys::run_partition(&entry.tenant, entry.session.as_ref(), run);
        let store = self.ledger.store();
        let Some(document) = store.get(&partition, &keys::head(run)).await? else { return Ok(None) };
        let head: Head = document::decode(&document.value)?;
        if head.status.is_final() {
            return Ok(None);
        }
        let length = store.read_log(&partition, &keys::events(run), u64::MAX, 0).await?.head;
        let last = match self.ledger.last_record(&partition, run).await {
            Ok(last) => last.map(|record| (record.seq, record.event)),
            // The last record's number is not known, but no record's number is above its place.
            Err(ReadError::Damaged(_)) => Some((length, Event::RunStarted)),
            Err(ReadError::Store(error)) => return Err(error),
        };
        let (reason, end) = end(last, outcome);
        let (record, end) = end.unzip();
        let head = Head { status: reason.status(), reason: Some(reason), ended_ms: Some(store.now_ms()), ..head };
        let session = self.session_without(run, entry).await?;
        Ok(Some((Lost { partition, head, version: document.version, length, end, session }, record)))
    }

    /// The run's session, and how long it is kept once the run is detached from it.
    async fn session_without(
        &self,
        run: &RunId,
        entry: &Registration,
    ) -> Result<Option<(Versioned, Duration)>, Unavailable> {
        let Some(id) = &entry.session else { return Ok(None) };
        let Some(found) = self.ledger.find_session(&entry.tenant, id).await? else { return Ok(None) };
        let mut without = found.session.clone();
        without.detach_run(run);
        let ttl = self.ledger.session_ttl_under_all(&entry.tenant, &without).await?;
        Ok(Some((found, ttl)))
    }
}

/// Why the run ends, and the record and entry that say so, unless the log has its end already and only the head lacks it.
fn end(last: Option<(u64, Event)>, outcome: &Outcome) -> (StopReason, Option<(Arc<Record>, Bytes)>) {
    match last {
        Some((_, Event::RunFinished(outcome))) if outcome.status().is_final() => (outcome.reason, None),
        last => {
            let end = Event::RunFinished(Box::new(outcome.clone()));
            let mut seq = last.map_or(0, |(seq, _)| seq);
            (outcome.reason, Some(log::encode(&mut seq, now_ms(), end)))
        }
    }
}
