//! What a tool's answer passes before it is recorded, in one place and one order, whichever tool it is of.
//!
//! What a call came to that was made passes here, a failure too. A call that was refused, skipped or interrupted has a
//! result of the server's own words, which [`Driver::finish_call`] records as it is.

use crate::agent::drive::driver::{Driver, Exit};
use crate::agent::drive::judge::judge_result;
use crate::agent::drive::steps::{ask_guardrails, hooks};
use crate::tools::fit::settle;
use crate::types::conversation::Part;
use crate::types::guard::GuardPoint;
use crate::types::tool::CallEnding;
use crate::types::{ToolCall, ToolOutcome};

/// Most characters of changed arguments that a model is told.
const MOST_TOLD: usize = 1_000;

/// Lets everything look at a call's answer that may change it, and records the answer: what cleans it, hooks after the
/// call, whose words are cleaned as well, and the agent's result in place of a failure.
pub(in crate::agent::drive) async fn settle_result(
    driver: &mut Driver,
    call: &ToolCall,
    mut outcome: ToolOutcome,
) -> Result<(), Exit> {
    // Of a call without an answer there are the server's own words.
    let asks = outcome.ending == CallEnding::Answered && driver.recorder.run().guards().asks(GuardPoint::ToolResult);
    if asks && !driver.recorder.run().has_answered(&call.id) {
        settle(&mut outcome, driver.recorder.run().result_bounds());
        Box::pin(ask_guardrails::store_answer(driver, call, &outcome)).await?;
    }
    if !driver.recorder.run().spec().hooks.is_empty() {
        settle(&mut outcome, driver.recorder.run().result_bounds());
        // Boxed, as most runs have no hooks.
        outcome = Box::pin(hooks::ask_after(driver, call, outcome)).await?;
    }
    tell_of_change(driver, call, &mut outcome);
    settle(&mut outcome, driver.recorder.run().result_bounds());
    // What ends the run is no failure that the agent has another result for.
    let trips = judge_result(&mut driver.recorder, call, &mut outcome)
        || asks && Box::pin(ask_guardrails::about_result(driver, call, &mut outcome)).await?;
    if !trips {
        // Last of all, so that all before sees the failure itself.
        outcome = driver.recorder.run().spec().rules.tool_errors.settle(&call.name, outcome);
        if outcome.failure.is_some() {
            tell_of_change(driver, call, &mut outcome);
        }
    }
    driver.finish_call(call, outcome);
    Ok(())
}

/// Tells the model if the call was made with other arguments than it wrote.
pub(in crate::agent::drive) fn tell_of_change(driver: &Driver, call: &ToolCall, outcome: &mut ToolOutcome) {
    if !driver.recorder.run().is_changed(&call.id) {
        return;
    }
    if outcome.parts.is_empty()
        && let Some(json) = &outcome.structured
    {
        outcome.parts.push(Part::text(json.get()));
    }
    let arguments: String = call.arguments.chars().take(MOST_TOLD).collect();
    let told = format!("The arguments of this call were changed before it was made, to {arguments}");
    outcome.parts.insert(0, Part::text(told));
}
