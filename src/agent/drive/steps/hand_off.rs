//! Hands the run to another agent, which a call of `handoff` names.
//!
//! What the run is to be is recorded together with the answer of the call, before anything follows from it. So a replica that goes on
//! with the run after a crash goes on as the same agent, with the same model, instructions and tools, or makes the call once more.

use serde::Deserialize;
use tokio::time::Instant;

use crate::agent::drive::driver::{Driver, Exit};
use crate::agent::drive::handing_over::{Successor, Wanted};
use crate::agent::drive::steps::delegate::{BEGIN_TIMEOUT, RETRY_EVERY, refuse};
use crate::agent::drive::steps::settle_result::settle_result;
use crate::agent::machine::Run;
use crate::failpoint;
use crate::store::CommitError;
use crate::types::conversation::Part;
use crate::types::succession::Handoff;
use crate::types::{Effect, Event, ToolCall, ToolOutcome};

/// What a call of `handoff` says.
#[derive(Debug, Deserialize)]
struct Arguments {
    agent: String,
    reason: String,
    #[serde(default)]
    message: Option<String>,
}

/// Has another agent go on with the run, once the other calls of the turn are answered.
pub(super) async fn hand_off(driver: &mut Driver, call: &ToolCall) -> Result<(), Exit> {
    let read = driver
        .tools
        .check_own(call)
        .and_then(|()| serde_json::from_str::<Arguments>(&call.arguments).map_err(|error| error.to_string()))
        .and_then(|asked| may_hand_off(driver.recorder.run(), call).map(|()| asked));
    let asked = match read {
        Ok(asked) => asked,
        Err(why) => {
            refuse(driver, call, why);
            return Ok(());
        }
    };
    failpoint::hit("handoff.called");
    if driver.recorder.run().pending_handoff().is_none() {
        let successor = match specify(driver, &asked.agent).await? {
            None => return Ok(()),
            Some(Ok(successor)) => successor,
            Some(Err(why)) => {
                refuse(driver, call, format!("The agent {:?} cannot go on with this run: {why}.", asked.agent));
                return Ok(());
            }
        };
        failpoint::hit("handoff.specified");
        record(driver, call, &asked, *successor);
    }
    let outcome = outcome(driver.recorder.run(), &asked);
    settle_result(driver, call, outcome).await?;
    driver.recorder.flush().await?;
    failpoint::hit("handoff.recorded");
    Ok(())
}

/// Whether the run may be handed off by this call: not by a second one of a turn, and not without end.
fn may_hand_off(run: &Run, call: &ToolCall) -> Result<(), String> {
    if let Some(pending) = run.pending_handoff().filter(|pending| pending.call_id != call.id) {
        return Err(format!("The agent {:?} goes on with this run already, by another call of this turn.", pending.to));
    }
    let spec = run.spec();
    let times = spec.handoff.before;
    if times >= spec.rules.handoff.most {
        return Err(format!("This run was handed off {times} times, which is as often as it may be. Go on yourself."));
    }
    Ok(())
}

/// What the run is as this agent, or why it cannot be. `None` if the run is interrupted before that is known.
async fn specify(driver: &mut Driver, to: &str) -> Result<Option<Result<Box<Successor>, String>>, Exit> {
    let offered = driver.tools.offer(driver.recorder.run().found_tools()).weight();
    let (handing_over, until) = (driver.handing_over.clone(), Instant::now() + BEGIN_TIMEOUT);
    let (run, history, generation) = (driver.recorder.run(), &driver.history, &*driver.generation);
    let specifying = async {
        loop {
            match handing_over.0.specify(Wanted { run, history, generation, offered, to }).await {
                Err(error) if Instant::now() >= until => return Err(error),
                Err(_) => tokio::time::sleep(RETRY_EVERY).await,
                Ok(specified) => return Ok(specified),
            }
        }
    };
    let specified = tokio::select! {
        biased;
        specified = specifying => specified,
        interruption = driver.signals.interrupted() => {
            driver.handle_interruption(interruption)?;
            return Ok(None);
        }
    };
    Ok(Some(specified.map_err(CommitError::from)?))
}

/// Queues that the call begins, unless that is recorded, and what it comes to.
fn record(driver: &mut Driver, call: &ToolCall, asked: &Arguments, successor: Successor) {
    let run = driver.recorder.run();
    let (step, from, id) = (run.step(), run.spec().agent.clone(), run.spec().id.clone());
    if run.started(&call.id).is_none() {
        driver.recorder.queue(Event::ToolStarted { step, call: call.clone(), effect: Effect::Read });
    }
    let Successor { spec, heavier, shown_from } = successor;
    let (to, version) = (spec.agent.clone(), spec.agent_version);
    tracing::info!(run = %id, from, to, version, "another agent goes on with the run");
    let handoff = Handoff {
        step,
        call_id: call.id.clone(),
        from,
        to,
        reason: asked.reason.clone(),
        spec: spec.without_kept().into(),
        heavier,
        shown_from,
    };
    driver.recorder.queue(Event::Handoff(Box::new(handoff)));
}

/// What the next agent is told by the answer of the call.
fn outcome(run: &Run, asked: &Arguments) -> ToolOutcome {
    let (from, Arguments { agent, reason, message }) = (&run.spec().agent, asked);
    let message = message.as_deref().filter(|message| !message.trim().is_empty());
    let message = message.map(|message| format!("\n\nMessage from the agent {from:?}:\n{message}")).unwrap_or_default();
    let text = format!(
        "The agent {agent:?} goes on with this conversation from here, in place of the agent {from:?}. Reason: {reason}{message}"
    );
    ToolOutcome { parts: vec![Part::text(&text)], bytes: text.len() as u64, ..ToolOutcome::default() }
}
