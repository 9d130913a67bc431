//! Waits for services that answer calls later.
//!
//! What they answer arrives in the run's inbox. So a run cannot begin to wait, and a call cannot be given up, while an answer
//! is there that the run has not read.

use crate::agent::drive::driver::{Driver, Exit};
use crate::agent::drive::pending::given_up;
use crate::agent::drive::steps::delegate::give_up;
use crate::agent::drive::steps::finish::finish;
use crate::failpoint;
use crate::types::StopReason;
use crate::types::pending::PendingCall;

/// Lets the run wait without a driver, or gives up the calls whose time is up.
pub(in crate::agent::drive) async fn await_services(driver: &mut Driver) -> Result<(), Exit> {
    let now_ms = driver.recorder.store().now_ms();
    let run = driver.recorder.run();
    let is_late = |pending: &&PendingCall| pending.given_up_ms() <= now_ms && run.child_of(&pending.call_id).is_some();
    let late: Vec<_> = run.pending_calls().filter(is_late).map(|pending| pending.call_id.clone()).collect();
    if !late.is_empty() {
        return Box::pin(give_up(driver, late)).await;
    }
    let late = given_up(driver.recorder.run(), driver.recorder.store().now_ms());
    if late.is_empty() {
        return finish(driver, StopReason::ToolPending).await;
    }
    failpoint::hit("pending.before_give_up");
    driver.record_unless_told(late, |tx| tx).await?;
    Ok(())
}
