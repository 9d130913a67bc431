//! What a call passes before it is made, in one place and one order, whichever tool it is of.
//!
//! All calls of a turn are judged before any of them is made: each thing that may keep a call from being made, or change
//! what is made of it, is a named step of [`judge`]. What comes of it is recorded, so that a run that is resumed judges no
//! call twice. Then each call is checked against the tools of the run. What its answer passes is the subject of
//! [`settle_result`](super::settle_result).

use crate::agent::context::find_tools;
use crate::agent::context::toolbox::CheckedCall;
use crate::agent::drive::driver::{Driver, Exit};
use crate::agent::drive::judge::{NOT_MADE, judge_arguments};
use crate::agent::drive::steps::ask_guardrails::{self, Ruling};
use crate::agent::drive::steps::call_tool::Checked;
use crate::agent::drive::steps::hooks::{self, Consulted};
use crate::agent::drive::steps::outcome::{interrupted, not_made_again};
use crate::agent::drive::steps::settle_result::tell_of_change;
use crate::failpoint;
use crate::types::approval::{ApprovalMode, ApprovalRequest};
use crate::types::delegate::DELEGATE;
use crate::types::guard::GuardPoint;
use crate::types::handoff::HANDOFF;
use crate::types::hook::HookPoint;
use crate::types::policy::{Judged, Policy, Verdict};
use crate::types::question::ASK_USER;
use crate::types::tool::CallEnding;
use crate::types::{Effect, Event, ToolCall, ToolOutcome};

/// What becomes of a call that is to be made now.
pub(super) enum Admitted<T> {
    /// It is made.
    Run(T),
    /// It is not made: it has its result.
    Answered,
}

/// What a step of [`judge`] says that ends it.
enum Judgement {
    /// The call is made.
    Allowed,
    /// The call is not made, and this is its result.
    Answered(ToolOutcome),
    /// The call waits for an approval, for this reason.
    Asks(String),
}

/// Judges calls, and records what comes of it with the next event that waits for the store.
pub async fn judge_calls(driver: &mut Driver, calls: Vec<ToolCall>) -> Result<(), Exit> {
    for call in calls {
        if let Some(interruption) = driver.signals.before_a_step() {
            return driver.handle_interruption(interruption);
        }
        // A guardrail on the arguments of a call before this one may have ended the run.
        if driver.recorder.run().is_stopping() {
            return Ok(());
        }
        let mut judged = call.clone();
        let Some(judgement) = judge(driver, &mut judged).await? else { return Ok(()) };
        record(driver, judgement, &call, judged);
    }
    Ok(())
}

/// Lets everything look at a call that may refuse, change or answer it: policy on the tool, hooks before the call,
/// guardrails on its arguments, policy on the arguments as they are then, and guardrails that ask somebody. `None` if the run was interrupted before.
async fn judge(driver: &mut Driver, call: &mut ToolCall) -> Result<Option<Judgement>, Exit> {
    if let Some(judgement) = deny_tool(driver, call) {
        return Ok(Some(judgement));
    }
    let mut hooks_ask = None;
    // Of a tool that is not there, there is nothing to ask.
    if driver.recorder.run().spec().asks_hooks_at(HookPoint::BeforeTool) && driver.tools.has(&call.name) {
        // Boxed, as most runs have no hooks.
        match Box::pin(hooks::ask_before(driver, call)).await? {
            Consulted::Passed => {}
            Consulted::Asks(reason) => hooks_ask = Some(reason),
            Consulted::Answered(outcome) => return Ok(Some(Judgement::Answered(outcome))),
            Consulted::Interrupted => return Ok(None),
        }
    }
    if let Some(outcome) = judge_arguments(&mut driver.recorder, call) {
        return Ok(Some(Judgement::Answered(outcome)));
    }
    let of_child = driver.recorder.run().spec().parent.is_some();
    let judgement = match (ask_policy(driver, call), hooks_ask) {
        // These arguments are those of the decision that approved the call.
        (Judgement::Allowed | Judgement::Asks(_), _) if driver.recorder.run().is_approved_otherwise(&call.id) => {
            Judgement::Allowed
        }
        (Judgement::Allowed, Some(reason)) => ask(approval_mode(driver), of_child, reason),
        // A hook loosens nothing that the policy says.
        (judgement, _) => judgement,
    };
    if matches!(judgement, Judgement::Answered(_)) || !driver.recorder.run().guards().asks(GuardPoint::ToolArguments) {
        return Ok(Some(judgement));
    }
    // Last, as it takes longest and may cost: only of calls that nothing else keeps from being made.
    Ok(match Box::pin(ask_guardrails::about_arguments(driver, call)).await? {
        Ruling::Passed => Some(judgement),
        Ruling::Tripped => Some(Judgement::Answered(ToolOutcome::skipped(NOT_MADE))),
        Ruling::Stopped => None,
    })
}

/// Judges a call that is none of the model's turn, and of which nobody is asked for an approval: what it comes to if it is not made.
/// `None` if the run was interrupted before.
pub(super) async fn judge_beside(
    driver: &mut Driver,
    call: &mut ToolCall,
) -> Result<Option<Result<(), Box<ToolOutcome>>>, Exit> {
    if !driver.recorder.run().spec().judges_calls() {
        return Ok(Some(Ok(())));
    }
    Ok(judge(driver, call).await?.map(|judgement| match judgement {
        Judgement::Allowed => Ok(()),
        Judgement::Answered(outcome) => Err(Box::new(outcome)),
        Judgement::Asks(reason) => {
            Err(Box::new(ToolOutcome::skipped(format!("{reason} Nobody is asked now: the call is not made."))))
        }
    }))
}

/// Denies a call of a tool that the policy denies whatever the arguments are.
fn deny_tool(driver: &Driver, call: &ToolCall) -> Option<Judgement> {
    let policy = policy_for(driver, call)?;
    let effect = effect(driver, call).ok()?;
    let of_child = driver.recorder.run().spec().parent.is_some();
    policy.always_denies(&call.name, effect).then(|| judge_by(policy, call, effect, of_child))
}

/// What the policy says of a call with the arguments that it would be made with.
///
/// A call that cannot be checked now is answered with what is wrong with it, without an approval. It is not made later
/// either: its tool may come back until then, and the policy would not have judged the call.
fn ask_policy(driver: &Driver, call: &ToolCall) -> Judgement {
    let Some(policy) = policy_for(driver, call) else { return Judgement::Allowed };
    match effect(driver, call) {
        Ok(effect) => judge_by(policy, call, effect, driver.recorder.run().spec().parent.is_some()),
        Err(why) => Judgement::Answered(ToolOutcome::skipped(why)),
    }
}

/// The policy that judges a call. Finding tools does nothing outside the run, and neither does a question that is none.
fn policy_for<'a>(driver: &'a Driver, call: &ToolCall) -> Option<&'a Policy> {
    let spec = driver.recorder.run().spec();
    let finds = spec.search.is_some() && call.name == find_tools::NAME;
    let asks = call.name == ASK_USER && spec.own_tools.iter().any(|tool| tool.name == ASK_USER);
    spec.policy.as_deref().filter(|_| !finds && !asks)
}

fn judge_by(policy: &Policy, call: &ToolCall, effect: Effect, of_child: bool) -> Judgement {
    let ruling = policy.judge(Judged { tool: &call.name, effect, arguments: &call.arguments });
    match ruling.verdict {
        Verdict::Allow => Judgement::Allowed,
        Verdict::Ask => ask(policy.approval.mode, of_child, ruling.reason),
        Verdict::Deny => Judgement::Answered(ToolOutcome::skipped(ruling.reason)),
    }
}

/// What a run does while a call needs an approval.
fn approval_mode(driver: &Driver) -> ApprovalMode {
    driver.recorder.run().spec().policy.as_ref().map(|policy| policy.approval.mode).unwrap_or_default()
}

/// Lets a call wait for an approval, where the agent asks for any. A run that another one began asks for none.
fn ask(mode: ApprovalMode, of_child: bool, reason: String) -> Judgement {
    if of_child {
        let why = format!("{reason} Nobody approves calls of a run that was delegated to: the call is denied.");
        return Judgement::Answered(ToolOutcome::skipped(why));
    }
    if mode == ApprovalMode::Deny {
        let why = format!("{reason} This agent asks for no approvals: the call is denied.");
        return Judgement::Answered(ToolOutcome::skipped(why));
    }
    Judgement::Asks(reason)
}

/// What repeating a call would do; of a call that cannot be made, why.
fn effect(driver: &Driver, call: &ToolCall) -> Result<Effect, String> {
    let is_own = driver.recorder.run().spec().own_tools.iter().any(|tool| tool.name == call.name);
    if !is_own {
        return driver.tools.check(call).map(|checked| checked.effect);
    }
    if call.name == DELEGATE || call.name == HANDOFF {
        // What the other agent does is judged when it does it, by its own rules.
        return driver.tools.check_own(call).map(|()| Effect::Read);
    }
    let own = driver.generation.own_tool(&call.name);
    let own = own.ok_or_else(|| format!("The tool `{}` is no longer available. Go on without it.", call.name))?;
    driver.tools.check_own(call).map(|()| own.effect())
}

/// Records what was decided of a call, which would be made as `judged` says.
fn record(driver: &mut Driver, judgement: Judgement, call: &ToolCall, judged: ToolCall) {
    let run = driver.recorder.run();
    let step = run.step();
    match judgement {
        Judgement::Allowed => {
            let arguments = (judged.arguments != call.arguments).then_some(judged.arguments);
            driver.recorder.queue(Event::CallAllowed { call_id: judged.id, arguments });
        }
        Judgement::Answered(outcome) => refuse(driver, &judged, outcome),
        Judgement::Asks(reason) => {
            let timeout_ms = run.spec().policy.as_ref().map_or(0, |policy| policy.approval.timeout_ms);
            let longest_ms = u64::try_from(driver.retention.wait.as_millis()).unwrap_or(u64::MAX);
            let expires_ms = driver.recorder.store().now_ms().saturating_add(timeout_ms.min(longest_ms));
            let request = ApprovalRequest { step, call: judged, reason, expires_ms };
            driver.recorder.queue(Event::ApprovalRequired(Box::new(request)));
            failpoint::hit("approval.required");
        }
    }
}

/// Answers a call that is not made. Of one that its caller wanted to be repeated, the outcome of the attempt before stays
/// unknown.
fn refuse(driver: &mut Driver, call: &ToolCall, outcome: ToolOutcome) {
    let run = driver.recorder.run();
    let (step, attempt) = (run.step(), run.attempt(&call.id));
    let is_repetition = attempt > 1 && outcome.ending == CallEnding::Skipped;
    let outcome = if is_repetition { not_made_again(&outcome.text()) } else { outcome };
    driver.recorder.queue(Event::ToolStarted { step, call: call.clone(), effect: Effect::Read });
    driver.finish_call(call, outcome);
}

/// Admits a call of a tool of the server.
pub(super) fn admit(driver: &mut Driver, call: ToolCall) -> Admitted<Checked> {
    match admit_own(driver, call) {
        Admitted::Run(call) => check(driver, call),
        Admitted::Answered => Admitted::Answered,
    }
}

/// Admits a call of a tool of the run, which checks the arguments itself.
pub(super) fn admit_own(driver: &mut Driver, call: ToolCall) -> Admitted<ToolCall> {
    let Some(decided) = driver.recorder.run().decided_answer(&call.id).cloned() else { return Admitted::Run(call) };
    refuse(driver, &call, decided);
    Admitted::Answered
}

/// The call, if it can be made; else it is answered.
fn check(driver: &mut Driver, call: ToolCall) -> Admitted<Checked> {
    let run = driver.recorder.run();
    let (step, attempt, started) = (run.step(), run.attempt(&call.id), run.started(&call.id));
    let mut outcome = match (driver.tools.check(&call), started) {
        // The tool's calls could be repeated when this call began, and by the present configuration they cannot.
        (Ok(CheckedCall { effect: Effect::Write, .. }), Some(_)) => interrupted(Effect::Write, ""),
        (Ok(CheckedCall { tool, effect, arguments }), _) => {
            return Admitted::Run(Checked { call, tool, effect, arguments, attempt, has_begun: started.is_some() });
        }
        (Err(why), Some(began_as)) => interrupted(began_as, &format!(" {why}")),
        (Err(why), None) => {
            driver.recorder.queue(Event::ToolStarted { step, call: call.clone(), effect: Effect::Read });
            // A call that the caller wants to be repeated was made before.
            if attempt > 1 { interrupted(Effect::Write, &format!(" {why}")) } else { ToolOutcome::skipped(why) }
        }
    };
    if outcome.ending == CallEnding::Lost {
        tell_of_change(driver, &call, &mut outcome);
    }
    driver.finish_call(&call, outcome);
    Admitted::Answered
}
