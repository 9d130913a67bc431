//! Answers a call whose tool needs the run or the store.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, timeout};

use crate::agent::context::find_tools;
use crate::agent::drive::driver::{Driver, Exit};
use crate::agent::drive::signals::Interruption;
use crate::agent::drive::steps::admit::{Admitted, admit_own};
use crate::agent::drive::steps::delegate::delegate;
use crate::agent::drive::steps::hand_off::hand_off;
use crate::agent::drive::steps::outcome::{interrupted, settled, stopped};
use crate::agent::drive::steps::settle_result::settle_result;
use crate::agent::own_tool::{OwnContext, OwnTool};
use crate::types::delegate::DELEGATE;
use crate::types::handoff::HANDOFF;
use crate::types::question::ASK_USER;
use crate::types::{Effect, Event, ToolCall, ToolOutcome};

/// Answers `call`, unless the run is interrupted before.
pub async fn answer_call(driver: &mut Driver, call: ToolCall) -> Result<(), Exit> {
    if let Some(interruption) = driver.signals.before_a_step() {
        return driver.handle_interruption(interruption);
    }
    let Admitted::Run(call) = admit_own(driver, call) else { return Ok(()) };
    if driver.recorder.run().spec().search.is_some() && call.name == find_tools::NAME {
        return find(driver, &call).await;
    }
    if call.name == DELEGATE {
        return Box::pin(delegate(driver, &call)).await;
    }
    if call.name == HANDOFF {
        return Box::pin(hand_off(driver, &call)).await;
    }
    if call.name == ASK_USER && driver.generation.own_tool(ASK_USER).is_none() {
        ask_nothing(driver, &call);
        return Ok(());
    }
    let tool = driver.generation.own_tool(&call.name).cloned();
    let run = driver.recorder.run();
    let started = run.started(&call.id);
    let effect = tool.as_ref().map_or(Effect::Read, |tool| tool.effect()).max(started.unwrap_or(Effect::Read));
    let intent = Event::ToolStarted { step: run.step(), call: call.clone(), effect };
    if !driver.record_unless_told(started.is_none().then_some(intent), |tx| tx).await? {
        return Ok(());
    }
    if !driver.signals.validity.is_valid() {
        return Err(Exit::HandedOff);
    }
    let begun = Instant::now();
    let outcome = match (tool, driver.tools.check_own(&call)) {
        (Some(tool), Ok(())) => match answer(driver, &*tool, &call).await {
            Ok(outcome) => return settle_result(driver, &call, settled(outcome, effect)).await,
            Err(interruption) => {
                driver.handle_interruption(interruption)?;
                stopped(effect, begun.elapsed())
            }
        },
        (Some(_), Err(why)) => ToolOutcome::skipped(why),
        (None, _) => {
            let why = format!("The tool `{}` is no longer available. Go on without it.", call.name);
            if started.is_some() { interrupted(effect, &format!(" {why}")) } else { ToolOutcome::skipped(why) }
        }
    };
    driver.finish_call(&call, outcome);
    Ok(())
}

/// Answers a call that finds tools. It only computes, so the call and its answer are stored with the next event.
async fn find(driver: &mut Driver, call: &ToolCall) -> Result<(), Exit> {
    let step = driver.recorder.run().step();
    if driver.recorder.run().started(&call.id).is_none() {
        driver.recorder.queue(Event::ToolStarted { step, call: call.clone(), effect: Effect::Read });
    }
    match driver.tools.check_own(call) {
        Ok(()) => {
            let found = find_tools::answer(call, driver.tools.servers(), driver.recorder.run().room_for_tools());
            settle_result(driver, call, found).await
        }
        Err(why) => {
            driver.finish_call(call, ToolOutcome::skipped(why));
            Ok(())
        }
    }
}

/// Answers a call that is to ask the user, and has no question. One that has waits for the client.
fn ask_nothing(driver: &mut Driver, call: &ToolCall) {
    let step = driver.recorder.run().step();
    if driver.recorder.run().started(&call.id).is_none() {
        driver.recorder.queue(Event::ToolStarted { step, call: call.clone(), effect: Effect::Read });
    }
    let why = driver.tools.check_own(call).err();
    let why = why.unwrap_or_else(|| format!("The call of `{ASK_USER}` has no question."));
    driver.finish_call(call, ToolOutcome::skipped(why));
}

/// What the tool answers within the time that a call may take. Whatever happens in it becomes an outcome, as it does
/// in a tool that knows nothing of runs.
pub(super) async fn answer(
    driver: &mut Driver,
    tool: &dyn OwnTool,
    call: &ToolCall,
) -> Result<ToolOutcome, Interruption> {
    let begun = Instant::now();
    let limit = Duration::from_millis(driver.recorder.run().spec().limits.tool_timeout_ms);
    let context = OwnContext { run: driver.recorder.run(), store: driver.recorder.store().as_ref() };
    let answering = timeout(limit, AssertUnwindSafe(tool.answer(call, context)).catch_unwind());
    let answered = tokio::select! {
        biased;
        answered = answering => answered,
        interruption = driver.signals.interrupted() => return Err(interruption),
    };
    let mut outcome = match answered {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => {
            // The panic's words stay out of the answer, as out of the log: they may quote arguments.
            tracing::error!(tool = call.name, "a tool of the run panicked");
            ToolOutcome::lost(format!("The tool `{}` crashed.", call.name))
        }
        Err(_) => {
            ToolOutcome::lost(format!("The tool `{}` did not answer within {} ms.", call.name, limit.as_millis()))
        }
    };
    outcome.latency_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(outcome)
}
