//! Ends a run that can neither be driven nor waited for: the store lost a part of it, or whoever drives it
//! dies of it.
//!
//! Stores do not lose documents, but their memory may be cleared, a failover may go to a replica that
//! lacked much, and an operator may delete what should not be touched. Whoever reads such a run gets
//! its end, and its session goes on.

use crate::agent::Agent;
use crate::agent::error::unavailable;
use crate::agent::ledger::document;
use crate::agent::ledger::document::encode;
use crate::agent::ledger::head::Head;
use crate::agent::ledger::keys;
use crate::agent::ledger::log;
use crate::agent::ledger::session::keep_session;
use crate::agent::ownership::lease::Lease;
use crate::agent::ownership::registry::Registration;
use crate::store::{Check, CommitError, Tx, Unavailable, Write};
use crate::types::clock::now_ms;
use crate::types::{Event, Outcome, Record, RunId, StopReason};

impl Agent {
    /// Ends the run, unless somebody drives it or it has ended by itself.
    pub(in crate::agent) async fn fail(
        &self,
        run: &RunId,
        entry: &Registration,
        why: StopReason,
    ) -> Result<(), Unavailable> {
        let partition = keys::run_partition(&entry.tenant, entry.session.as_ref(), run);
        let name = (keys::lease(run), keys::inbox(run));
        let Some(lease) = self.leases.acquire_named(partition.clone(), name.0, name.1).await? else { return Ok(()) };
        let ended = self.record_end(run, entry, why, &lease).await;
        lease.release().await?;
        if let Some(next) = ended? {
            tracing::error!(%run, reason = why.as_str(), "the run cannot be gone on with; it fails");
            self.unregister(run, entry, next.as_ref()).await?;
        }
        Ok(())
    }

    /// Records the end; the run that is next in the session. `None` if there was nothing to end.
    async fn record_end(
        &self,
        run: &RunId,
        entry: &Registration,
        why: StopReason,
        lease: &Lease,
    ) -> Result<Option<Option<RunId>>, Unavailable> {
        let partition = &keys::run_partition(&entry.tenant, entry.session.as_ref(), run);
        let Some(document) = self.store.get(partition, &keys::head(run)).await? else { return Ok(None) };
        let head: Head = document::decode(&document.value)?;
        if !head.is_under_way() {
            return Ok(None);
        }
        let log = keys::events(run);
        let length = self.store.read_log(partition, &log, u64::MAX, 0).await?.head;
        let last = self.last_record(partition, run).await?;
        let (reason, end) = match &last {
            // The end is there; only the head does not know of it.
            Some(Record { event: Event::RunFinished(outcome), .. }) if outcome.status().is_final() => {
                (outcome.reason, None)
            }
            Some(_) | None => (why, Some(Outcome::unknown(why))),
        };
        let head = Head { status: reason.status(), reason: Some(reason), ended_ms: Some(now_ms()), ..head };
        let keep = self.retention.run;
        let mut tx = Tx::new(partition.clone())
            .check(Check::Fence { lease: keys::lease(run), fence: lease.fence() })
            .put_at(keys::head(run), document.version, encode(&head), Some(keep))
            .write(Write::Delete { key: keys::spec(run) })
            .write(Write::DeleteLog { log: keys::inbox(run) });
        if let Some(outcome) = end {
            let mut seq = last.map_or(0, |record| record.seq);
            let (_, end) = log::encode(&mut seq, now_ms(), Event::RunFinished(Box::new(outcome)));
            tx = tx.write(Write::Append { log: log.clone(), after: length, entries: vec![end] });
        }
        tx = tx.write(Write::ExpireLog { log, ttl: keep });
        let mut next = None;
        if let Some(id) = &entry.session
            && let Some(mut found) = self.find_session(&entry.tenant, id).await?
        {
            next = found.session.detach_run(run);
            let ttl = self.session_ttl_under_all(&entry.tenant, &found.session).await?;
            tx = keep_session(tx.put_at(keys::session(), found.version, encode(&found.session), Some(ttl)), ttl);
        }
        tx.notify = Some(keys::topic(partition, run));
        match self.store.commit(tx).await {
            Ok(()) => Ok(Some(next)),
            // It is looked at again.
            Err(CommitError::VersionConflict { .. }) => Ok(None),
            Err(error) => Err(unavailable(error)),
        }
    }
}
