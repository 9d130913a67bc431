//! Asks hooks what is to become of a run, a call or a call's result, and does what they say.
//!
//! What a hook said is queued before anything follows from it, and recorded with the next event that waits for the store: before
//! a call is made that a hook had nothing against, and together with the result of one that a hook refused. So a run that is
//! resumed goes on with what was said, or asks again under the same id if nothing came of it.

use std::time::Duration;

use tokio::time::Instant;

use crate::agent::drive::driver::{Driver, Exit};
use crate::agent::drive::signals::Interruption;
use crate::agent::drive::steps::outcome::withheld;
use crate::failpoint;
use crate::hooks::delivery::{About, message_id};
use crate::hooks::{self, Call, CallAnswer, HookFailure, Message, What, Whose};
use crate::tools::fit::settle;
use crate::types::conversation::Part;
use crate::types::guard::ResultBounds;
use crate::types::hook::{HookDecision, HookPoint, HookRan, HookReply, PinnedHook};
use crate::types::tool::CallEnding;
use crate::types::{CallId, Effect, ErrorKind, Event, RunError, StopReason, ToolCall, ToolOutcome};

/// What hooks say of a call before it is made.
#[derive(Debug)]
pub(super) enum Consulted {
    /// Nothing stands against it.
    Passed,
    /// It needs an approval, for this reason.
    Asks(String),
    /// It is not made, and this is its result.
    Answered(ToolOutcome),
    /// The run was interrupted before all were asked.
    Interrupted,
}

/// Asks the hooks that stand at the run's start. One that refuses ends the run before its first model call.
pub async fn ask_at_start(driver: &mut Driver) -> Result<(), Exit> {
    for hook in asked(driver, HookPoint::RunStart, None) {
        if driver.recorder.run().hooks_at_start().iter().any(|ran| ran.hook == hook.name) {
            continue;
        }
        let reply = match ask(driver, &hook, HookPoint::RunStart, What::Start, None).await {
            Ok((reply, _)) => reply,
            Err(interruption) => return driver.handle_interruption(interruption),
        };
        if reply.decision == HookDecision::Deny {
            let why = why(&hook, &reply);
            let error = RunError::new(ErrorKind::HookDenied, format!("The run was refused: {why}"));
            driver.recorder.queue(Event::StartHooked);
            driver.recorder.queue(Event::StopRequested {
                reason: StopReason::Cancelled,
                error: Some(error),
                short: None,
            });
            return Ok(());
        }
    }
    driver.recorder.queue(Event::StartHooked);
    Ok(())
}

/// Asks the hooks that stand before a call, each about the arguments that the one before left.
pub(super) async fn ask_before(driver: &mut Driver, call: &mut ToolCall) -> Result<Consulted, Exit> {
    let mut consulted = Consulted::Passed;
    for hook in asked(driver, HookPoint::BeforeTool, Some(&call.name)) {
        let known =
            driver.recorder.run().hooks_of(&call.id).iter().find(|ran| is_of(ran, &hook, HookPoint::BeforeTool));
        let reply = if let Some(ran) = known {
            ran.reply.clone()
        } else {
            let about = call.clone();
            let what = What::Call(Call::from(&about));
            let reply = match ask(driver, &hook, HookPoint::BeforeTool, what, Some(&about.id)).await {
                Ok((reply, _)) => reply,
                Err(interruption) => {
                    return driver.handle_interruption(interruption).map(|()| Consulted::Interrupted);
                }
            };
            // The arguments that a hook set whose answer is recorded are the call's already.
            if let Some(arguments) = &reply.arguments {
                call.arguments.clone_from(arguments);
            }
            reply
        };
        match reply.decision {
            // A hook that allows the call loosens nothing that another hook or the policy says.
            HookDecision::Pass | HookDecision::Allow => {}
            HookDecision::Ask => consulted = Consulted::Asks(why(&hook, &reply)),
            HookDecision::Deny => {
                let why = format!("The call was not made: {}", why(&hook, &reply));
                return Ok(Consulted::Answered(ToolOutcome::skipped(why)));
            }
            HookDecision::Answer => {
                return Ok(Consulted::Answered(answer(&hook, &reply, driver.recorder.run().result_bounds())));
            }
        }
    }
    Ok(consulted)
}

/// What a call's answer is once the hooks after it were asked, and those that stand where a call failed. If the run is to
/// stop meanwhile, what holds is what holds where a hook fails.
pub(super) async fn ask_after(
    driver: &mut Driver,
    call: &ToolCall,
    mut outcome: ToolOutcome,
) -> Result<ToolOutcome, Exit> {
    if outcome.ending == CallEnding::Skipped {
        return Ok(outcome);
    }
    let after = asked(driver, HookPoint::AfterTool, Some(&call.name));
    let on_error = asked(driver, HookPoint::OnError, Some(&call.name));
    if !after.is_empty() || (outcome.is_error && !on_error.is_empty()) {
        store_answer(driver, call, &outcome).await?;
    }
    for hook in after {
        outcome = ask_about(driver, &hook, HookPoint::AfterTool, call, outcome).await?;
    }
    if outcome.is_error {
        for hook in on_error {
            outcome = ask_about(driver, &hook, HookPoint::OnError, call, outcome).await?;
        }
    }
    let said = driver.recorder.run().hooks_of(&call.id).iter().filter(|ran| ran.point == HookPoint::BeforeTool);
    let contexts: Vec<_> = said.filter_map(|ran| Some((ran.hook.clone(), ran.reply.context.clone()?))).collect();
    for (hook, context) in contexts {
        add_text(&mut outcome, &hook, &context);
    }
    Ok(outcome)
}

/// Stores what a tool with side effects answered, so that a crash while hooks are asked does not make its outcome unknown.
async fn store_answer(driver: &mut Driver, call: &ToolCall, outcome: &ToolOutcome) -> Result<(), Exit> {
    let is_write = driver.recorder.run().started(&call.id) == Some(Effect::Write);
    let is_stored = driver.recorder.run().has_answered(&call.id);
    if is_write && !is_stored && outcome.ending == CallEnding::Answered {
        let answered = Event::ToolAnswered { call_id: call.id.clone(), outcome: Box::new(outcome.clone()) };
        driver.recorder.record(answered).await?;
    }
    Ok(())
}

/// What a call's answer is once this hook was asked about it. Where the hook gave no answer and its operator does not go on then,
/// the result is withheld: what the hook would have hidden of it is not known.
async fn ask_about(
    driver: &mut Driver,
    hook: &PinnedHook,
    point: HookPoint,
    call: &ToolCall,
    mut outcome: ToolOutcome,
) -> Result<ToolOutcome, Exit> {
    let known = driver.recorder.run().hooks_of(&call.id).iter().find(|ran| is_of(ran, hook, point));
    let (reply, failed) = if let Some(ran) = known {
        (ran.reply.clone(), ran.failed)
    } else {
        let what = What::Answer(Call::from(call), CallAnswer(&outcome));
        match ask(driver, hook, point, what, Some(&call.id)).await {
            Ok(answered) => answered,
            // What follows notices the same interruption, and records it.
            Err(Interruption::Stop(_)) => (hooks::failed(hook), true),
            Err(Interruption::Leave) => return Err(Exit::HandedOff),
        }
    };
    if let Some(result) = &reply.result {
        outcome.parts = vec![Part::text(result)];
        outcome.structured = None;
        // What a hook says does not make known whether a call took effect.
        outcome.is_error = reply.is_error || outcome.ending == CallEnding::Lost;
    }
    if reply.decision == HookDecision::Deny && failed {
        outcome = withheld(outcome, &why(hook, &reply));
    } else if reply.decision == HookDecision::Deny {
        outcome.is_error = true;
        add_text(&mut outcome, &hook.name, &why(hook, &reply));
    }
    if let Some(context) = &reply.context {
        add_text(&mut outcome, &hook.name, context);
    }
    Ok(outcome)
}

/// The hooks at this point that the run waits for.
fn asked(driver: &Driver, point: HookPoint, tool: Option<&str>) -> Vec<PinnedHook> {
    let spec = driver.recorder.run().spec();
    spec.hooks_at(point, tool).filter(|hook| hook.is_asked).cloned().collect()
}

fn is_of(ran: &HookRan, hook: &PinnedHook, point: HookPoint) -> bool {
    ran.hook == hook.name && ran.point == point
}

/// Asks one hook, unless the run is interrupted before, and records what it said with the next event that waits for the store.
/// Returns what it said, and whether it failed.
async fn ask(
    driver: &mut Driver,
    hook: &PinnedHook,
    point: HookPoint,
    what: What<'_>,
    call: Option<&CallId>,
) -> Result<(HookReply, bool), Interruption> {
    failpoint::hit("hook.before_ask");
    let begun = Instant::now();
    let Driver { recorder, signals, generation, .. } = driver;
    let (spec, step) = (recorder.run().spec().clone(), recorder.run().step());
    let about = call.map_or(About::Start, |call| About::Call(call, recorder.run().dispatched_before(call)));
    let id = message_id(&spec.id, &hook.name, point, about, &what.digested());
    let (whose, at_ms) = (Whose::from(&*spec), recorder.now_ms());
    let message = Message { hook: &hook.name, point, whose, at_ms, step, seq: None, what };
    let asking = async {
        match generation.hooks.get(&hook.name) {
            Some(configured) => configured.ask(&id, &message).await,
            None => Err(HookFailure::missing()),
        }
    };
    let answered = tokio::select! {
        biased;
        answered = asking => answered,
        interruption = signals.interrupted() => return Err(interruption),
    };
    failpoint::hit("hook.answered");
    let (reply, failed) = match answered {
        Ok(reply) => (reply, false),
        Err(failure) => {
            let (run, name, goes_on) = (&spec.id, &hook.name, hook.fails_open);
            tracing::warn!(%run, hook = %name, point = point.as_str(), goes_on, %failure, "a hook failed");
            (hooks::failed(hook), true)
        }
    };
    let ran = HookRan {
        step,
        hook: hook.name.clone(),
        point,
        call_id: call.cloned(),
        reply: reply.clone(),
        failed,
        latency_ms: millis(begun.elapsed()),
    };
    driver.recorder.queue(Event::HookRan(Box::new(ran)));
    Ok((reply, failed))
}

/// Why a hook decided so, for the model and the caller.
fn why(hook: &PinnedHook, reply: &HookReply) -> String {
    reply.reason.clone().unwrap_or_else(|| format!("The hook `{}` does not allow it.", hook.name))
}

/// The result that a hook gives in place of the tool.
fn answer(hook: &PinnedHook, reply: &HookReply, bounds: ResultBounds) -> ToolOutcome {
    let text = reply.result.clone().or_else(|| reply.reason.clone());
    let text = text.unwrap_or_else(|| format!("The hook `{}` skipped the call. Go on without its result.", hook.name));
    let (parts, ending) = (vec![Part::text(text)], CallEnding::Skipped);
    let mut outcome = ToolOutcome { parts, is_error: reply.is_error, ending, ..ToolOutcome::default() };
    settle(&mut outcome, bounds);
    outcome
}

/// Adds what a hook says to what the model is told.
fn add_text(outcome: &mut ToolOutcome, hook: &str, text: &str) {
    if let Some(json) = outcome.structured.as_ref().filter(|_| outcome.parts.is_empty()) {
        outcome.parts.push(Part::text(json.get()));
    }
    outcome.parts.push(Part::text(format!("[hook {hook}] {text}")));
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
