//! Runs a turn's tool calls, in the model's order.
//!
//! A call with side effects is a barrier: it is made when all calls before it have ended, and the calls after it wait
//! until it has ended. Calls without side effects run at the same time between two barriers.

use crate::agent::context::toolbox::CheckedCall;
use crate::agent::drive::driver::{Driver, Exit};
use crate::agent::drive::steps::dispatch::{Checked, dispatch};
use crate::agent::drive::steps::outcome::interrupted;
use crate::types::{Effect, Event, ToolCall, ToolOutcome};

/// Most calls that run at once.
const MAX_PARALLEL: usize = 8;

/// Answers `calls`, or as many as an interruption leaves time for.
pub async fn run_tools(driver: &mut Driver, calls: Vec<ToolCall>) -> Result<(), Exit> {
    let checked: Vec<Checked> = calls.into_iter().filter_map(|call| check(driver, call)).collect();
    let parallel = driver.recorder.run().spec().options.parallel_tool_calls;
    for batch in batches(checked, |checked| parallel && checked.effect == Effect::Read) {
        // A call before may have ended the run.
        if driver.recorder.run().is_stopping() || !dispatch(driver, batch).await? {
            break;
        }
    }
    Ok(())
}

/// The call, if it can be made; else it is answered.
fn check(driver: &mut Driver, call: ToolCall) -> Option<Checked> {
    let run = driver.recorder.run();
    let (step, attempt, started) = (run.step(), run.attempt(&call.id), run.started(&call.id));
    let outcome = match (driver.tools.check(&call), started) {
        // The tool's calls could be repeated when this call began, and by the present configuration they cannot.
        (Ok(CheckedCall { effect: Effect::Write, .. }), Some(_)) => interrupted(Effect::Write, ""),
        (Ok(CheckedCall { tool, effect, arguments }), _) => {
            return Some(Checked { call, tool, effect, arguments, attempt, has_begun: started.is_some() });
        }
        (Err(why), Some(began_as)) => interrupted(began_as, &format!(" {why}")),
        (Err(why), None) => {
            driver.recorder.queue(Event::ToolStarted { step, call: call.clone(), effect: Effect::Read });
            // A call that the caller wants to be repeated was made before.
            if attempt > 1 { interrupted(Effect::Write, &format!(" {why}")) } else { ToolOutcome::skipped(why) }
        }
    };
    driver.finish_call(&call, outcome);
    None
}

/// The calls in their order, in batches that run one after the other: those that `may_share` run beside their
/// neighbours.
fn batches<T>(calls: Vec<T>, may_share: impl Fn(&T) -> bool) -> Vec<Vec<T>> {
    let mut batches: Vec<Vec<T>> = Vec::new();
    for call in calls {
        match batches.last_mut() {
            Some(batch) if may_share(&call) && batch.len() < MAX_PARALLEL && batch.iter().all(&may_share) => {
                batch.push(call);
            }
            _ => batches.push(vec![call]),
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batched(calls: &str) -> Vec<String> {
        let batches = batches(calls.chars().collect(), |call| *call == 'r');
        batches.into_iter().map(|batch| batch.into_iter().collect()).collect()
    }

    #[test]
    fn readers_share_a_batch_up_to_the_next_writer() {
        assert_eq!(batched("rrwrrwwr"), ["rr", "w", "rr", "w", "w", "r"]);
        assert_eq!(batched(""), [""; 0]);
        assert_eq!(batched(&"r".repeat(MAX_PARALLEL + 1)), ["r".repeat(MAX_PARALLEL), "r".to_owned()]);
    }
}
