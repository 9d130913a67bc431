//! The six changes that a run's life is made of: which documents change together.
//!
//! | change | run | session | elsewhere |
//! | --- | --- | --- | --- |
//! | [`create`] | spec, head and first events appear | names the run | the tenant's index, first |
//! | [`begin`] | its log grows; head and spec say that it began | is the run's | |
//! | [`decide`] | its log grows; it waits on | | |
//! | [`resume`] | its log grows; nothing of it expires any more | is the run's | the tenant's index, first |
//! | [`end`] | its log, head and spec say how; the inbox goes | has its messages, names the next run | |
//! | [`end`], to wait | its log and head say until when | changes, lives as long | [`index_wait`], first |
//! | [`fail`] | the same, by a replica that cannot tell how far the run came | names the next run | |
//!
//! A run lies in its session's partition, so each is one commit, under the run's lease. Pure: callers commit what these say.

mod handoff;
mod inbox;
mod shown;
#[cfg(test)]
mod tests;

use std::time::Duration;

use bytes::Bytes;

pub use self::handoff::hand_over;
use self::handoff::pass_on;
pub use self::inbox::{delete_inbox, send};
use self::inbox::{keep_inbox, no_more_commands};
pub use self::shown::claim_flush;
use self::shown::keep_context;
use crate::agent::ledger::document::encode;
use crate::agent::ledger::due::Due;
use crate::agent::ledger::head::Head;
use crate::agent::ledger::keys;
use crate::agent::ledger::retention::Retention;
use crate::agent::ledger::session::{
    Versioned, forget_session, keep_session, put_entries, put_session, put_session_document,
};
use crate::agent::ledger::stored::{self, ClaimEnd};
use crate::agent::machine::budget::signed;
use crate::store::{Check, Fence, Key, Partition, Tx, Write};
use crate::types::context::SessionContext;
use crate::types::{Message, Outcome, RunId, RunSpec, RunStatus, StopReason};

/// When a new run begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// At once.
    Now,
    /// Once those before it in its session have ended.
    Queued,
    /// Once the one that holds its session has ended, which it is told to.
    Next,
}

impl Turn {
    /// Whether the run is queued at first.
    pub fn must_wait(self) -> bool {
        self != Self::Now
    }

    /// Where a run that is created stands.
    pub fn status(self) -> RunStatus {
        if self.must_wait() { RunStatus::Queued } else { RunStatus::InProgress }
    }
}

/// A change of a run and the entries in its tenant's index that lead there. The index is committed
/// first: what it names may not exist yet, but nothing exists unnamed.
#[derive(Debug)]
pub struct Indexed {
    /// The run, and its session.
    pub run: Tx,
    /// The tenant's index.
    pub index: Tx,
    /// How many bytes this counts as stored by the tenant.
    pub counted: u64,
    /// How many of them are counted for the run.
    pub of_run: u64,
}

/// A run appears with its `first` events, and its session, which is made if there is none, names it. The `claim` of the
/// key under which it was asked for is counted with it.
pub fn create(
    spec: &RunSpec,
    fence: Fence,
    first: Vec<Bytes>,
    turn: Turn,
    (session, claim): (Option<Versioned>, Option<ClaimEnd>),
    retention: Retention,
) -> Indexed {
    let specification = encode(spec);
    let of_run = stored::of_new_run(specification.len());
    let counted = of_run + claim.map_or(0, |_| ClaimEnd::BYTES);
    let head = Head { status: turn.status(), bytes: of_run, ..Head::new(spec) };
    let mut index = run_entry(spec, retention).write(stored::count(counted, retention.tenant_bytes));
    if let Some(claim) = claim {
        index = claim.count(index);
    }
    let mut tx = Tx::new(keys::partition_of(spec))
        .put_at(keys::spec(&spec.id), 0, specification, None)
        // The specification goes when the run ends; the head stays.
        .put_at(keys::head(&spec.id), 0, encode(&head), None)
        // A process that stood still meanwhile does not make what another has made and forgotten.
        .check(under_lease(&spec.id, fence))
        .write(Write::Append { log: keys::events(&spec.id), after: 0, entries: first });
    if spec.parent.is_some() {
        // The run that was to begin it may want it no more.
        tx = tx.check(Check::Version { key: keys::barred(&spec.id), version: 0 });
    }
    if let Some(id) = &spec.session {
        let Versioned { mut session, version } = session.unwrap_or_else(|| Versioned::new(id));
        if !spec.compacts {
            session.ran_as(&spec.id, (&head.agent, &head.called_model), head.user.as_deref());
        }
        match turn {
            Turn::Queued => session.queue.push(spec.id.clone()),
            Turn::Next => session.queue.insert(0, spec.id.clone()),
            Turn::Now if spec.concurrent => {
                session.concurrent_runs.push(spec.id.clone());
                if spec.compacts {
                    session.compacting = Some(spec.id.clone());
                }
            }
            Turn::Now => session.active_run = Some(spec.id.clone()),
        }
        if version == 0 {
            // An expired session of the same name leaves nothing to its successor.
            tx = forget_session(tx);
        }
        let ttl = retention.session_ttl_under(&session, spec);
        tx = put_session(tx, &session, version, ttl);
        index = put_entries(index, &session, ttl);
    }
    Indexed { run: tx, index, counted, of_run }
}

/// A queued run, whose log has `length` entries, begins with this event, and its session is its own.
pub fn begin(
    (spec, head): (&RunSpec, &Head),
    fence: Fence,
    (length, started): (u64, Bytes),
    session: Versioned,
    retention: Retention,
) -> Tx {
    let Versioned { mut session, version } = session;
    session.queue.retain(|queued| *queued != spec.id);
    session.active_run = Some(spec.id.clone());
    let ttl = retention.session_ttl_under(&session, spec);
    let tx = put_session(drive_on(head, spec, fence, (length, vec![started])), &session, version, ttl);
    let topic = keys::topic(&tx.partition, &spec.id);
    Tx { notify: Some(topic), ..tx }
}

/// Notes what was decided about some calls of a run that waits on, behind so many entries of its log.
pub fn decide(spec: &RunSpec, fence: Fence, (after, entries): (u64, Vec<Bytes>)) -> Tx {
    let append = Write::Append { log: keys::events(&spec.id), after, entries };
    let tx = Tx::new(keys::partition_of(spec)).check(under_lease(&spec.id, fence)).write(append);
    Tx { notify: Some(keys::topic(&tx.partition, &spec.id)), ..tx }
}

/// Resumes a run with these events, which follow so many entries of its log, after a crash or after its client answered:
/// then the head counts `answer` bytes more as stored, and the `claim` of the key under which the answer was sent is
/// counted with them. The session's document changes too, so a concurrent start or deletion fails by its version.
pub fn resume(
    (spec, head): (&RunSpec, &Head),
    fence: Fence,
    (answer, claim, entries): (u64, Option<ClaimEnd>, (u64, Vec<Bytes>)),
    session: Option<Versioned>,
    retention: Retention,
) -> Indexed {
    let mut index = run_entry(spec, retention);
    let counted = answer + claim.map_or(0, |_| ClaimEnd::BYTES);
    if counted > 0 {
        index = index.write(stored::count(counted, retention.tenant_bytes));
    }
    if let Some(claim) = claim {
        index = claim.count(index);
    }
    // What was to expire with a waiting run lives again.
    let mut tx = drive_on(head, spec, fence, entries)
        .write(Write::ExpireLog { log: keys::events(&spec.id), ttl: Duration::MAX });
    tx = keep_inbox(tx, &spec.id, Duration::MAX);
    if let Some(Versioned { mut session, version }) = session {
        if !spec.concurrent {
            session.active_run = Some(spec.id.clone());
        }
        let ttl = retention.session_ttl_under(&session, spec);
        tx = put_session(tx, &session, version, ttl);
        index = put_entries(index, &session, ttl);
    }
    Indexed { run: tx, index, counted, of_run: answer }
}

/// A run's end, or that it waits for its client.
#[derive(Debug)]
pub struct Ending<'a> {
    /// The run as it is.
    pub spec: &'a RunSpec,
    /// The run as it began, from which its log tells what it is.
    pub first: &'a RunSpec,
    /// How often its client has continued it.
    pub leg: u32,
    /// How it ends.
    pub outcome: &'a Outcome,
    /// When, Unix milliseconds.
    pub at_ms: u64,
    /// How many bytes its log has, with this end.
    pub log_bytes: u64,
    /// How many bytes of it are counted as stored so far.
    pub counted: u64,
    /// How many bytes were sent to it, which are counted too until it ends.
    pub inbox_bytes: u64,
    /// How many commands its driver knows of: it does not end before it knows all.
    pub commands_seen: u64,
    /// Its session; `None` without one, or once it was deleted.
    pub session: Option<Versioned>,
    /// What the session gets of it; `None` where the session's log is not what its document counts.
    pub messages: Option<Vec<Message>>,
    /// What of the session's messages models are shown from now on.
    pub context: Option<SessionContext>,
    /// When its wait is over, Unix milliseconds; `None` for a run that ends.
    pub waits_until_ms: Option<u64>,
    /// Its lease, which is released with the end: nothing is to be driven any more. A run that waits may be resumed, so
    /// its lease is held until its driver has tidied up.
    pub lease: Option<(Key, Fence)>,
}

/// The commit of a run's last event, and what follows from it.
#[derive(Debug)]
pub struct Ended {
    /// All that changes.
    pub tx: Tx,
    /// The run that is next in the session.
    pub next: Option<RunId>,
    /// How many bytes are to be counted as stored beside those that are counted for the run so far.
    pub delta: i64,
}

/// Adds to the commit of a run's last event what changes with it.
pub fn end(tx: Tx, ending: Ending<'_>, retention: Retention) -> Ended {
    if ending.outcome.status().is_final() { finish(tx, ending, retention) } else { wait(tx, ending, retention) }
}

fn finish(tx: Tx, ending: Ending<'_>, retention: Retention) -> Ended {
    let kept = ending.spec.options.keeps_response().then(|| encode(ending.first));
    let bytes = stored::of_ended_run(ending.log_bytes) + kept.as_ref().map_or(0, |spec| spec.len() as u64);
    let head = Head { bytes, ..ended_head(&ending) };
    let Ending { spec, outcome, at_ms, commands_seen, session, messages, context, counted, inbox_bytes, lease, .. } =
        ending;
    let tx = Tx { releases: lease.map(Box::new), ..tx };
    let mut tx = no_more_commands(tx, spec, commands_seen);
    if commands_seen > 0 {
        tx = delete_inbox(tx, &spec.id);
    }
    // What a response is read and continued by is kept with its log.
    let key = keys::spec(&spec.id);
    let tx = put_end(tx, &head, retention.run).write(match kept {
        Some(value) => Write::Put { key, value, ttl: Some(retention.run) },
        None => Write::Delete { key },
    });
    let delta = signed(head.bytes) - signed(counted) - signed(inbox_bytes);
    let Some(Versioned { mut session, version }) = session else { return Ended { tx, next: None, delta } };
    let next = session.detach_run(&spec.id);
    let ttl =
        if session.has_runs() { retention.session_ttl_under(&session, spec) } else { retention.session_ttl(&session) };
    let (after, is_whole) = (session.message_count, messages.is_some());
    let entries: Vec<Bytes> = messages.iter().flatten().map(encode).collect();
    // A run that only shortens the conversation has none, unless it was sent some.
    let appends = is_whole && !(spec.compacts && entries.is_empty());
    session.updated_ms = at_ms;
    session.message_count += entries.len() as u64;
    let bytes = entries.iter().map(|entry| entry.len() as u64).sum();
    session.bytes += bytes;
    session.digest = session.digest.with(&entries);
    session.usage += outcome.usage;
    session.cost += outcome.cost;
    session.runs += 1;
    pass_on(&mut session, spec);
    keep_context(&mut session, context, spec, after);
    let mut tx = put_session_document(tx, &session, version, ttl);
    if appends {
        tx = tx.write(Write::Append { log: keys::messages(), after, entries });
    }
    Ended { tx: keep_session(tx, &session, ttl), next, delta: delta + signed(bytes) }
}

/// A run that waits for its client is kept, with its session, for as long as it may wait.
fn wait(tx: Tx, ending: Ending<'_>, retention: Retention) -> Ended {
    let specification = encode(ending.first);
    let bytes = stored::of_unfinished_run(specification.len(), ending.log_bytes, ending.counted);
    let head = Head { waits_until_ms: ending.waits_until_ms, bytes, ..ended_head(&ending) };
    let Ending { spec, outcome, session, counted, commands_seen, .. } = ending;
    let ttl = retention.waiting_run_ttl();
    // What a service answers a run that waits for it resumes the run: the run must not begin to wait behind an answer.
    let tx = if outcome.reason == StopReason::ToolPending { no_more_commands(tx, spec, commands_seen) } else { tx };
    let kept = Write::Put { key: keys::spec(&spec.id), value: specification, ttl: Some(ttl) };
    let mut tx = keep_inbox(put_end(tx, &head, ttl).write(kept), &spec.id, ttl);
    if let Some(Versioned { mut session, version }) = session {
        pass_on(&mut session, spec);
        let ttl = retention.session_ttl_under(&session, spec);
        // A replica that saw the run under way, and is about to queue another run behind it, reads the session again.
        tx = keep_session(put_session_document(tx, &session, version, ttl), &session, ttl);
    }
    Ended { tx, next: None, delta: signed(bytes) - signed(counted) }
}

/// A run that cannot be driven, as it is found in the store.
#[derive(Debug)]
pub struct Lost {
    /// Where it lies.
    pub partition: Partition,
    /// What its head is to say.
    pub head: Head,
    /// The version of the present head.
    pub version: u64,
    /// How many entries its log has.
    pub length: u64,
    /// Its last event, unless the log has one.
    pub end: Option<Bytes>,
    /// Its session, and how long that is kept from now on.
    pub session: Option<(Versioned, Duration)>,
}

/// Ends a run that can neither be driven nor waited for; the run that is next in its session.
pub fn fail(fence: Fence, lost: Lost, retention: Retention) -> (Tx, Option<RunId>) {
    let Lost { partition, head, version, length, end, session } = lost;
    let (run, log) = (&head.id, keys::events(&head.id));
    let topic = keys::topic(&partition, run);
    let mut tx = Tx::new(partition)
        .check(under_lease(run, fence))
        .put_at(keys::head(run), version, encode(&head), Some(retention.run))
        .write(Write::Delete { key: keys::spec(run) });
    tx = delete_inbox(tx, run);
    if let Some(end) = end {
        tx = tx.write(Write::Append { log: log.clone(), after: length, entries: vec![end] });
    }
    tx = tx.write(Write::ExpireLog { log, ttl: retention.run });
    let mut next = None;
    if let Some((Versioned { mut session, version }, ttl)) = session {
        next = session.detach_run(run);
        tx = put_session(tx, &session, version, ttl);
    }
    (Tx { notify: Some(topic), ..tx }, next)
}

/// Removes a run that has ended. Its inbox was removed when it ended.
pub fn delete_run(tx: Tx, run: &RunId) -> Tx {
    tx.write(Write::Delete { key: keys::head(run) })
        .write(Write::Delete { key: keys::spec(run) })
        .write(Write::DeleteLog { log: keys::events(run) })
}

/// The run's entry in its tenant's index.
pub fn run_entry(spec: &RunSpec, retention: Retention) -> Tx {
    index_run(spec, retention.run_entry_ttl(spec))
}

/// What leads to a run that is about to wait until `at_ms`: its entry in the due index, and that in its tenant's for
/// as long as the run may wait. Both are committed before [`end`].
pub fn index_wait(spec: &RunSpec, at_ms: u64, retention: Retention) -> [Tx; 2] {
    [Due::wait_over(spec, at_ms).put(), index_run(spec, retention.waiting_run_entry_ttl(spec))]
}

fn index_run(spec: &RunSpec, ttl: Duration) -> Tx {
    let ttl = Some(ttl);
    let entry = Write::Put { key: keys::run_entry(&spec.id), value: encode(&spec.session), ttl };
    Tx::new(keys::tenant_partition(&spec.tenant)).write(entry)
}

/// What a run's head says once it ended or waits, beside what is counted for it.
fn ended_head(&Ending { spec, leg, outcome, at_ms, .. }: &Ending<'_>) -> Head {
    let (status, reason) = (outcome.status(), Some(outcome.reason));
    Head { ended_ms: Some(at_ms), status, reason, leg, ..Head::new(spec) }
}

/// Puts the head of a run that ended or waits, and keeps it and the log for `ttl`.
fn put_end(tx: Tx, head: &Head, ttl: Duration) -> Tx {
    tx.write(Write::Put { key: keys::head(&head.id), value: encode(head), ttl: Some(ttl) })
        .write(Write::ExpireLog { log: keys::events(&head.id), ttl })
}

/// Events after which a run is driven.
fn drive_on(head: &Head, spec: &RunSpec, fence: Fence, (after, entries): (u64, Vec<Bytes>)) -> Tx {
    Tx::new(keys::partition_of(spec))
        .check(under_lease(&spec.id, fence))
        .write(Write::Append { log: keys::events(&spec.id), after, entries })
        .write(Write::Put { key: keys::head(&spec.id), value: encode(head), ttl: None })
        .write(Write::Put { key: keys::spec(&spec.id), value: encode(spec), ttl: None })
}

fn under_lease(run: &RunId, fence: Fence) -> Check {
    Check::Fence { lease: keys::lease(run), fence }
}
