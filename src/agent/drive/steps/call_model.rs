//! Calls the model once and records what it says while it says it.

use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::time::Instant;

use crate::agent::context;
use crate::agent::context::turn::Said;
use crate::agent::drive::driver::{Driver, Exit};
use crate::agent::drive::signals::Interruption;
use crate::agent::ledger::keys;
use crate::agent::limits::quota::Refusal;
use crate::agent::machine::budget::estimated_usage;
use crate::agent::machine::budget::signed;
use crate::agent::machine::budget::{self, Used};
use crate::agent::ownership::retry::RetryWhileLeased;
use crate::failpoint;
use crate::llm::{Delta, ModelError, ModelErrorKind, ModelTurn};
use crate::store::{CommitError, Tx, Write};
use crate::types::event::{BudgetKind, DiscardReason, Reservation, Turn};
use crate::types::{ErrorKind, Event, Micros, RunError, StopReason, ToolCall};

/// Most calls of one turn.
const MAX_CALLS: usize = 64;

/// How a model call ended.
enum End {
    Finished(Box<ModelTurn>),
    Failed(ModelError),
    Interrupted(Interruption),
}

/// Begins a step, calls the model and takes in its turn.
pub async fn call_model(
    driver: &mut Driver,
    step: u32,
    reserve: Reservation,
    closing: Option<StopReason>,
) -> Result<(), Exit> {
    if let Some(interruption) = driver.signals.before_a_step() {
        return driver.handle_interruption(interruption);
    }
    let Some(reserve) = begin_step(driver, step, reserve, closing).await? else { return Ok(()) };
    failpoint::hit("model.before_call");
    if !driver.signals.validity.is_valid() {
        return Err(Exit::HandedOff);
    }
    let started = Instant::now();
    let mut said = Said::new(driver, step, closing.is_some());
    let end = listen(driver, &mut said, reserve, closing).await?;
    failpoint::hit("model.answered");
    let latency_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let end = match (end, driver.signals.now()) {
        // The model gave up because the run's time was up: that is no failure of the model's.
        (End::Failed(_), Some(interruption)) => End::Interrupted(interruption),
        (end, _) => end,
    };
    match end {
        End::Finished(turn) => {
            let turn = finish_turn(driver, &mut said, *turn, reserve, latency_ms, closing.is_some());
            end_step(driver, reserve, Event::TurnFinished { step, turn: Box::new(turn) }).await
        }
        End::Interrupted(interruption) => {
            driver.handle_interruption(interruption)?;
            let turn = said.cut_short(reserve, latency_ms);
            end_step(driver, reserve, Event::TurnFinished { step, turn: Box::new(turn) }).await
        }
        End::Failed(error) => {
            if !(said.anything() && driver.recorder.run().may_discard()) {
                let error = run_error(&error, said.anything());
                let reason = StopReason::ProviderError;
                driver.recorder.queue(Event::StopRequested { reason, error: Some(error) });
            }
            let (reason, usage) = (DiscardReason::StreamBroke, said.usage(reserve));
            end_step(driver, reserve, Event::StepDiscarded { step, reason, usage }).await
        }
    }
}

/// Records the step with its reservation; `None` if a budget of the key or the session has no room for
/// it, or a command is to be heeded first.
async fn begin_step(
    driver: &mut Driver,
    step: u32,
    mut reserve: Reservation,
    closing: Option<StopReason>,
) -> Result<Option<Reservation>, Exit> {
    failpoint::hit("step.before_start");
    loop {
        let (kind, left) = match try_begin(driver, step, reserve, closing).await {
            Ok(true) => return Ok(Some(reserve)),
            Ok(false) => {
                give_back(driver).await?;
                return Ok(None);
            }
            Err(Refusal::Short(kind, left)) => (kind, left),
            Err(Refusal::Failed(error)) => return Err(error.into()),
        };
        let (tokens, money, reason) = match kind {
            BudgetKind::Tokens => (left, u64::MAX, StopReason::TokenBudget),
            BudgetKind::Cost => (u64::MAX, left, StopReason::CostBudget),
        };
        if let Some(smaller) = budget::shrink(driver.recorder.run().spec(), reserve, tokens, Micros(money)) {
            reserve = smaller;
        } else {
            give_back(driver).await?;
            driver.recorder.queue(Event::StopRequested { reason, error: None });
            return Ok(None);
        }
    }
}

/// Gives back what was reserved with the key for a step that does not begin.
async fn give_back(driver: &mut Driver) -> Result<(), Exit> {
    if let Some(account) = &mut driver.account {
        account.settle(Used::default(), RetryWhileLeased::new(driver.recorder.validity())).await?;
    }
    Ok(())
}

/// Reserves with the key, then records the step and reserves with the session in one commit; `false` if
/// a command is to be heeded first.
async fn try_begin(
    driver: &mut Driver,
    step: u32,
    reserve: Reservation,
    closing: Option<StopReason>,
) -> Result<bool, Refusal> {
    if let Some(account) = &mut driver.account {
        let ttl = Duration::from_millis(driver.recorder.run().left_ms());
        account.reserve(step, reserve, ttl, RetryWhileLeased::new(driver.recorder.validity())).await?;
        failpoint::hit("step.reserved");
    }
    let event = Event::StepStarted { step, reserved: reserve, closing };
    let session = driver.session;
    let recorded = driver
        .record_unless_told([event], |tx| match session {
            Some(session) => tx
                .write(add(keys::session_tokens(), signed(reserve.tokens()), session.tokens))
                .write(add(keys::session_cost(), signed(reserve.cost.0), session.cost)),
            None => tx,
        })
        .await;
    let (counter, value) = match recorded {
        Ok(begun) => return Ok(begun),
        Err(CommitError::CeilingReached { counter, value }) => (counter, u64::try_from(value).unwrap_or(0)),
        Err(error) => return Err(Refusal::Failed(error)),
    };
    let left = |ceiling: Option<u64>| ceiling.map_or(u64::MAX, |ceiling| ceiling.saturating_sub(value));
    let session = session.unwrap_or_default();
    Err(if counter == keys::session_tokens() {
        Refusal::Short(BudgetKind::Tokens, left(session.tokens))
    } else {
        Refusal::Short(BudgetKind::Cost, left(session.cost))
    })
}

/// Records the step's end and settles its reservation, with the session in the same commit, with the key
/// after it.
async fn end_step(driver: &mut Driver, reserve: Reservation, event: Event) -> Result<(), Exit> {
    let before = driver.recorder.run().used();
    driver.recorder.queue(event);
    let after = driver.recorder.run().used();
    let used = Used { tokens: after.tokens - before.tokens, cost: after.cost.saturating_sub(before.cost) };
    if driver.session.is_some() {
        let tokens = signed(used.tokens) - signed(reserve.tokens());
        let cost = signed(used.cost.0) - signed(reserve.cost.0);
        let settle =
            |tx: Tx| tx.write(add(keys::session_tokens(), tokens, None)).write(add(keys::session_cost(), cost, None));
        driver.recorder.record_with(None, settle).await?;
    }
    if let Some(account) = driver.account.as_mut().filter(|account| account.holds()) {
        driver.recorder.flush().await?;
        failpoint::hit("step.before_settle");
        account.settle(used, RetryWhileLeased::new(driver.recorder.validity())).await?;
    }
    failpoint::hit("turn.settled");
    Ok(())
}

/// Records deltas as they come, the first at once. Those that come within the store's pace of the last,
/// or while it is under way, are joined into the next; what is still unrecorded when the model ends is
/// queued.
async fn listen(
    driver: &mut Driver,
    said: &mut Said,
    reserve: Reservation,
    closing: Option<StopReason>,
) -> Result<End, Exit> {
    let request = context::model_request(driver, reserve, closing);
    let mut deltas = driver.model.stream(request);
    let mut interrupted = pin!(driver.signals.interrupted());
    let mut gap = pin!(tokio::time::sleep(Duration::ZERO));
    let pace = driver.recorder.store().pace();
    let mut end = None;
    loop {
        if let Some(end) = end {
            while let Some(event) = said.next_event() {
                driver.recorder.queue(event);
            }
            return Ok(end);
        }
        if said.has_news() && (gap.is_elapsed() || Instant::now() >= gap.deadline()) {
            let mut record = pin!(driver.recorder.record_with(said.next_event(), |tx| tx));
            loop {
                tokio::select! {
                    biased;
                    recorded = &mut record => break recorded?,
                    delta = deltas.next(), if end.is_none() => end = hear(said, delta),
                }
            }
            failpoint::hit("model.delta_recorded");
            gap.as_mut().reset(Instant::now() + pace);
        } else {
            tokio::select! {
                biased;
                delta = deltas.next() => end = hear(said, delta),
                interruption = &mut interrupted => end = Some(End::Interrupted(interruption)),
                () = &mut gap, if said.has_news() => {}
            }
        }
    }
}

fn hear(said: &mut Said, delta: Option<Result<Delta, ModelError>>) -> Option<End> {
    match delta {
        Some(Ok(Delta::Finished(turn))) => return Some(End::Finished(turn)),
        Some(Ok(delta)) => said.hear(delta),
        Some(Err(error)) => return Some(End::Failed(error)),
        None => {
            return Some(End::Failed(ModelError {
                kind: ModelErrorKind::Transient,
                message: "the model's stream ended before its turn was finished".to_owned(),
                status: None,
                retry_after: None,
            }));
        }
    }
    None
}

/// Makes the whole turn of what the model said, and queues the text that was held back.
fn finish_turn(
    driver: &mut Driver,
    said: &mut Said,
    mut turn: ModelTurn,
    reserve: Reservation,
    latency_ms: u64,
    closing: bool,
) -> Turn {
    if closing {
        turn.calls.clear();
    }
    let usage = turn.usage.unwrap_or_else(|| estimated_usage(reserve, turn.text.len()));
    let (text, found, rest) = said.finish(turn.text, !turn.calls.is_empty(), turn.finish_reason == "length");
    if !rest.is_empty() {
        let step = driver.recorder.run().step();
        driver.recorder.queue(Event::TextDelta { step, text: rest });
    }
    let run = driver.recorder.run();
    let minted = run.calls_minted();
    let calls = (1..).zip(turn.calls.into_iter().chain(found).take(MAX_CALLS)).map(|(number, call)| ToolCall {
        id: run.spec().id.call(minted.saturating_add(number)),
        name: call.name,
        arguments: call.arguments,
    });
    let calls = calls.collect();
    Turn { text, thinking: turn.thinking, calls, usage, finish_reason: turn.finish_reason, latency_ms }
}

fn run_error(error: &ModelError, said_something: bool) -> RunError {
    let kind = match error.kind {
        ModelErrorKind::Transient => ErrorKind::UpstreamUnavailable,
        ModelErrorKind::Timeout => ErrorKind::UpstreamTimeout,
        ModelErrorKind::Rejected => ErrorKind::UpstreamRejected,
        ModelErrorKind::ContextLength => ErrorKind::ContextLength,
    };
    let message = if said_something { format!("{error}; its answer is incomplete") } else { error.to_string() };
    let retry_after_ms = error.retry_after.and_then(|wait| u64::try_from(wait.as_millis()).ok());
    RunError { kind, message, retry_after_ms }
}

fn add(counter: crate::store::Key, delta: i64, ceiling: Option<u64>) -> Write {
    Write::Add { counter, delta, ceiling: ceiling.map(signed) }
}
