//! Calls the model once, and records its answer while it arrives.

use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::time::Instant;

use crate::agent::context;
use crate::agent::context::turn::TurnBuffer;
use crate::agent::drive::driver::{Driver, Exit};
use crate::agent::drive::recorder::Recorder;
use crate::agent::drive::signals::Interruption;
use crate::agent::drive::steps::begin::begin_step;
use crate::agent::drive::steps::fail::fail_step;
use crate::agent::drive::steps::fall_back;
use crate::agent::drive::when_woken::WhenWoken;
use crate::agent::machine::budget::{self, arrived_usage};
use crate::failpoint;
use crate::llm::{Delta, DeltaStream, ModelCall, ModelError, ModelErrorKind, ModelPart, ModelTurn, Spent};
use crate::types::conversation::PartKind;
use crate::types::event::{DiscardReason, Reservation, Turn};
use crate::types::{Event, StopReason, ToolCall, Usage, Used};

/// How often text is recorded that no reader here passes on before the run ends. It is a second, and not the whole turn,
/// for readers at other replicas and for what a crash would leave unread. Not a setting: nothing that a caller of
/// such a run sees depends on it.
const PACE_UNSTREAMED: Duration = Duration::from_secs(1);
/// Most calls of one turn.
const MAX_CALLS: u16 = 64;

/// When the text that the model has said is recorded.
struct Pacing {
    /// The last time, or when the model was asked.
    since: Instant,
    has_recorded: bool,
    /// The time between two pieces that are shown at once.
    pace: Duration,
}

impl Pacing {
    /// Of a model that is asked now.
    fn from_now(pace: Duration) -> Self {
        Self { since: Instant::now(), has_recorded: false, pace }
    }

    /// What the model has said is recorded.
    fn note_record(&mut self) {
        (self.since, self.has_recorded) = (Instant::now(), true);
    }

    /// When what was said since is to be recorded. The first text that is shown at once does not wait.
    fn due(&self, is_streamed: bool) -> Instant {
        match (is_streamed, self.has_recorded) {
            (true, false) => self.since,
            (true, true) => self.since + self.pace,
            (false, _) => self.since + PACE_UNSTREAMED,
        }
    }
}

/// How a model call ended.
enum End {
    Finished(Box<ModelTurn>),
    Failed(ModelError),
    Interrupted(Interruption),
}

/// Begins a step, calls the model, and ends the step with the turn that the model made.
pub async fn call_model(
    driver: &mut Driver,
    step: u32,
    reserve: Reservation,
    closing: Option<StopReason>,
) -> Result<(), Exit> {
    if let Some(interruption) = driver.signals.before_a_step() {
        return driver.handle_interruption(interruption);
    }
    if closing.is_none() && fall_back::leave_refused(driver) {
        return Ok(());
    }
    driver.count_memory();
    let Some(reserve) = Box::pin(begin_step(driver, step, reserve, closing)).await? else { return Ok(()) };
    finish_step(driver, step, reserve, closing).await
}

/// Calls the model in the first step, which began when the run was created. A step that is interrupted before that is
/// void and costs nothing.
pub async fn call_model_first(driver: &mut Driver) -> Result<(), Exit> {
    let (step, reserve) = (driver.recorder.run().step(), driver.recorder.run().reserved());
    if let Some(interruption) = driver.signals.before_a_step() {
        Box::pin(void_step(driver, reserve)).await?;
        return driver.handle_interruption(interruption);
    }
    finish_step(driver, step, reserve, None).await
}

/// Calls the model in a step that began, and ends the step with the turn that the model made.
async fn finish_step(
    driver: &mut Driver,
    step: u32,
    reserve: Reservation,
    closing: Option<StopReason>,
) -> Result<(), Exit> {
    failpoint::hit("model.before_call");
    if !driver.signals.validity.is_valid() {
        return Box::pin(leave_step(driver, reserve, Spent::Nothing)).await;
    }
    let started = Instant::now();
    let form = (closing.is_some(), !driver.recorder.tail().is_streamed());
    let mut buffer = TurnBuffer::new(driver.recorder.run(), &*driver.model, &driver.tools, step, form);
    let end = listen(driver, &mut buffer, reserve, closing).await?;
    failpoint::hit("model.answered");
    let latency_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let end = match (end, driver.signals.now()) {
        // The model gave up because the run's time was up: that is no failure of the model's.
        (End::Failed(error), Some(interruption)) => {
            buffer.note_failure(error.spent);
            End::Interrupted(interruption)
        }
        (end, _) => end,
    };
    match end {
        End::Finished(turn) => {
            let turn = finish_turn(driver, &mut buffer, *turn, reserve, latency_ms, closing.is_some());
            Box::pin(driver.end_step(reserve, Event::TurnFinished { step, turn: Box::new(turn) })).await
        }
        End::Interrupted(Interruption::Leave) => Box::pin(leave_step(driver, reserve, buffer.spent())).await,
        End::Interrupted(interruption) => {
            driver.handle_interruption(interruption)?;
            let bound = output_bound(driver, reserve, closing.is_some());
            let turn = buffer.take_partial(reserve, bound, latency_ms);
            Box::pin(driver.end_step(reserve, Event::TurnFinished { step, turn: Box::new(turn) })).await
        }
        End::Failed(mut error) => {
            error.usage = believable(driver, reserve, error.usage, buffer.bytes());
            let bound = output_bound(driver, reserve, closing.is_some());
            Box::pin(fail_step(driver, buffer.bytes(), (reserve, bound, closing.is_some()), &error)).await
        }
    }
}

/// Leaves the run in the middle of a step to another replica, which charges the model call by what the log has of it. Only
/// this one knows that the call has cost nothing, so it voids the step itself.
async fn leave_step(driver: &mut Driver, reserve: Reservation, spent: Spent) -> Result<(), Exit> {
    if spent == Spent::Nothing {
        void_step(driver, reserve).await?;
    }
    Err(Exit::HandedOff)
}

/// Voids a step that has cost nothing. Whether the lease is certainly valid makes no difference: the store refuses the
/// commit if another replica has gone on with the run.
async fn void_step(driver: &mut Driver, reserve: Reservation) -> Result<(), Exit> {
    let (step, reason) = (driver.recorder.run().step(), DiscardReason::Interrupted);
    let (usage, unconfirmed) = (Usage::default(), Used::default());
    driver.end_step(reserve, Event::StepDiscarded { step, reason, usage, unconfirmed }).await?;
    if !driver.signals.validity.is_valid() {
        // What a driver leaves queued is recorded as it leaves the run, while its lease is certainly valid.
        driver.recorder.flush().await?;
    }
    Ok(())
}

/// Asks the model, and records its answer while it arrives until it ends or the run is interrupted: whenever it is due,
/// all that waits. What is left at the end is queued.
async fn listen(
    driver: &mut Driver,
    buffer: &mut TurnBuffer,
    reserve: Reservation,
    closing: Option<StopReason>,
) -> Result<End, Exit> {
    let mut deltas = ask(driver, reserve, closing, buffer.is_in_one_piece());
    let mut interrupted = WhenWoken::new(driver.signals.interrupted());
    let mut pacing = Pacing::from_now(driver.recorder.store().pace());
    let mut timer = pin!(tokio::time::sleep_until(pacing.since));
    let end = loop {
        let due = pacing.due(driver.recorder.tail().is_streamed());
        let end = if buffer.has_news() && Instant::now() >= due {
            // Boxed, as a run waits for its model far longer than for its store.
            let end = Box::pin(record_news(&mut driver.recorder, buffer, &mut deltas)).await?;
            pacing.note_record();
            end
        } else {
            if buffer.has_news() && timer.deadline() != due {
                timer.as_mut().reset(due);
            }
            tokio::select! {
                biased;
                delta = deltas.next() => take_delta(buffer, delta),
                interruption = &mut interrupted => Some(End::Interrupted(interruption)),
                () = &mut timer, if buffer.has_news() => None,
            }
        };
        if let Some(end) = end {
            break end;
        }
    };
    for event in buffer.take_news() {
        driver.recorder.queue(event);
    }
    Ok(end)
}

/// Sends the model the request of this step.
fn ask(driver: &Driver, reserve: Reservation, closing: Option<StopReason>, in_one_piece: bool) -> DeltaStream {
    let deadline = driver.signals.deadline.max(Instant::now());
    let bound = output_bound(driver, reserve, closing.is_some());
    let run = driver.recorder.run();
    let mut request =
        context::model_request(run, &driver.history, &driver.tools, bound, closing, in_one_piece, deadline);
    request.has_fallback = closing.is_none() && fall_back::has_other(driver);
    driver.model.stream(request)
}

/// Records all that waits in the buffer, in one commit. The deltas that arrive meanwhile wait for the next; `Some` if the
/// answer ended with one of them.
async fn record_news(
    recorder: &mut Recorder,
    buffer: &mut TurnBuffer,
    deltas: &mut DeltaStream,
) -> Result<Option<End>, Exit> {
    let mut end = None;
    let mut record = pin!(recorder.record_with(buffer.take_news(), |tx| tx));
    loop {
        tokio::select! {
            biased;
            recorded = &mut record => {
                recorded?;
                failpoint::hit("model.delta_recorded");
                return Ok(end);
            }
            delta = deltas.next(), if end.is_none() => end = take_delta(buffer, delta),
        }
    }
}

/// Adds a delta to the buffer; `Some` if the answer ended with it.
fn take_delta(buffer: &mut TurnBuffer, delta: Option<Result<Delta, ModelError>>) -> Option<End> {
    match delta {
        Some(Ok(Delta::Finished(turn))) => return Some(End::Finished(turn)),
        Some(Ok(delta)) => buffer.push(delta),
        Some(Err(error)) => return Some(End::Failed(error)),
        None => {
            let message = "the model's stream ended before its turn was finished";
            return Some(End::Failed(ModelError::new(ModelErrorKind::Transient, message).having(Spent::Unknown)));
        }
    }
    None
}

/// Makes the whole turn of what the model said, and queues the text that was held back.
fn finish_turn(
    driver: &mut Driver,
    buffer: &mut TurnBuffer,
    mut turn: ModelTurn,
    reserve: Reservation,
    latency_ms: u64,
    closing: bool,
) -> Turn {
    if closing {
        turn.parts.retain(|part| matches!(part, ModelPart::Part(_)));
    }
    let bytes = buffer.bytes().max(turn.bytes());
    let usage = believable(driver, reserve, turn.usage, bytes)
        .unwrap_or_else(|| arrived_usage(reserve, output_bound(driver, reserve, closing), bytes));
    let (parts, rest) = buffer.finish(turn.parts, &turn.end);
    if !rest.is_empty() {
        let step = driver.recorder.run().step();
        driver.recorder.queue(Event::TextDelta { step, text: rest });
    }
    let run = driver.recorder.run();
    let minted = run.calls_minted();
    let mut number = 0;
    let parts = parts.into_iter().filter_map(|part| match part {
        ModelPart::Part(part) => Some(part),
        ModelPart::Call(_) if number == MAX_CALLS => None,
        ModelPart::Call(ModelCall { name, arguments }) => {
            number += 1;
            let id = run.spec().id.call(minted.saturating_add(number));
            Some(PartKind::ToolCall(ToolCall { id, name, arguments }).into())
        }
    });
    let first_token_ms = buffer.first_token_ms();
    Turn { parts: parts.collect(), usage, end: turn.end, latency_ms, first_token_ms }
}

/// The usage that the upstream reports for an answer of so many bytes, unless it cannot be.
fn believable(driver: &Driver, reserve: Reservation, reported: Option<Usage>, bytes: usize) -> Option<Usage> {
    let run = driver.recorder.run();
    let most = run.terms().context_window.saturating_add(reserve.output_tokens);
    let usage = reported?;
    let believed = budget::believable(&usage, most, bytes);
    if believed.is_some() {
        return believed;
    }
    let (model, tokens) = (&run.model().model, usage.total());
    tracing::warn!(run = %run.spec().id, model, tokens, most, bytes, "the upstream reports a usage that cannot be; an estimate is charged");
    None
}

/// The bound on the output that the upstream is told: none if the caller asked for none and no budget holds.
pub(in crate::agent::drive) fn output_bound(driver: &Driver, reserve: Reservation, closing: bool) -> Option<u64> {
    let spec = driver.recorder.run().spec();
    let has_budget = spec.limits.token_budget.is_some() || spec.limits.cost_budget.is_some();
    let holds = spec.bounds_output || closing || has_budget || driver.meter.has_budgets();
    holds.then_some(reserve.output_tokens)
}
