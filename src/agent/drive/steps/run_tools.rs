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
use tokio::time::Instant;

use crate::agent::drive::driver::{Driver, Exit};
use crate::agent::machine::Run;
use crate::failpoint;
use crate::tools::CallContext;
use crate::tools::{RegisteredTool, invoke};
use crate::types::{Effect, Event, ToolCall, ToolOutcome};

/// Most calls that run at once.
const MAX_PARALLEL: usize = 8;

struct Checked {
    call: ToolCall,
    tool: Arc<RegisteredTool>,
    arguments: Box<RawValue>,
}

/// Answers `calls`, or as many as an interruption leaves time for.
pub async fn run_tools(driver: &mut Driver, calls: Vec<ToolCall>) -> Result<(), Exit> {
    let mut checked = Vec::with_capacity(calls.len());
    for call in calls {
        match driver.tools.check(&call) {
            Ok((tool, arguments)) => checked.push(Checked { call, tool, arguments }),
            Err(why) => {
                let step = driver.recorder.run().step();
                driver.recorder.queue(Event::ToolStarted { step, call: call.clone(), effect: Effect::Read });
                driver.finish_call(&call, ToolOutcome::skipped(why));
            }
        }
    }
    let parallel = driver.recorder.run().spec().parallel_tool_calls;
    let (together, one_by_one): (Vec<_>, Vec<_>) =
        checked.into_iter().partition(|checked| parallel && checked.tool.spec().effect != Effect::Write);
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

/// Runs a batch to its end; `false` if it was interrupted.
async fn dispatch(driver: &mut Driver, batch: Vec<Checked>) -> Result<bool, Exit> {
    if let Some(interruption) = driver.signals.before_a_step() {
        driver.handle_interruption(interruption)?;
        return Ok(false);
    }
    failpoint::hit("tool.before_intent");
    let intents = intents(driver.recorder.run(), &batch);
    if !driver.record_unless_told(intents, |tx| tx).await? {
        return Ok(false);
    }
    failpoint::hit("tool.intent_recorded");
    // Recording may have taken longer than the lease lasts.
    if !driver.signals.validity.is_valid() {
        return Err(Exit::HandedOff);
    }
    let mut open: Vec<ToolCall> = batch.iter().map(|checked| checked.call.clone()).collect();
    let mut running: FuturesUnordered<_> = batch
        .into_iter()
        .map(|Checked { call, tool, arguments }| {
            let context = context(driver, &call, &tool);
            async move { (call, invoke(tool, arguments, context).await) }
        })
        .collect();
    while !open.is_empty() {
        let answered = {
            let interrupted = driver.signals.interrupted();
            tokio::select! {
                biased;
                answered = running.next() => Ok(answered),
                interruption = interrupted => Err(interruption),
            }
        };
        match answered {
            Ok(Some((call, outcome))) => {
                failpoint::hit("tool.answered");
                open.retain(|open| open.id != call.id);
                driver.finish_call(&call, outcome);
                if !open.is_empty() {
                    driver.recorder.flush().await?;
                }
            }
            Ok(None) => break,
            Err(interruption) => {
                driver.handle_interruption(interruption)?;
                drop(running);
                for call in open {
                    let why = "The call was stopped with the run. It may have taken effect.";
                    driver.finish_call(&call, ToolOutcome { skipped: false, ..ToolOutcome::skipped(why) });
                }
                return Ok(false);
            }
        }
    }
    failpoint::hit("tool.finished");
    Ok(true)
}

/// What is recorded before a batch is dispatched; nothing of calls that a crash interrupted.
fn intents(run: &Run, batch: &[Checked]) -> Vec<Event> {
    let unbegun = batch.iter().filter(|checked| !run.has_started(&checked.call.id));
    let intent = |Checked { call, tool, .. }: &Checked| Event::ToolStarted {
        step: run.step(),
        call: call.clone(),
        effect: tool.spec().effect,
    };
    unbegun.map(intent).collect()
}

/// What a tool is told of its call: it has the shortest of its own time, the run's for each call, and what
/// the run has left.
fn context(driver: &Driver, call: &ToolCall, tool: &RegisteredTool) -> CallContext {
    let (run, fence) = (driver.recorder.run(), driver.recorder.fence().token);
    let timeout = Duration::from_millis(run.spec().limits.tool_timeout_ms);
    let timeout = tool.spec().timeout.map_or(timeout, |own| own.min(timeout));
    let timeout = timeout.min(driver.signals.deadline.saturating_duration_since(Instant::now()));
    CallContext { run: run.spec().id.clone(), call: call.id.clone(), step: run.step(), timeout, fence }
}
