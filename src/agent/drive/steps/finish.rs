//! Ends a run, or hands it to its client: the last event, the session's new messages and all documents about the run
//! change in one commit.

use futures_util::future::try_join_all;

use crate::agent::drive::driver::{Driver, Exit};
use crate::agent::drive::judge::left_to_session;
use crate::agent::drive::steps::delegate::stop_children;
use crate::agent::error::unavailable;
use crate::agent::ledger::claim;
use crate::agent::ledger::commits::{self, Ending};
use crate::agent::ledger::document;
use crate::agent::ledger::keys;
use crate::agent::ledger::session::Versioned;
use crate::agent::ledger::stored::appended;
use crate::agent::machine::Run;
use crate::agent::ownership::retry::RetryWhileLeased;
use crate::agent::usage::CountedRun;
use crate::failpoint;
use crate::store::retry::RetryConflicts;
use crate::store::{CommitError, Tx, Unavailable};
use crate::types::context::SessionContext;
use crate::types::pending::PendingCall;
use crate::types::report::Report;
use crate::types::session::Session;
use crate::types::{Event, Message, Outcome, RunId, RunSpec, RunStatus, SessionId, StopReason};

/// What an attempt to record a run's end came to.
enum Attempt {
    /// The end is recorded; the run that is to be woken next in the session, if there is one.
    Recorded(Option<RunId>),
    /// The inbox has a new command, which may keep the run from ending. Holds the number of commands.
    CommandsLeft(u64),
}

/// How a run is about to end.
struct End {
    outcome: Outcome,
    /// When its wait is over, for one that waits: Unix milliseconds.
    waits_until_ms: Option<u64>,
}

/// Whether other runs are queued until the end of this one, which holds the session.
fn is_waited_for(session: &Session, run: &RunId) -> bool {
    session.active_run.as_ref() == Some(run) && !session.queue.is_empty()
}

/// Ends the run for `reason`, unless its inbox has a command that the driver has not read: then applies the command.
pub async fn finish(driver: &mut Driver, reason: StopReason) -> Result<(), Exit> {
    failpoint::hit("run.before_end");
    if reason.status().is_final() && driver.recorder.run().children().next().is_some() {
        // Boxed, as few runs begin others, and most of those wait for them.
        Box::pin(stop_children(driver)).await?;
    }
    driver.meter.free_slot().await;
    if driver.meter.has_budgets() {
        Box::pin(driver.warn_of_shared_budgets(true)).await;
    }
    let outcome = outcome(driver, reason);
    let waits_until_ms = if outcome.status().is_final() { None } else { Some(index_wait(driver).await?) };
    let mut end = End { outcome, waits_until_ms };
    let mut retry = RetryConflicts::new();
    while retry.next().await {
        match try_to_end(driver, &mut end).await? {
            Some(Attempt::Recorded(next)) => {
                driver.next_in_session = next.map(Box::new);
                log_end(driver.recorder.run().spec(), &end.outcome);
                failpoint::hit("run.ended");
                return Ok(());
            }
            Some(Attempt::CommandsLeft(count)) => {
                driver.recorder.ending().put_off();
                driver.meter.keep_slot().await.map_err(CommitError::from)?;
                return Ok(driver.apply_commands(count).await?);
            }
            None => {}
        }
    }
    Err(CommitError::from(Unavailable("the session is being changed by others".to_owned())).into())
}

/// How the run ends if it ends now for `reason`.
fn outcome(driver: &Driver, reason: StopReason) -> Outcome {
    driver.recorder.run().outcome(reason, driver.recorder.now_ms())
}

/// One line for each run that ends or waits: whose it is, how it ended and what it took.
fn log_end(spec: &RunSpec, outcome: &Outcome) {
    let (run, session, tenant) = (&spec.id, spec.session.as_ref().map(SessionId::as_str), &spec.tenant);
    let (key, model, request) = (spec.key_name.as_deref(), &spec.model, spec.request_id.as_deref());
    let (reason, tokens, cost_usd) = (outcome.reason.as_str(), outcome.usage.total(), outcome.cost.as_usd());
    let (Outcome { iterations, tool_calls, report, .. }, trace_id) = (outcome, spec.trace_id());
    let Report { total_ms, llm_time_ms: llm_ms, tool_time_ms: tool_ms, .. } = &**report;
    macro_rules! line {
        ($level:ident, $($error:ident,)? $message:literal) => {
            tracing::$level!(
                %run, session, %tenant, key, model, request, trace_id, reason, iterations, tool_calls, tokens, cost_usd,
                total_ms, llm_ms, tool_ms, $($error,)? $message
            )
        };
    }
    if let Some(error) = &outcome.error {
        let error = &error.message;
        line!(warn, error, "the run failed");
    } else if outcome.status().is_final() {
        line!(info, "the run ended");
    } else {
        line!(info, "the run waits for its caller");
    }
}

/// Reads the session and records the end in it, without messages if the session has lost some of its own; `None` if
/// the session changed meanwhile.
async fn try_to_end(driver: &mut Driver, end: &mut End) -> Result<Option<Attempt>, Exit> {
    let mut lost = false;
    loop {
        let session = read_session(driver).await?;
        let run = driver.recorder.run().spec().id.clone();
        // Services are waited for as for other tools.
        let may_give_way = end.waits_until_ms.is_some() && end.outcome.reason != StopReason::ToolPending;
        if may_give_way && session.as_ref().is_some_and(|found| is_waited_for(&found.session, &run)) {
            // Its client asked for something else meanwhile, which ends a run that waits.
            tracing::info!(%run, "the run is cancelled instead of waiting for its client: others wait for its end");
            *end = End { outcome: outcome(driver, StopReason::Cancelled), waits_until_ms: None };
        }
        match record_end(driver, end, session, lost).await {
            Ok(next) => return Ok(Some(Attempt::Recorded(next))),
            Err(CommitError::SequenceConflict { log, actual }) if log == keys::inbox(&run) => {
                return Ok(Some(Attempt::CommandsLeft(actual)));
            }
            Err(CommitError::VersionConflict { .. }) => return Ok(None),
            Err(CommitError::SequenceConflict { log, .. }) if log == keys::messages() && !lost => {
                let session = driver.recorder.run().spec().session.as_ref().map(SessionId::as_str);
                tracing::error!(%run, session, "messages of the session are missing; the run fails");
                lost = true;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Commits the run's last event together with its session's messages and all documents about the run, and returns the
/// run that is to be woken next in the session. A session that has `lost` messages gets none of the run's.
async fn record_end(
    driver: &mut Driver,
    End { outcome, waits_until_ms }: &End,
    session: Option<Versioned>,
    lost: bool,
) -> Result<Option<RunId>, CommitError> {
    let (run, waits_until_ms) = (driver.recorder.run(), *waits_until_ms);
    let (spec, first, leg) = (run.spec().clone(), run.first_spec().clone(), run.leg());
    let messages = (!lost).then(|| if leaves_messages(run, outcome) { left_to_session(run) } else { Vec::new() });
    let context = session_context(run, messages.as_deref());
    // The day on which a run is counted goes by it.
    let at_ms = driver.recorder.store().now_ms();
    let (commands_seen, counted, retention) = (driver.commands_seen, driver.counted, *driver.retention);
    let before = driver.recorder.bytes();
    let inbox_bytes = if outcome.status().is_final() { inbox_bytes(driver).await? } else { 0 };
    let lease = outcome.status().is_final().then(|| driver.recorder.ending().begin());
    let (mut next, mut uncounted) = (None, 0);
    let change = |tx: Tx| {
        let log_bytes = before + appended(&tx);
        let ending = Ending {
            spec: &spec,
            first: &first,
            leg,
            outcome,
            at_ms,
            log_bytes,
            counted,
            inbox_bytes,
            commands_seen,
            session,
            messages,
            context,
            waits_until_ms,
            lease,
        };
        let ended = commits::end(tx, ending, retention);
        (next, uncounted) = (ended.next, ended.delta);
        ended.tx
    };
    driver.recorder.record_with(Some(Event::RunFinished(Box::new(outcome.clone()))), change).await?;
    driver.uncounted = Some(Box::new(CountedRun::new(&spec, leg, outcome, at_ms, uncounted)));
    Ok(next)
}

/// What the session keeps of what models are shown, if it gets these messages of the run.
fn session_context(run: &Run, messages: Option<&[Message]>) -> Option<SessionContext> {
    let spec = run.spec();
    spec.session.as_ref()?;
    run.session_context(spec.history_len + messages.map_or(0, |messages| messages.len() as u64))
}

/// How many bytes were sent to the run. More cannot be sent before its end is recorded: that it has read all commands is
/// checked with the end.
async fn inbox_bytes(driver: &Driver) -> Result<u64, CommitError> {
    if driver.commands_seen == 0 {
        return Ok(0);
    }
    let (recorder, counter) = (&driver.recorder, keys::inbox_bytes(&driver.recorder.run().spec().id));
    let read = || recorder.store().counter(recorder.partition(), &counter);
    let bytes = RetryWhileLeased::new(recorder.validity()).read(read).await?;
    Ok(u64::try_from(bytes).unwrap_or(0))
}

/// Puts the index entries of a run that is about to wait, and returns when its wait is over: Unix milliseconds.
async fn index_wait(driver: &Driver) -> Result<u64, Exit> {
    let retention = *driver.retention;
    let now_ms = driver.recorder.store().now_ms();
    let run = driver.recorder.run();
    let at_ms = now_ms.saturating_add(u64::try_from(retention.wait.as_millis()).unwrap_or(u64::MAX));
    let given_up = run.pending_calls().map(PendingCall::given_up_ms);
    let at_ms = run.approval_requests().map(|request| request.expires_ms).chain(given_up).fold(at_ms, u64::min);
    let entries = commits::index_wait(run.spec(), at_ms, retention);
    let commit = || async {
        let committing = entries.iter().map(|entry| driver.recorder.store().commit(entry.clone()));
        try_join_all(committing).await.map(drop).map_err(unavailable)
    };
    RetryWhileLeased::new(driver.recorder.validity()).read(commit).await.map_err(CommitError::from)?;
    prolong_claims(driver).await?;
    Ok(at_ms)
}

/// Keeps the claims of the run's requests for as long as the run may wait once more: a claim is made for one wait. Like
/// the entries, they are written before the wait is recorded, so a crash in between leaves them longer than needed.
async fn prolong_claims(driver: &Driver) -> Result<(), Exit> {
    let run = driver.recorder.run();
    if run.leg() == 0 {
        return Ok(());
    }
    let (spec, names) = (run.spec(), run.claims().collect::<Vec<_>>());
    let (store, ttl) = (&**driver.recorder.store(), driver.retention.waiting_claim_ttl(spec));
    let prolong = || claim::prolong(store, &spec.tenant, &names, &spec.id, ttl);
    RetryWhileLeased::new(driver.recorder.validity()).read(prolong).await.map_err(CommitError::from)?;
    Ok(())
}

/// Whether a run with this outcome adds its messages to its session. A run that never began has none. A question that
/// the upstream refused would make the upstream refuse every later request in the session.
fn leaves_messages(run: &Run, outcome: &Outcome) -> bool {
    let was_refused = outcome.status() == RunStatus::Failed && outcome.report.steps.is_empty();
    outcome.status().is_final() && !was_refused && run.status() != RunStatus::Queued
}

/// The run's session as it is now; `None` without one, or if it was deleted.
pub(super) async fn read_session(driver: &Driver) -> Result<Option<Versioned>, Exit> {
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
    Ok(Some(Versioned { session, version: document.version }))
}
