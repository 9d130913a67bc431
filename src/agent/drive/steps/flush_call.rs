//! Makes a call by which a model uses its memory before messages are replaced. What looks at other calls looks at these too; where an
//! approval would be needed, the call is not made.

use crate::agent::drive::driver::{Driver, Exit};
use crate::agent::drive::judge::judge_result;
use crate::agent::drive::steps::admit::judge_beside;
use crate::agent::drive::steps::answer_call::answer;
use crate::agent::drive::steps::hooks;
use crate::failpoint;
use crate::tools::fit::settle;
use crate::types::context::FlushCalled;
use crate::types::memory::{MEMORY_TOOLS, MEMORY_WRITE};
use crate::types::{ToolCall, ToolOutcome};

/// Makes the call; `None` if the run is to stop before.
pub(super) async fn make(driver: &mut Driver, mut call: ToolCall) -> Result<Option<FlushCalled>, Exit> {
    let Some(outcome) = outcome(driver, &mut call).await? else { return Ok(None) };
    Ok(Some(FlushCalled {
        text: outcome.text().into_owned(),
        is_error: outcome.has_failed(),
        wrote: call.name == MEMORY_WRITE && !outcome.has_failed(),
        latency_ms: outcome.latency_ms,
        call_id: call.id,
    }))
}

async fn outcome(driver: &mut Driver, call: &mut ToolCall) -> Result<Option<ToolOutcome>, Exit> {
    let is_offered = MEMORY_TOOLS.contains(&call.name.as_str()) && driver.tools.has(&call.name);
    let tool = driver.generation.own_tool(&call.name).filter(|_| is_offered).cloned();
    let Some(tool) = tool else {
        return Ok(Some(ToolOutcome::skipped(format!("There is no tool named {:?} now.", call.name))));
    };
    match judge_beside(driver, call).await? {
        None => return Ok(None),
        Some(Err(refused)) => return Ok(Some(*refused)),
        Some(Ok(())) => {}
    }
    if let Err(why) = driver.tools.check_own(call) {
        return Ok(Some(ToolOutcome::skipped(why)));
    }
    if !driver.signals.validity.is_valid() {
        return Err(Exit::HandedOff);
    }
    let mut outcome = match answer(driver, &*tool, call).await {
        Ok(outcome) => outcome,
        Err(interruption) => {
            driver.handle_interruption(interruption)?;
            return Ok(None);
        }
    };
    failpoint::hit("flush.written");
    settle(&mut outcome, driver.recorder.run().result_bounds());
    if !driver.recorder.run().spec().hooks.is_empty() {
        outcome = Box::pin(hooks::ask_after(driver, call, outcome)).await?;
        settle(&mut outcome, driver.recorder.run().result_bounds());
    }
    judge_result(&mut driver.recorder, call, &mut outcome);
    Ok(Some(outcome))
}
