//! Dispatches a turn's tool calls.
//!
//! Calls that change nothing run beside each other, those with side effects one at a time, in the
//! model's order. An intent is stored before its call is dispatched; results are shown as they come
//! and enter the history in call order.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::agent::context::toolbox::CheckedCall;
use crate::agent::drive::driver::{Driver, Exit};
use crate::agent::drive::signals::Interruption;
use crate::failpoint;
use crate::tools::{CallContext, ProgressSink, RegisteredTool, invoke};
use crate::types::{CallId, Effect, Event, ToolCall, ToolOutcome, ToolProgress};

/// Most reports of progress that wait to be recorded; more are dropped.
const MAX_REPORTS: usize = 16;
/// Most calls that run at once.
const MAX_PARALLEL: usize = 8;

/// What a model is told of a call that a crash interrupted and that cannot be made again.
const INTERRUPTED: &str = "The call was interrupted. Whether it took effect is unknown: do not assume either.";

struct Checked {
    call: ToolCall,
    tool: Arc<RegisteredTool>,
    effect: Effect,
    arguments: Box<RawValue>,
    /// Counted from 1; more after a crash in which it had begun.
    attempt: u32,
}

/// Answers `calls`, or as many as an interruption leaves time for.
pub async fn run_tools(driver: &mut Driver, calls: Vec<ToolCall>) -> Result<(), Exit> {
    let mut checked = Vec::with_capacity(calls.len());
    for call in calls {
        let attempt = driver.recorder.run().attempt(&call.id);
        match driver.tools.check(&call) {
            // It was one that could be repeated when it began, and is not any more.
            Ok(CheckedCall { effect: Effect::Write, .. }) if attempt > 1 => give_up(driver, &call, INTERRUPTED),
            Ok(CheckedCall { tool, effect, arguments }) => {
                checked.push(Checked { call, tool, effect, arguments, attempt });
            }
            Err(why) if attempt > 1 => give_up(driver, &call, &format!("{INTERRUPTED} {why}")),
            Err(why) => {
                let step = driver.recorder.run().step();
                driver.recorder.queue(Event::ToolStarted { step, call: call.clone(), effect: Effect::Read });
                refuse(driver, &call, &why);
            }
        }
    }
    let parallel = driver.recorder.run().spec().options.parallel_tool_calls;
    let (together, one_by_one): (Vec<_>, Vec<_>) =
        checked.into_iter().partition(|checked| parallel && checked.effect != Effect::Write);
    let mut batches: Vec<Vec<Checked>> = Vec::new();
    let mut together = together.into_iter().peekable();
    while together.peek().is_some() {
        batches.push(together.by_ref().take(MAX_PARALLEL).collect());
    }
    batches.extend(one_by_one.into_iter().map(|checked| vec![checked]));
    for batch in batches {
        if !dispatch(driver, batch).await? {
            break;
        }
    }
    Ok(())
}

/// Answers a call that is not made.
fn refuse(driver: &mut Driver, call: &ToolCall, why: &str) {
    driver.finish_call(call, ToolOutcome::skipped(why));
}

/// Answers a call that was made before a crash and is not made again.
fn give_up(driver: &mut Driver, call: &ToolCall, why: &str) {
    driver.finish_call(call, ToolOutcome::lost(why));
}

/// What happened while a batch ran.
enum Happened {
    Answered(Option<(ToolCall, ToolOutcome)>),
    Reported(CallId, ToolProgress),
    Interrupted(Interruption),
}

/// Runs a batch to its end; `false` if it was interrupted.
async fn dispatch(driver: &mut Driver, batch: Vec<Checked>) -> Result<bool, Exit> {
    if !begin(driver, &batch).await? {
        return Ok(false);
    }
    let mut open: Vec<ToolCall> = batch.iter().map(|checked| checked.call.clone()).collect();
    let (reports, mut progress) = mpsc::channel(MAX_REPORTS);
    let mut running: FuturesUnordered<_> = batch.into_iter().map(|checked| answer(driver, checked, &reports)).collect();
    drop(reports);
    while !open.is_empty() {
        let happened = {
            let interrupted = driver.signals.interrupted();
            tokio::select! {
                biased;
                answered = running.next() => Happened::Answered(answered),
                interruption = interrupted => Happened::Interrupted(interruption),
                Some((call, report)) = progress.recv() => Happened::Reported(call, report),
            }
        };
        match happened {
            Happened::Answered(Some((call, outcome))) => {
                failpoint::hit("tool.answered");
                open.retain(|open| open.id != call.id);
                driver.finish_call(&call, outcome);
                if !open.is_empty() {
                    driver.recorder.flush().await?;
                }
            }
            Happened::Answered(None) => break,
            Happened::Reported(id, progress) => {
                if let Some(call) = open.iter().find(|call| call.id == id) {
                    let (step, call_id, name) = (driver.recorder.run().step(), id, call.name.clone());
                    driver
                        .recorder
                        .record_with([Event::ToolProgress { step, call_id, name, progress }], |tx| tx)
                        .await?;
                }
            }
            Happened::Interrupted(interruption) => {
                driver.handle_interruption(interruption)?;
                drop(running);
                for call in open {
                    let why = "The call was stopped with the run. It may have taken effect.";
                    driver.finish_call(&call, ToolOutcome::stopped(why));
                }
                return Ok(false);
            }
        }
    }
    failpoint::hit("tool.finished");
    Ok(true)
}

/// Records that a batch begins; `false` if it must not.
async fn begin(driver: &mut Driver, batch: &[Checked]) -> Result<bool, Exit> {
    if let Some(interruption) = driver.signals.before_a_step() {
        driver.handle_interruption(interruption)?;
        return Ok(false);
    }
    let run = driver.recorder.run();
    let step = run.step();
    // Nothing of calls that a crash interrupted.
    let unbegun = batch.iter().filter(|checked| checked.attempt == 1);
    let intents: Vec<_> = unbegun
        .map(|Checked { call, effect, .. }| Event::ToolStarted { step, call: call.clone(), effect: *effect })
        .collect();
    failpoint::hit("tool.before_intent");
    if !driver.record_unless_told(intents, |tx| tx).await? {
        return Ok(false);
    }
    failpoint::hit("tool.intent_recorded");
    // Recording may have taken longer than the lease lasts.
    if driver.signals.validity.is_valid() { Ok(true) } else { Err(Exit::HandedOff) }
}

/// Calls a tool, which has the shortest of its own time, the run's for each call, and what the run has left.
fn answer(
    driver: &Driver,
    checked: Checked,
    reports: &mpsc::Sender<(CallId, ToolProgress)>,
) -> impl Future<Output = (ToolCall, ToolOutcome)> + use<> {
    let Checked { call, tool, arguments, attempt, .. } = checked;
    let run = driver.recorder.run();
    let spec = run.spec();
    let timeout = Duration::from_millis(spec.limits.tool_timeout_ms);
    let timeout = tool.spec().timeout.map_or(timeout, |own| own.min(timeout));
    let context = CallContext {
        tenant: spec.tenant.clone(),
        user: spec.options.sampling.user.clone(),
        agent: spec.agent.clone(),
        run: spec.id.clone(),
        call: call.id.clone(),
        step: run.step(),
        attempt,
        trace: spec.trace.clone(),
        timeout: timeout.min(driver.signals.deadline.saturating_duration_since(Instant::now())),
        fence: driver.recorder.fence().token,
        progress: ProgressSink::new(call.id.clone(), reports.clone()),
    };
    async move { (call, invoke(tool, arguments, context).await) }
}
