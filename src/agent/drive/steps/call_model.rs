//! Calls the model once, and records its answer while it arrives.

use tokio::time::Instant;

use crate::agent::context::turn::{TurnBuffer, WholeTurn};
use crate::agent::drive::driver::{Driver, Exit};
use crate::agent::drive::guarded::tell;
use crate::agent::drive::judge::judge_input;
use crate::agent::drive::signals::Interruption;
use crate::agent::drive::steps::ask::{ask, output_bound};
use crate::agent::drive::steps::ask_guardrails::{self, Ruling};
use crate::agent::drive::steps::begin::begin_step;
use crate::agent::drive::steps::conversation::show;
use crate::agent::drive::steps::fail::fail_step;
use crate::agent::drive::steps::listen::{End, listen};
use crate::agent::drive::steps::{fall_back, hedge};
use crate::agent::machine::budget::{self, arrived_usage};
use crate::failpoint;
use crate::llm::{ModelCall, ModelPart, ModelTurn, Spent};
use crate::types::conversation::PartKind;
use crate::types::event::{DiscardReason, Reservation, Turn};
use crate::types::guard::{GuardPoint, Guarded, Triggered};
use crate::types::{Event, StopReason, ToolCall, TurnEnd, Usage, Used};

/// Most calls of one turn.
const MAX_CALLS: u16 = 64;

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
    if !judge_input(&mut driver.recorder, &driver.history) {
        return Ok(());
    }
    let asks = driver.recorder.run().guards().asks(GuardPoint::Input);
    if asks && !Box::pin(ask_guardrails::about_input(driver)).await? {
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
    show(driver);
    let started = Instant::now();
    let (mut buffer, end) = hear(driver, step, reserve, closing).await?;
    failpoint::hit("model.answered");
    let reserve = driver.recorder.run().reserved();
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
            Box::pin(end_turn(driver, &mut buffer, turn, (reserve, latency_ms, closing.is_some()))).await
        }
        End::Interrupted(Interruption::Leave) => Box::pin(leave_step(driver, reserve, buffer.spent())).await,
        End::Interrupted(interruption) => {
            driver.handle_interruption(interruption)?;
            let bound = output_bound(driver, reserve, closing.is_some());
            let (turn, rest) = buffer.take_partial(reserve, bound, latency_ms);
            for event in rest {
                driver.recorder.queue(event);
            }
            Box::pin(driver.end_step(reserve, Event::TurnFinished { step, turn: Box::new(turn) })).await
        }
        End::Failed(mut error) => {
            error.usage = believable(driver, reserve, error.usage, buffer.bytes());
            let bound = output_bound(driver, reserve, closing.is_some());
            let (bytes, closing) = (buffer.bytes(), closing.is_some());
            // The error is in the box too: a run's future would have room for it otherwise.
            Box::pin(async move { fail_step(driver, bytes, (reserve, bound, closing), &error).await }).await
        }
    }
}

/// Ends the step with the whole turn of what the model said, once guardrails that ask somebody have let it pass.
async fn end_turn(
    driver: &mut Driver,
    buffer: &mut TurnBuffer,
    turn: Box<ModelTurn>,
    (reserve, latency_ms, closing): (Reservation, u64, bool),
) -> Result<(), Exit> {
    let step = driver.recorder.run().step();
    let mut whole = finish_turn(driver, buffer, *turn, reserve, latency_ms, closing);
    if driver.recorder.run().guards().asks(GuardPoint::Output) {
        Box::pin(judge_turn(driver, buffer, &mut whole)).await?;
    }
    let turn = Box::new(whole.show(driver));
    driver.end_step(reserve, Event::TurnFinished { step, turn }).await
}

/// Asks the model, and records its answer while it arrives. What is left of it at the end is queued.
async fn hear(
    driver: &mut Driver,
    step: u32,
    reserve: Reservation,
    closing: Option<StopReason>,
) -> Result<(TurnBuffer, End), Exit> {
    let patience = hedge::patience(driver, closing);
    // The first token of an answer in one piece is as late as its last: nothing tells whether the model is slow to begin.
    let in_one_piece = !driver.recorder.tail().is_streamed() && patience.is_none();
    let (run, form) = (driver.recorder.run(), (closing.is_some(), in_one_piece));
    let mut buffer = TurnBuffer::new(run, (&*driver.model, run.model()), &driver.tools, step, form);
    let (mut deltas, end) = match patience {
        Some(patience) => Box::pin(hedge::ask_patiently(driver, &mut buffer, reserve, patience)).await?,
        None => (ask(driver, reserve, closing, buffer.is_in_one_piece()), None),
    };
    let end = match end {
        Some(end) => end,
        None => listen(driver, &mut buffer, &mut deltas).await?,
    };
    for event in buffer.take_news() {
        driver.recorder.queue(event);
    }
    Ok((buffer, end))
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

/// A turn that is whole, before it is recorded.
struct Unrecorded {
    turn: Turn,
    /// What is left of it to show.
    rest: Vec<Event>,
    /// What it says to the user, if that is to be judged.
    said: String,
    /// The guardrails that this fails.
    triggered: Vec<Triggered>,
}

impl Unrecorded {
    /// Queues the text that was held back, and what is to be told of it.
    fn show(self, driver: &mut Driver) -> Turn {
        for event in self.rest {
            driver.recorder.queue(event);
        }
        tell(&mut driver.recorder, self.triggered.into_iter().map(Guarded::Triggered));
        self.turn
    }
}

/// Asks models and services about what a turn says to the user. If one of them ends the run, or the run stops before all have
/// answered, nothing is left of the turn but what was shown.
async fn judge_turn(driver: &mut Driver, buffer: &mut TurnBuffer, whole: &mut Unrecorded) -> Result<(), Exit> {
    if whole.said.is_empty() || whole.triggered.iter().any(|triggered| triggered.tripwire) {
        return Ok(());
    }
    let taken = driver.recorder.run().model().price.used(&whole.turn.usage);
    let ruling = ask_guardrails::about_output(driver, &whole.said, taken).await?;
    if ruling != Ruling::Passed && driver.recorder.run().guards().holds_answers() {
        whole.rest.clear();
        whole.turn.parts = buffer.take_shown();
        if ruling == Ruling::Stopped {
            whole.turn.end = TurnEnd::Interrupted;
        }
    }
    Ok(())
}

/// Makes the whole turn of what the model said.
fn finish_turn(
    driver: &mut Driver,
    buffer: &mut TurnBuffer,
    mut turn: ModelTurn,
    reserve: Reservation,
    latency_ms: u64,
    closing: bool,
) -> Unrecorded {
    if closing {
        turn.parts.retain(|part| matches!(part, ModelPart::Part(_)));
    }
    let bytes = buffer.bytes().max(turn.bytes());
    let usage = believable(driver, reserve, turn.usage, bytes)
        .unwrap_or_else(|| arrived_usage(reserve, output_bound(driver, reserve, closing), bytes));
    let WholeTurn { parts, rest, said, triggered } = buffer.finish(turn.parts, &turn.end);
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
    let turn = Turn { parts: parts.collect(), usage, end: turn.end, latency_ms, first_token_ms };
    Unrecorded { turn, rest, said, triggered }
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
