//! Decisions about calls of a run that waits for approvals.
//!
//! The run's log decides: what it holds first counts. A decision is checked and recorded under the run's lease, so of two
//! that come at the same time one finds the call decided. The run goes on once nothing is left to decide; until then each
//! decision is recorded by itself.

use std::sync::Arc;

use crate::agent::admission::Admission;
use crate::agent::context::toolbox::Toolbox;
use crate::agent::error::{ApprovalError, Field, StartError};
use crate::agent::generation::Generation;
use crate::agent::launch::ready::Idle;
use crate::agent::machine::Run;
use crate::agent::request::{CallApproval, NewRun};
use crate::guard::rails::failed;
use crate::types::approval::{Approval, ApprovalDecision, ApprovalRequest, ApprovalTerms};
use crate::types::guard::{GuardPoint, Guardrail};
use crate::types::pattern::matches;
use crate::types::policy::{Judged, Policy, Verdict};
use crate::types::{RunSpec, ToolCall};

/// What decisions about the calls of a waiting run come to.
pub(super) struct Decided {
    /// What is recorded of them.
    pub(super) approvals: Vec<Approval>,
    /// Whether the run goes on.
    pub(super) is_all: bool,
}

impl Admission {
    /// Checks the decisions of a request against the calls that a run waits with.
    pub(super) async fn check_approvals(
        &self,
        new: &NewRun,
        idle: &Idle,
        generation: &Arc<Generation>,
    ) -> Result<Decided, StartError> {
        let (run, spec) = (idle.run(), idle.spec());
        if new.allowed_agents.as_ref().is_some_and(|allowed| !allowed.contains(&spec.agent)) {
            return Err(StartError::AgentForbidden(spec.agent.clone()));
        }
        // Only changed arguments are looked at again.
        let is_changed = new.approvals.iter().any(|asked| asked.arguments.is_some());
        let tools = if is_changed { self.launcher.tools(spec, generation).await? } else { None }.unwrap_or_default();
        let now_ms = self.ledger.store().now_ms();
        let decide =
            |(index, asked): (usize, &CallApproval)| Decider { new, run, now_ms, tools: &tools }.decide(index, asked);
        // What a client repeats is left out as long as it decides something that it has not decided.
        let is_open = |asked: &CallApproval| run.approval_requests().any(|request| request.call.id == asked.call);
        let is_given = |asked: &CallApproval| {
            asked.decision == ApprovalDecision::Approve && run.approved_by(&asked.call).contains(&new.key_name)
        };
        let is_repeated = |asked: &CallApproval| run.is_call(&asked.call) && (!is_open(asked) || is_given(asked));
        let leaves_out = new.repeats && !new.approvals.iter().all(is_repeated);
        let asked = new.approvals.iter().enumerate().filter(|(_, asked)| !(leaves_out && is_repeated(asked)));
        let approvals: Vec<_> = asked.map(decide).collect::<Result<_, _>>()?;
        let is_left = |request: &ApprovalRequest| {
            !approvals.iter().any(|approval| approval.call_id == request.call.id && !approval.awaits_others)
        };
        let is_all = !run.approval_requests().any(is_left);
        Ok(Decided { approvals, is_all })
    }
}

/// What a decision is checked against.
struct Decider<'a> {
    new: &'a NewRun,
    run: &'a Run,
    now_ms: u64,
    tools: &'a Toolbox,
}

impl Decider<'_> {
    fn decide(&self, index: usize, asked: &CallApproval) -> Result<Approval, StartError> {
        let request = self.find(asked)?;
        let policy = self.run.spec().policy.as_deref();
        let terms = policy.map(|policy| policy.approval.clone()).unwrap_or_default();
        let is_approved = asked.decision == ApprovalDecision::Approve;
        self.check_approver(&terms, is_approved)?;
        if asked.digest.as_ref().is_some_and(|digest| *digest != request.call.digest()) {
            return Err(ApprovalError::OtherArguments(request.call.id.clone()).into());
        }
        let before = self.run.approved_by(&request.call.id);
        if is_approved && terms.needed > 1 {
            if before.contains(&self.new.key_name) {
                return Err(ApprovalError::AwaitsOthers(request.call.id.clone()).into());
            }
            if asked.arguments.is_some() || asked.result.is_some() {
                let member = if asked.arguments.is_some() { "arguments" } else { "result" };
                let message = format!("may not be given where {} must approve the same call", terms.needed);
                return Err(StartError::Invalid { field: Field::Approval(index, member), message });
            }
        }
        if let Some(arguments) = &asked.arguments {
            self.check_arguments(index, &request.call, arguments)?;
        }
        if let Some(result) = &asked.result {
            self.check_guardrails(GuardPoint::ToolResult, result, Field::Approval(index, "result"))?;
        }
        let approvals = u32::try_from(before.len()).unwrap_or(u32::MAX).saturating_add(1);
        Ok(Approval {
            step: request.step,
            call_id: request.call.id.clone(),
            name: request.call.name.clone(),
            decision: asked.decision,
            by: self.new.key_name.clone(),
            user: self.new.options.sampling.user.clone(),
            reason: asked.reason.clone(),
            arguments: asked.arguments.clone().filter(|arguments| *arguments != request.call.arguments),
            result: asked.result.clone(),
            claim: self.new.claim.as_ref().map(|claim| claim.name.clone()),
            awaits_others: is_approved && approvals < terms.needed,
        })
    }

    /// The call that is meant, if it waits.
    fn find(&self, asked: &CallApproval) -> Result<&ApprovalRequest, StartError> {
        let Some(request) = self.run.approval_requests().find(|request| request.call.id == asked.call) else {
            let is_known = self.run.is_call(&asked.call);
            let (run, call) = (self.run.spec().id.clone(), asked.call.clone());
            return Err(
                if is_known { ApprovalError::Decided(call) } else { ApprovalError::NoSuchCall(run, call) }.into()
            );
        };
        if request.expires_ms <= self.now_ms {
            return Err(ApprovalError::Expired(asked.call.clone()).into());
        }
        Ok(request)
    }

    fn check_approver(&self, terms: &ApprovalTerms, is_approved: bool) -> Result<(), StartError> {
        let (spec, key) = (self.run.spec(), self.new.key_name.as_deref());
        let may = |pattern: &String| key.is_some_and(|key| matches(pattern, key));
        if !terms.approvers.is_empty() && !terms.approvers.iter().any(may) {
            return Err(
                ApprovalError::MayNotApprove("this key is none of those that may approve calls of the agent").into()
            );
        }
        if is_approved && terms.separate && spec.key_name.as_deref() == key {
            return Err(ApprovalError::MayNotApprove("the key that started the run may not approve its calls").into());
        }
        if is_approved && terms.needed > 1 && key.is_none() {
            return Err(ApprovalError::MayNotApprove(
                "several must approve, and without keys they cannot be told apart",
            )
            .into());
        }
        Ok(())
    }

    /// Refuses changed arguments that the tool does not take, that the policy denies, or for which a guardrail's rule would end
    /// the run. The run asks hooks, models and services about them before it makes the call.
    fn check_arguments(&self, index: usize, call: &ToolCall, arguments: &str) -> Result<(), StartError> {
        let changed = ToolCall { arguments: arguments.to_owned(), ..call.clone() };
        let spec: &RunSpec = self.run.spec();
        let is_own = spec.own_tools.iter().any(|tool| tool.name == call.name);
        let checked = if is_own {
            self.tools.check_own(&changed).map(|()| crate::types::Effect::Write)
        } else {
            self.tools.check(&changed).map(|checked| checked.effect)
        };
        let denied = |effect| {
            let ruling = spec.policy.as_deref().map(|policy: &Policy| {
                policy.judge(Judged { tool: &changed.name, effect, arguments: &changed.arguments })
            });
            match ruling {
                Some(ruling) if ruling.verdict == Verdict::Deny => Err(ruling.reason),
                Some(_) | None => Ok(()),
            }
        };
        let field = Field::Approval(index, "arguments");
        checked.and_then(denied).map_err(|message| StartError::Invalid { field, message })?;
        self.check_guardrails(GuardPoint::ToolArguments, arguments, field)
    }

    /// Refuses a text for which a guardrail's rule would end the run.
    fn check_guardrails(&self, point: GuardPoint, text: &str, field: Field) -> Result<(), StartError> {
        let mut failed = failed(&self.run.guards().guardrails, point, &[text]);
        let Some(Guardrail { name, rule, .. }) = failed.find(|rail| rail.tripwire) else { return Ok(()) };
        let message =
            format!("the guardrail {name:?} refuses this: {}; send something else, or none", rule.objection());
        Err(StartError::Blocked { field, message })
    }
}
