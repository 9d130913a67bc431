//! Runs a turn's tool calls, in the model's order.
//!
//! A call with side effects is a barrier: it is made when all calls before it have ended, and the calls after it wait
//! until it has ended. Calls without side effects run at the same time between two barriers.

use crate::agent::drive::driver::{Driver, Exit};
use crate::agent::drive::steps::admit::{Admitted, admit};
use crate::agent::drive::steps::call_tool::Checked;
use crate::agent::drive::steps::dispatch::dispatch;
use crate::types::{Effect, ToolCall};

/// Most calls that run at once.
const MAX_PARALLEL: usize = 8;

/// Answers `calls`, or as many as an interruption leaves time for.
pub async fn run_tools(driver: &mut Driver, calls: Vec<ToolCall>) -> Result<(), Exit> {
    let mut checked: Vec<Checked> = Vec::with_capacity(calls.len());
    for call in calls {
        if let Admitted::Run(call) = admit(driver, call) {
            checked.push(call);
        }
    }
    let parallel = driver.recorder.run().spec().options.parallel_tool_calls;
    for batch in batches(checked, |checked| parallel && checked.effect == Effect::Read) {
        // A call before may have ended the run.
        if driver.recorder.run().is_stopping() || !dispatch(driver, batch).await? {
            break;
        }
    }
    Ok(())
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
