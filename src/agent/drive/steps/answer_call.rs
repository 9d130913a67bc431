//! Answers a call whose tool needs the run or the store.

use tokio::time::Instant;

use crate::agent::drive::driver::{Driver, Exit};
use crate::agent::own_tool::OwnContext;
use crate::types::{Effect, Event, ToolCall, ToolOutcome};

/// Answers `call`, unless the run is interrupted before.
pub async fn answer_call(driver: &mut Driver, call: ToolCall) -> Result<(), Exit> {
    if let Some(interruption) = driver.signals.before_a_step() {
        return driver.handle_interruption(interruption);
    }
    let tool = driver.own_tools.iter().find(|tool| tool.definition().name == call.name).cloned();
    let run = driver.recorder.run();
    let effect = tool.as_ref().map_or(Effect::Read, |tool| tool.effect());
    let intent = Event::ToolStarted { step: run.step(), call: call.clone(), effect };
    let intent = (run.attempt(&call.id) == 1).then_some(intent);
    if !driver.record_unless_told(intent, |tx| tx).await? {
        return Ok(());
    }
    if !driver.signals.validity.is_valid() {
        return Err(Exit::HandedOff);
    }
    let Some(tool) = tool else {
        let why = format!("There is no tool named {:?} any more.", call.name);
        driver.finish_call(&call, ToolOutcome::skipped(why));
        return Ok(());
    };
    let begun = Instant::now();
    let answered = {
        let context = OwnContext { run: driver.recorder.run(), store: driver.recorder.store().as_ref() };
        tokio::select! {
            biased;
            outcome = tool.answer(&call, context) => Ok(outcome),
            interruption = driver.signals.interrupted() => Err(interruption),
        }
    };
    match answered {
        Ok(outcome) => {
            let latency_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
            driver.finish_call(&call, ToolOutcome { latency_ms, ..outcome });
            Ok(())
        }
        Err(interruption) => {
            driver.handle_interruption(interruption)?;
            let why = "The call was stopped with the run. It may have taken effect.";
            driver.finish_call(&call, ToolOutcome::stopped(why));
            Ok(())
        }
    }
}
