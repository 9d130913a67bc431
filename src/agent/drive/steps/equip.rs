//! Equips a driver for the agent that goes on with its run: with the agent's model, tools and hooks.

use std::time::Duration;

use tokio::time::Instant;

use crate::agent::drive::driver::{Driver, Exit};
use crate::agent::drive::handing_over::Equipment;
use crate::agent::ledger::commits;
use crate::agent::ledger::head::Head;
use crate::agent::ownership::retry::RetryWhileLeased;
use crate::failpoint;
use crate::store::CommitError;
use crate::types::run::OnLimit;
use crate::types::{ErrorKind, Event, RunError, StopReason};

/// Why a run fails that cannot be offered what it was handed over with.
const LOST_TOOLS: &str = "The definitions of the run's tools are no longer there.";

/// Equips the driver for the agent that the run is now. What happened before is stored first, with what the agent before it tells its
/// hooks, and the run's head says as which agent it goes on.
pub async fn equip(driver: &mut Driver) -> Result<(), Exit> {
    failpoint::hit("handoff.before_taken_over");
    let spec = driver.recorder.run().spec().clone();
    let head = Head { leg: driver.recorder.run().leg(), bytes: driver.counted, ..Head::new(&spec) };
    driver.recorder.record_with(None, |tx| commits::hand_over(tx, &head)).await?;
    failpoint::hit("handoff.passed_on");
    let (handing_over, generation) = (driver.handing_over.clone(), driver.generation.clone());
    let read = || handing_over.0.equip(&spec, &generation);
    let equipment = RetryWhileLeased::new(driver.recorder.validity()).read(read).await.map_err(CommitError::from)?;
    let Some(Equipment { tools, tree, notices }) = equipment else {
        let error = Some(RunError::new(ErrorKind::StoreLostState, LOST_TOOLS));
        let reason = StopReason::StoreLostState;
        driver.recorder.queue(Event::StopRequested { reason, error, short: None });
        return Ok(());
    };
    // The servers that a request named are those of the agent that it named.
    driver.tools.let_go();
    driver.tools = tools;
    driver.meter.share(tree);
    driver.recorder.tell(notices);
    driver.take_model();
    driver.shown = None;
    bound_time(driver);
    driver.count_memory();
    failpoint::hit("handoff.taken_over");
    Ok(())
}

/// Ends the run as early as the agent says, unless its time is up already and it is about to close.
fn bound_time(driver: &mut Driver) {
    let (run, closing_time) = (driver.recorder.run(), driver.signals.closing_time);
    if run.spec().on_limit == OnLimit::Synthesize && closing_time.is_zero() {
        return;
    }
    let deadline = Instant::now() + Duration::from_millis(run.left_ms()).saturating_sub(closing_time);
    driver.signals.deadline = driver.signals.deadline.min(deadline);
}
