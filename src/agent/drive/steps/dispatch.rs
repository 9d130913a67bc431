//! Makes a batch of tool calls that run at the same time.
//!
//! The begin of each call is stored before the call is made, but for calls of which it does not matter if they are made
//! again. Those that only compute are stored with their answers. Those that only read are stored beside them, where no other
//! replica can take the run over: what is to be recorded waits for as long as text waits, so that a quick answer shares the
//! commit of the next step. Results are shown as they are stored, and enter the history in the order of the calls.

use std::collections::VecDeque;
use std::pin::pin;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{Stream, StreamExt};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::agent::drive::driver::{Driver, Exit};
use crate::agent::drive::judge::may_tell;
use crate::agent::drive::pending::accepted;
use crate::agent::drive::recorder::Recorder;
use crate::agent::drive::signals::Interruption;
use crate::agent::drive::steps::call_tool::{Checked, call_tool};
use crate::agent::drive::steps::outcome::{NOT_MADE, stopped};
use crate::agent::drive::steps::questions::{self, Questions};
use crate::agent::drive::steps::settle_result::settle_result;
use crate::agent::ledger::callback::Callback;
use crate::agent::ownership::retry::RetryWhileLeased;
use crate::failpoint;
use crate::store::CommitError;
use crate::types::tool::CallEnding;
use crate::types::{CallId, Effect, Event, ToolCall, ToolOutcome, ToolProgress};

/// Most reports of progress that wait to be recorded; more are dropped.
const MAX_REPORTS: usize = 16;

/// What happened while a batch ran.
enum Happened {
    Answered(ToolCall, ToolOutcome),
    Reported(CallId, ToolProgress),
    Questioned(questions::Happened),
    Interrupted(Interruption),
    /// What is queued has waited long enough.
    Due,
}

/// When what happens to a batch is recorded.
enum Pacing {
    /// The begin before the calls, and each answer as it comes.
    AtOnce,
    /// Beside the calls, at most every `pace`.
    Beside { pace: Duration, due: Instant },
}

impl Pacing {
    /// How a batch is recorded that begins now.
    fn of(driver: &Driver, batch: &[Checked]) -> Self {
        let store = driver.recorder.store();
        // Another replica that could accept a cancellation, or resume the run, must know of a call before it is made; and so
        // must who takes the answer of a service, or of a user.
        let is_seen =
            |checked: &Checked| checked.effect != Effect::Read || checked.may_be_answered_later() || checked.may_ask();
        if store.is_shared() || batch.iter().any(is_seen) {
            return Self::AtOnce;
        }
        Self::Beside { pace: store.pace(), due: Instant::now() + store.pace() }
    }

    /// Whether each answer is recorded as it comes.
    fn is_at_once(&self) -> bool {
        matches!(self, Self::AtOnce)
    }

    /// Waits until what is queued is to be recorded.
    async fn due(&self, recorder: &Recorder) {
        match self {
            Self::Beside { due, .. } if recorder.has_queue() => tokio::time::sleep_until(*due).await,
            Self::AtOnce | Self::Beside { .. } => std::future::pending().await,
        }
    }

    /// What was queued is recorded.
    fn note_record(&mut self) {
        if let Self::Beside { pace, due } = self {
            *due = Instant::now() + *pace;
        }
    }
}

/// The calls of a batch that are not answered yet, which go on only while they are polled.
struct Running<S> {
    calls: S,
    /// What was answered while something was recorded.
    answered: VecDeque<(ToolCall, ToolOutcome)>,
}

impl<S: Stream<Item = (ToolCall, ToolOutcome)> + Unpin> Running<S> {
    /// The next answer; `None` if all calls are answered.
    async fn next(&mut self) -> Option<(ToolCall, ToolOutcome)> {
        match self.answered.pop_front() {
            None => self.calls.next().await,
            answer => answer,
        }
    }

    /// Records something while the calls go on: a store that is slow to answer must not use up the calls' time.
    async fn beside<T>(&mut self, recording: impl Future<Output = T>) -> T {
        let mut recording = pin!(recording);
        loop {
            tokio::select! {
                biased;
                recorded = &mut recording => return recorded,
                Some(answer) = self.calls.next() => self.answered.push_back(answer),
            }
        }
    }
}

/// Makes a batch of calls, and records their results and reports until all calls are answered; `false` if the run was
/// interrupted before.
pub(super) async fn dispatch(driver: &mut Driver, batch: Vec<Checked>) -> Result<bool, Exit> {
    if batch.iter().all(|checked| checked.tool.tool().only_computes()) {
        return compute(driver, batch).await;
    }
    let mut pacing = Pacing::of(driver, &batch);
    let callback = callback_of(driver, &batch).await?;
    if !begin(driver, &batch, &pacing).await? {
        return Ok(false);
    }
    let mut asks = batch.iter().any(Checked::may_ask).then(|| Box::new(Questions::new(driver)));
    let mut open: Vec<ToolCall> = batch.iter().map(|checked| checked.call.clone()).collect();
    let (reports, mut progress) = mpsc::channel(MAX_REPORTS);
    let begun = Instant::now();
    let calls: FuturesUnordered<_> = batch
        .into_iter()
        .map(|checked| call_tool(driver, checked, callback.as_deref(), &reports, asks.as_deref()))
        .collect();
    let mut running = Running { calls, answered: VecDeque::new() };
    drop(reports);
    let mut is_done = true;
    while is_done && !open.is_empty() {
        match next(driver, &mut running, (&mut progress, asks.as_deref_mut()), &pacing).await {
            // The call had the run's remaining time, which is up: it is stopped with the run next.
            Happened::Answered(_, outcome) if is_out_of_time(driver, &outcome) => {}
            Happened::Answered(call, outcome) => {
                questions::end_call(asks.as_deref_mut(), driver, &call);
                running.beside(finish(driver, &mut open, &call, outcome, pacing.is_at_once())).await?;
                if driver.recorder.run().is_stopping() {
                    // It ended the run: the calls beside it are of no use any more.
                    while let Some((call, outcome)) = running.answered.pop_front() {
                        finish(driver, &mut open, &call, outcome, false).await?;
                    }
                    is_done = false;
                }
            }
            Happened::Reported(id, progress) => running.beside(report(driver, &open, id, progress)).await?,
            // Boxed, as few tools ask.
            Happened::Questioned(happened) => {
                running.beside(Box::pin(questions::take(asks.as_deref_mut(), driver, happened))).await?;
            }
            Happened::Due => {
                running.beside(driver.recorder.flush()).await?;
                failpoint::hit("tool.intent_recorded");
                pacing.note_record();
            }
            Happened::Interrupted(interruption) => {
                driver.handle_interruption(interruption)?;
                is_done = false;
            }
        }
    }
    drop(running);
    if is_done {
        failpoint::hit("tool.finished");
    } else {
        questions::stop(asks.as_deref_mut(), driver);
        stop(driver, open, begun);
    }
    Ok(is_done)
}

/// Records that these calls, which began then, were stopped with their run.
fn stop(driver: &mut Driver, open: impl IntoIterator<Item = ToolCall>, begun: Instant) {
    for call in open {
        let began_as = driver.recorder.run().started(&call.id).unwrap_or(Effect::Write);
        driver.finish_call(&call, stopped(began_as, begun.elapsed()));
    }
}

/// Makes calls that only compute, and leaves it to the next event that waits for the store to record them; `false` if an
/// interruption comes first.
async fn compute(driver: &mut Driver, batch: Vec<Checked>) -> Result<bool, Exit> {
    if let Some(interruption) = driver.signals.before_a_step() {
        driver.handle_interruption(interruption)?;
        return Ok(false);
    }
    for event in intents(driver, &batch) {
        driver.recorder.queue(event);
    }
    let (reports, _) = mpsc::channel(MAX_REPORTS);
    let (mut batch, begun) = (batch.into_iter(), Instant::now());
    while let Some(checked) = batch.next() {
        let (call, outcome) = call_tool(driver, checked, None, &reports, None).await;
        let unanswered = if is_out_of_time(driver, &outcome) {
            driver.signals.now().map_or(Ok(()), |interruption| driver.handle_interruption(interruption))?;
            Some(call)
        } else {
            settle_result(driver, &call, outcome).await?;
            None
        };
        if driver.recorder.run().is_stopping() {
            stop(driver, unanswered, begun);
            let (begun_before, left): (Vec<_>, Vec<_>) = batch.partition(|checked| checked.has_begun);
            stop(driver, begun_before.into_iter().map(|checked| checked.call), begun);
            for Checked { call, .. } in left {
                driver.finish_call(&call, ToolOutcome::skipped(NOT_MADE));
            }
            return Ok(false);
        }
    }
    Ok(true)
}

/// The events that tell that the calls of a batch begin.
fn intents(driver: &Driver, batch: &[Checked]) -> Vec<Event> {
    let step = driver.recorder.run().step();
    let new = batch.iter().filter(|checked| !checked.has_begun);
    new.map(|Checked { call, effect, .. }| Event::ToolStarted { step, call: call.clone(), effect: *effect }).collect()
}

/// Waits for what happens next. If several things have happened, an answer comes first.
async fn next(
    driver: &mut Driver,
    running: &mut Running<impl Stream<Item = (ToolCall, ToolOutcome)> + Unpin>,
    (progress, asks): (&mut mpsc::Receiver<(CallId, ToolProgress)>, Option<&mut Questions>),
    pacing: &Pacing,
) -> Happened {
    let Driver { signals, recorder, commands, .. } = driver;
    let questioned = async {
        match asks {
            Some(asks) => Box::pin(asks.next(commands)).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        Some((call, outcome)) = running.next() => Happened::Answered(call, outcome),
        interruption = signals.interrupted() => Happened::Interrupted(interruption),
        Some((call, report)) = progress.recv() => Happened::Reported(call, report),
        happened = questioned => Happened::Questioned(happened),
        () = pacing.due(recorder) => Happened::Due,
    }
}

/// Records that the calls of a batch begin, or lets it be recorded beside them; `false` if an interruption or a command
/// comes first.
async fn begin(driver: &mut Driver, batch: &[Checked], pacing: &Pacing) -> Result<bool, Exit> {
    if let Some(interruption) = driver.signals.before_a_step() {
        driver.handle_interruption(interruption)?;
        return Ok(false);
    }
    let intents = intents(driver, batch);
    failpoint::hit("tool.before_intent");
    if !pacing.is_at_once() {
        for event in intents {
            driver.recorder.queue(event);
        }
        return Ok(true);
    }
    if !driver.record_unless_told(intents, |tx| tx).await? {
        return Ok(false);
    }
    failpoint::hit("tool.intent_recorded");
    // Recording may have taken longer than the lease lasts.
    if driver.signals.validity.is_valid() { Ok(true) } else { Err(Exit::HandedOff) }
}

/// Whether a call got no answer in the time that its run has left.
fn is_out_of_time(driver: &Driver, outcome: &ToolOutcome) -> bool {
    outcome.ending == CallEnding::Lost && matches!(driver.signals.now(), Some(Interruption::Stop(_)))
}

/// Records the result of a call, `at_once` or when it is due. A result that is the last of its batch is stored with the
/// next event.
async fn finish(
    driver: &mut Driver,
    open: &mut Vec<ToolCall>,
    call: &ToolCall,
    outcome: ToolOutcome,
    at_once: bool,
) -> Result<(), Exit> {
    failpoint::hit("tool.answered");
    open.retain(|open| open.id != call.id);
    if outcome.ending == CallEnding::Pending {
        leave_pending(driver, call, &outcome);
    } else {
        settle_result(driver, call, outcome).await?;
    }
    if at_once && !open.is_empty() {
        driver.recorder.flush().await?;
    }
    Ok(())
}

/// Where the calls of a batch are answered later, if one may be.
async fn callback_of(driver: &Driver, batch: &[Checked]) -> Result<Option<Box<Callback>>, Exit> {
    if !batch.iter().any(Checked::may_be_answered_later) {
        return Ok(None);
    }
    // Boxed, as few tools answer later.
    Box::pin(open_callback(driver)).await.map(Box::new).map(Some)
}

/// Makes known where the calls of the run are answered later, before a service is told of it.
async fn open_callback(driver: &Driver) -> Result<Callback, Exit> {
    let (recorder, retention) = (&driver.recorder, *driver.retention);
    let open = || Callback::open(&**recorder.store(), recorder.run().spec(), retention);
    Ok(RetryWhileLeased::new(recorder.validity()).read(open).await.map_err(CommitError::from)?)
}

/// Records that the service of a call goes on with it.
fn leave_pending(driver: &mut Driver, call: &ToolCall, outcome: &ToolOutcome) {
    let longest = driver.retention.wait;
    let within = driver.tools.answers_within(&call.name).map_or(longest, |within| within.min(longest));
    let now_ms = driver.recorder.store().now_ms();
    let accepted = accepted(driver.recorder.run(), call, outcome.latency_ms, now_ms, within);
    driver.recorder.queue(accepted);
    failpoint::hit("pending.accepted");
}

/// Records the progress of a call.
async fn report(
    driver: &mut Driver,
    open: &[ToolCall],
    call_id: CallId,
    mut progress: ToolProgress,
) -> Result<(), Exit> {
    let Some(call) = open.iter().find(|call| call.id == call_id) else { return Ok(()) };
    progress.message.take_if(|message| !may_tell(driver.recorder.run(), message));
    let (step, name) = (driver.recorder.run().step(), call.name.clone());
    driver.recorder.record_with([Event::ToolProgress { step, call_id, name, progress }], |tx| tx).await?;
    Ok(())
}
