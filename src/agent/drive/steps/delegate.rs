//! Begins a run for a call of `delegate`, and takes in how such runs end.
//!
//! The run is named in the log before it exists, so whoever goes on with this run finds that one. While it is under way, the call is one
//! that is answered later: the run waits for it without a driver, and goes on once it is told that the other one has ended.

use std::time::Duration;

use serde::Deserialize;
use tokio::time::Instant;

use crate::agent::delegating::{Begun, Child, Task};
use crate::agent::drive::child_ended::{child_ended, completed, completed_unknown, late, refused};
use crate::agent::drive::driver::{Driver, Exit};
use crate::agent::drive::pending::accepted;
use crate::agent::drive::steps::conduct::{forked, shared};
use crate::agent::machine::Run;
use crate::failpoint;
use crate::store::{CommitError, Unavailable};
use crate::types::delegate::{Delegated, StartedChild, TaskHistory};
use crate::types::{CallId, Effect, Event, RunId, RunStatus, StopReason, ToolCall, ToolOutcome};

/// What is left of a run's time of which the runs that it begins get so much: the rest is for it to answer in.
const PART_OF_TIME: (u64, u64) = (9, 10);
/// How much longer a run is waited for than it may take, so that it can tell itself that its time is up.
const GRACE: Duration = Duration::from_secs(10);
/// How long the store may take to say whether a run began.
pub(super) const BEGIN_TIMEOUT: Duration = Duration::from_secs(30);
/// How soon it is asked again.
pub(super) const RETRY_EVERY: Duration = Duration::from_millis(250);

/// What a call of `delegate` says.
#[derive(Debug, Deserialize)]
struct Arguments {
    agent: String,
    /// A composite agent says none: what it is asked is the task.
    #[serde(default)]
    task: String,
    #[serde(default)]
    context: Option<String>,
}

impl Arguments {
    fn text(self) -> String {
        match self.context.filter(|context| !context.trim().is_empty()) {
            Some(context) => format!("{}\n\nContext:\n{context}", self.task),
            None => self.task,
        }
    }
}

/// Begins the run that a call asks for, or finds it.
pub(super) async fn delegate(driver: &mut Driver, call: &ToolCall) -> Result<(), Exit> {
    let task = match driver.tools.check_own(call) {
        Ok(()) => serde_json::from_str::<Arguments>(&call.arguments).map_err(|error| error.to_string()),
        Err(why) => Err(why),
    };
    let known = driver.recorder.run().child_of(&call.id).cloned();
    let task = match task {
        Ok(task) => task,
        Err(why) => {
            refuse(driver, call, why);
            return Ok(());
        }
    };
    let begun = Instant::now();
    let started = known.unwrap_or_else(|| child(driver.recorder.run(), call, &task.agent));
    if !record_intent(driver, call, &started).await? {
        return Ok(());
    }
    failpoint::hit("delegate.named");
    if !driver.signals.validity.is_valid() {
        return Err(Exit::HandedOff);
    }
    let timeout_ms = timeout_ms(driver.recorder.run());
    let run = driver.recorder.run();
    let task = match (run.brief(&call.id), run.spec().rules.delegation.history) {
        (Some(brief), _) => shared(driver, brief),
        (None, TaskHistory::Fork) => forked(driver, &task.text()),
        (None, TaskHistory::Fresh) => Task::Alone(task.text()),
    };
    let child = Child { started, task, timeout_ms, kept: driver.recorder.run().kept_for_closing() };
    let begun_run = begin(driver, &child).await?;
    failpoint::hit("delegate.begun");
    match begun_run {
        None => Ok(()),
        Some(Begun::Live) => {
            let now_ms = driver.recorder.store().now_ms();
            let latency_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
            let within = Duration::from_millis(timeout_ms) + GRACE;
            driver.recorder.queue(accepted(driver.recorder.run(), call, latency_ms, now_ms, within));
            Ok(())
        }
        // Its answer is recorded with its end, so that neither is told again.
        Some(Begun::Ended(end)) => {
            let now_ms = driver.recorder.store().now_ms();
            queue(driver, child_ended(driver.recorder.run(), &call.id, &end, now_ms));
            Ok(())
        }
        Some(Begun::Refused(why) | Begun::Later(why)) => {
            let now_ms = driver.recorder.store().now_ms();
            queue(driver, refused(driver.recorder.run(), &child.started, why, now_ms));
            Ok(())
        }
    }
}

fn queue(driver: &mut Driver, events: Vec<Event>) {
    for event in events {
        driver.recorder.queue(event);
    }
}

/// Answers a call that says nothing that can be done.
pub(super) fn refuse(driver: &mut Driver, call: &ToolCall, why: String) {
    let step = driver.recorder.run().step();
    if driver.recorder.run().started(&call.id).is_none() {
        driver.recorder.queue(Event::ToolStarted { step, call: call.clone(), effect: Effect::Read });
    }
    driver.finish_call(call, ToolOutcome::skipped(why));
}

/// The run that a call is to begin.
fn child(run: &Run, call: &ToolCall, agent: &str) -> StartedChild {
    let depth = run.spec().parent.as_ref().map_or(0, |parent| parent.depth) + 1;
    let id = call.id.child().unwrap_or_else(RunId::mint);
    StartedChild { step: run.step(), call_id: call.id.clone(), run: id, agent: agent.to_owned(), depth }
}

/// How long a run may take that begins now.
fn timeout_ms(run: &Run) -> u64 {
    let left = run.left_ms() / PART_OF_TIME.1 * PART_OF_TIME.0;
    run.spec().rules.delegation.timeout_ms.min(left)
}

/// Records that the call begins and which run it begins, unless that is recorded; `false` if a command comes first.
async fn record_intent(driver: &mut Driver, call: &ToolCall, started: &StartedChild) -> Result<bool, Exit> {
    let run = driver.recorder.run();
    let is_new = run.started(&call.id).is_none();
    let is_named = run.child_of(&call.id).is_some();
    let intent = is_new.then(|| Event::ToolStarted { step: run.step(), call: call.clone(), effect: Effect::Read });
    let named = (!is_named).then(|| Event::Delegated(Box::new(Delegated::Started(started.clone()))));
    failpoint::hit("delegate.before_named");
    Ok(driver.record_unless_told(intent.into_iter().chain(named), |tx| tx).await?)
}

/// Begins the run. `None` if this run is interrupted before it is known what came of it: then it is stopped with this one.
async fn begin(driver: &mut Driver, child: &Child) -> Result<Option<Begun>, Exit> {
    let Some(delegating) = driver.generation.delegating.clone() else {
        return Ok(Some(Begun::Refused("Runs begin no others here any more. Go on without it.".to_owned())));
    };
    let spec = driver.recorder.run().spec().clone();
    let until = Instant::now() + BEGIN_TIMEOUT;
    let beginning = async {
        loop {
            let is_over = Instant::now() >= until;
            match delegating.begin(&spec, child).await {
                Ok(Begun::Later(why)) if is_over => return delegating.refuse(&spec, &child.started.run, why).await,
                Err(error) if is_over => return Err(error),
                Ok(Begun::Later(_)) | Err(_) => tokio::time::sleep(RETRY_EVERY).await,
                Ok(begun) => return Ok(begun),
            }
        }
    };
    let begun: Result<Begun, Unavailable> = tokio::select! {
        biased;
        begun = beginning => begun,
        interruption = driver.signals.interrupted() => {
            driver.handle_interruption(interruption)?;
            return Ok(None);
        }
    };
    Ok(Some(begun.map_err(CommitError::from)?))
}

/// Takes in how the runs ended whose time is up. One that goes on is stopped first.
pub(super) async fn give_up(driver: &mut Driver, calls: Vec<CallId>) -> Result<(), Exit> {
    let Some(delegating) = driver.generation.delegating.clone() else { return Ok(()) };
    let spec = driver.recorder.run().spec().clone();
    let (tenant, root) = (&spec.tenant, spec.root());
    for call in calls {
        let Some(child) = driver.recorder.run().child_of(&call).cloned() else { continue };
        let mut end = delegating.end_of(tenant, &child.run).await.map_err(CommitError::from)?;
        if end.is_none() {
            delegating.stop(tenant, root, &child.run).await.map_err(CommitError::from)?;
            end = delegating.end_of(tenant, &child.run).await.map_err(CommitError::from)?;
        }
        let end = end.unwrap_or_else(|| late(&child));
        let now_ms = driver.recorder.store().now_ms();
        queue(driver, child_ended(driver.recorder.run(), &call, &end, now_ms));
    }
    Ok(())
}

/// Stops the runs that this one has begun, since it is about to end. It does not end before they are told.
pub(super) async fn stop_children(driver: &mut Driver) -> Result<(), Exit> {
    let children: Vec<StartedChild> = driver.recorder.run().children().cloned().collect();
    let Some(delegating) = driver.generation.delegating.clone() else { return Ok(()) };
    let spec = driver.recorder.run().spec().clone();
    let (tenant, root) = (&spec.tenant, spec.root());
    failpoint::hit("delegate.before_stop");
    let stopping = children.iter().map(|child| async {
        let mut tries = 0;
        loop {
            match delegating.stop(tenant, root, &child.run).await {
                Ok(()) => return delegating.end_of(tenant, &child.run).await,
                Err(error) if tries >= 8 => return Err(error),
                Err(_) => tokio::time::sleep(RETRY_EVERY * 2_u32.pow(tries)).await,
            }
            tries += 1;
        }
    });
    let ends = futures_util::future::try_join_all(stopping).await.map_err(CommitError::from)?;
    for (child, end) in children.iter().zip(ends) {
        let event = match end {
            Some(end) => completed(child, &end),
            None => completed_unknown(child, RunStatus::Cancelled),
        };
        driver.recorder.queue(event);
    }
    failpoint::hit("delegate.stopped");
    Ok(())
}

/// Counts the calls of the present step among those of all runs of the tree, before any of them is made; `false` if there may be no
/// more, so that the run stops.
pub(in crate::agent::drive) async fn count_calls(driver: &mut Driver) -> Result<bool, Exit> {
    if driver.meter.count_calls(&driver.recorder).await? {
        return Ok(true);
    }
    driver.recorder.queue(Event::stop(StopReason::MaxToolCalls));
    Ok(false)
}
