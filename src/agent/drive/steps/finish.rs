//! Ends a run, or hands it to its client: the last event, the session's new messages and every
//! document that speaks of the run change in one commit.

use std::time::Duration;

use bytes::Bytes;

use crate::agent::drive::driver::{Driver, Exit};
use crate::agent::ledger::document;
use crate::agent::ledger::head::Head;
use crate::agent::ledger::keys;
use crate::agent::ledger::session::keep_session;
use crate::agent::ownership::retry::RetryWhileLeased;
use crate::failpoint;
use crate::store::{CommitError, Tx, Write};
use crate::types::clock::now_ms;
use crate::types::session::Session;
use crate::types::{Event, Outcome, RunId, RunStatus, StopReason};

/// How often a session that changed meanwhile is read again.
const ATTEMPTS: usize = 8;

/// Records the run's end for `reason`.
pub async fn finish(driver: &mut Driver, reason: StopReason) -> Result<(), Exit> {
    failpoint::hit("run.before_end");
    if let Some(account) = &mut driver.account {
        account.free_slot().await;
    }
    let outcome = driver.recorder.run().outcome(reason, driver.recorder.now_ms());
    let mut attempts = 0;
    let mut lost = false;
    loop {
        let session = read_session(driver).await?;
        let result = record_end(driver, &outcome, session, lost).await;
        attempts += 1;
        match result {
            Err(CommitError::SequenceConflict { log, actual })
                if log == keys::inbox(&driver.recorder.run().spec().id) =>
            {
                // Somebody left a command, which may keep the run from ending.
                if let Some(account) = &mut driver.account {
                    account.keep_slot().await.map_err(CommitError::from)?;
                }
                return Ok(driver.read_mail(actual).await?);
            }
            Err(CommitError::VersionConflict { .. }) if attempts < ATTEMPTS => {}
            Err(CommitError::SequenceConflict { log, .. }) if log == keys::messages() && !lost => {
                tracing::error!(run = %driver.recorder.run().spec().id, "the session's messages are not those it counts");
                lost = true;
            }
            result => {
                driver.next_in_session = result?;
                failpoint::hit("run.ended");
                return Ok(());
            }
        }
    }
}

/// Records the end; the run that is to be called next in the session, if there is one. A session that has
/// `lost` messages gets none of the run's.
async fn record_end(
    driver: &mut Driver,
    outcome: &Outcome,
    mut session: Option<(u64, Session)>,
    lost: bool,
) -> Result<Option<RunId>, CommitError> {
    let now = now_ms();
    let run = driver.recorder.run();
    let (spec, status) = (run.spec().clone(), outcome.status());
    // A question that the upstream refused outright would make it refuse all that follow in the session.
    let unanswered = status == RunStatus::Failed && outcome.report.steps.is_empty();
    // One that never began has said nothing.
    let unanswered = unanswered || run.status() == RunStatus::Queued;
    let new_messages = if status.is_final() && !unanswered && !lost { run.final_messages() } else { Vec::new() };
    let head = Head { ended_ms: Some(now), status, reason: Some(outcome.reason), ..Head::new(&spec) };
    let next = match &mut session {
        Some((_, session)) if status.is_final() => session.detach_run(&spec.id),
        Some(_) | None => None,
    };
    let (keep, commands_seen) = (driver.retention, driver.commands_seen);
    let change = |mut tx: Tx| {
        if status.is_final() {
            let log = keys::inbox(&spec.id);
            tx = tx
                .write(Write::Append { log: log.clone(), after: commands_seen, entries: Vec::new() })
                .write(Write::DeleteLog { log });
        }
        let value = document::encode(&head);
        tx = tx.write(Write::Put { key: keys::head(&spec.id), value, ttl: Some(keep.run) });
        tx = tx.write(Write::ExpireLog { log: keys::events(&spec.id), ttl: keep.run });
        let key = keys::spec(&spec.id);
        tx = tx.write(if status.is_final() {
            Write::Delete { key }
        } else {
            Write::Put { key, value: document::encode(&*spec), ttl: Some(keep.run) }
        });
        if let Some((version, session)) = session {
            let mut ttl = session.ttl_s.map_or(keep.session, Duration::from_secs);
            if !status.is_final() || session.has_runs() {
                // The session was made to outlive its runs and their waits when they began; so is what it
                // counted since.
                ttl = ttl.max(Duration::from_millis(spec.limits.timeout_ms) + keep.run);
            }
            if !status.is_final() {
                tx = tx.write(Write::ExpireLog { log: keys::inbox(&spec.id), ttl });
                return keep_session(tx, ttl);
            }
            let entries: Vec<Bytes> = new_messages.iter().map(document::encode).collect();
            let after = session.message_count;
            let session = Session {
                updated_ms: now,
                message_count: after + entries.len() as u64,
                digest: session.digest.with(&entries),
                usage: {
                    let mut usage = session.usage;
                    usage += outcome.usage;
                    usage
                },
                cost: session.cost + outcome.cost,
                runs: session.runs + 1,
                ..session
            };
            tx = tx.put_at(keys::session(), version, document::encode(&session), Some(ttl));
            if !lost {
                tx = tx.write(Write::Append { log: keys::messages(), after, entries });
            }
            tx = keep_session(tx, ttl);
        }
        tx
    };
    driver.recorder.record_with(Some(Event::RunFinished(Box::new(outcome.clone()))), change).await?;
    Ok(next)
}

async fn read_session(driver: &Driver) -> Result<Option<(u64, Session)>, Exit> {
    let recorder = &driver.recorder;
    if recorder.run().spec().session.is_none() {
        return Ok(None);
    }
    let key = keys::session();
    let read = || recorder.store().get(recorder.partition(), &key);
    let document = RetryWhileLeased::new(recorder.validity()).read(read).await.map_err(CommitError::from)?;
    // A session that was deleted meanwhile stays deleted.
    let Some(document) = document else { return Ok(None) };
    let session = document::decode(&document.value).map_err(CommitError::from)?;
    Ok(Some((document.version, session)))
}
