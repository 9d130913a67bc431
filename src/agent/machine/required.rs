//! What a run waits for: decisions about its calls, or results of them.

use super::calls::{CallState, Executor, OpenCall};
use super::{Phase, Run};
use crate::types::approval::{Approval, ApprovalMode, ApprovalRequest};
use crate::types::event::{Asked, Leg};
use crate::types::outcome::RequiredCall;
use crate::types::pending::PendingCall;
use crate::types::question::Question;
use crate::types::run::RunOptions;
use crate::types::{CallId, Effect, Message, StopReason, ToolOutcome};

impl Run {
    /// The calls that services answer later.
    pub fn pending_calls(&self) -> impl Iterator<Item = &PendingCall> {
        self.calls.iter().filter_map(OpenCall::pending)
    }

    /// What is waited for, if the service of this call answers later.
    #[must_use]
    pub fn pending(&self, call: &CallId) -> Option<&PendingCall> {
        self.pending_calls().find(|pending| pending.call_id == *call)
    }

    /// What this call began as, if its service was asked and has not answered.
    #[must_use]
    pub fn awaits_answer(&self, call: &CallId) -> Option<Effect> {
        self.calls.iter().find(|open| open.call.id == *call && open.awaits_answer()).map(|open| open.effect)
    }

    /// What of its calls an outcome for this reason names: those that services answer, or those that its caller is to.
    pub(super) fn awaited_calls(&self, reason: StopReason) -> Vec<RequiredCall> {
        if reason != StopReason::ToolPending {
            return self.required_calls();
        }
        let pending = self.calls.iter().filter_map(|open| Some((open, open.pending()?)));
        let awaited = pending.map(|(open, pending)| RequiredCall {
            call: open.call.clone(),
            reason: Some(self.awaited_reason(open)),
            expires_ms: Some(pending.expires_ms),
        });
        awaited.collect()
    }

    fn awaited_reason(&self, open: &OpenCall) -> String {
        match self.child_of(&open.call.id) {
            Some(child) => format!("The agent {:?} works on it, in the run {}.", child.agent, child.run),
            None => format!("The service behind `{}` goes on with the call, and answers later.", open.call.name),
        }
    }

    /// The calls that its caller is to answer.
    #[must_use]
    pub fn required_calls(&self) -> Vec<RequiredCall> {
        let approvals = self.calls.iter().filter_map(OpenCall::approval_request);
        let approvals = approvals.map(|ApprovalRequest { call, reason, expires_ms, .. }| RequiredCall {
            call: call.clone(),
            reason: Some(reason.clone()),
            expires_ms: Some(*expires_ms),
        });
        let approvals: Vec<_> = approvals.collect();
        if !approvals.is_empty() {
            return approvals;
        }
        let required = self.calls.iter().filter(|open| open.waits_for_caller());
        let reason = |open: &OpenCall| match &open.state {
            CallState::Asked(outcome) => Some(outcome.text().into_owned()),
            CallState::Pending
            | CallState::Started(_)
            | CallState::Deferred(_)
            | CallState::Answered(_)
            | CallState::Finished(_) => None,
        };
        required.map(|open| RequiredCall { call: open.call.clone(), reason: reason(open), expires_ms: None }).collect()
    }

    /// Its own messages, and the results that the server has of the calls that it waits with.
    #[must_use]
    pub fn messages_so_far(&self) -> Vec<Message> {
        let results = self.calls.iter().filter_map(|open| self.result_of(open.clone()));
        self.messages.iter().cloned().chain(results).filter(|message| self.is_kept(message)).collect()
    }

    /// The calls that wait for an approval.
    pub fn approval_requests(&self) -> impl Iterator<Item = &ApprovalRequest> {
        self.calls.iter().filter_map(OpenCall::approval_request)
    }

    /// Whether its calls are judged, and some of them are made only with an approval.
    pub(super) fn needs_approvals(&self) -> bool {
        self.phase == Phase::AnsweringCalls
            && !self.calls.iter().any(OpenCall::is_unjudged)
            && self.approval_requests().next().is_some()
    }

    /// Whether nothing is left of its step but calls that services answer later.
    pub(super) fn needs_services(&self) -> bool {
        self.phase == Phase::AnsweringCalls
            && self.pending_calls().next().is_some()
            && self.calls.iter().all(|open| !open.is_open() || open.pending().is_some() || self.must_wait(open))
    }

    /// The keys whose callers have approved a call that waits for the approval of others.
    #[must_use]
    pub fn approved_by(&self, call: &CallId) -> &[Option<String>] {
        self.calls.iter().find(|open| open.call.id == *call).map_or(&[], OpenCall::approved_by)
    }

    /// The calls by which the model asks the user.
    #[must_use]
    pub fn asked(&self) -> Vec<CallId> {
        let asks = |open: &&OpenCall| open.waits_for_caller() && open.executor == Executor::User;
        self.calls.iter().filter(asks).map(|open| open.call.id.clone()).collect()
    }

    /// The same, if the run waits for nothing else.
    #[must_use]
    pub fn questions(&self) -> Vec<CallId> {
        let waits_for_more = |open: &OpenCall| open.waits_for_caller() && open.executor != Executor::User;
        if self.calls.iter().any(waits_for_more) { Vec::new() } else { self.asked() }
    }

    /// What its last turn says, unless that it has nothing to say, and what it asks the user; while it waits for approvals
    /// or for services, and its model said nothing, a sentence that tells so.
    pub(super) fn said_so_far(&self, reason: StopReason) -> String {
        if reason == StopReason::Guardrail {
            return self.tripped().unwrap_or_default();
        }
        let said = if self.has_nothing_to_say() { String::new() } else { self.last_turn.text().into_owned() };
        if reason == StopReason::AskUser {
            let required = self.required_calls();
            let asked = required.iter().filter_map(|required| Question::read(&required.call.arguments));
            let said = Some(said).filter(|said| !said.is_empty());
            let all: Vec<_> = said.into_iter().chain(asked.map(|question| question.text())).collect();
            return all.join("\n\n");
        }
        if !said.is_empty() {
            return said;
        }
        if reason == StopReason::ToolPending {
            let tools: Vec<_> = self.pending_calls().map(|pending| pending.name.as_str()).collect();
            return format!("The run waits for the answer of {}.", tools.join(", "));
        }
        if reason != StopReason::Approval {
            return said;
        }
        let tools: Vec<_> = self.approval_requests().map(|request| request.call.name.as_str()).collect();
        format!("The run waits for an approval before it calls {}.", tools.join(", "))
    }

    /// Whether its responses stay open while it waits for this reason. For services its callers wait as they do for tools that
    /// answer at once.
    #[must_use]
    pub fn waits_openly(&self, reason: StopReason) -> bool {
        let is_wait = || self.spec.policy.as_ref().is_some_and(|policy| policy.approval.mode == ApprovalMode::Wait);
        reason == StopReason::ToolPending || (reason == StopReason::Approval && is_wait())
    }

    /// Whether another step may be voided because its stream broke.
    #[must_use]
    pub fn may_discard(&self) -> bool {
        self.broken < self.max_discards
    }

    /// The leg that begins once the calls of a run that waits for approvals are decided. None does while its readers read
    /// on over the wait: to them it is one leg.
    #[must_use]
    pub fn leg_of_decisions(&self) -> Option<Leg> {
        let asked = Asked {
            model: None,
            system: Vec::new(),
            client_tools: self.spec.client_tools.iter().map(|tool| tool.name.clone()).collect(),
            max_output_tokens: None,
            // The next response says of its request what the last one says, unless another request asks for it.
            options: RunOptions { response: None, ..self.spec.options.clone() },
        };
        let leg = || Leg {
            number: self.leg + 1,
            claim: None,
            asked: Box::new(asked),
            answers: Vec::new(),
            decisions: Vec::new(),
            warnings: Vec::new(),
            guarded: Vec::new(),
        };
        (!self.waits_openly(StopReason::Approval)).then(leg)
    }

    /// Whether this is a call of the turn that is being answered.
    #[must_use]
    pub fn is_call(&self, call: &CallId) -> bool {
        self.calls.iter().any(|open| open.call.id == *call)
    }

    /// Applies what was decided of a call that waits for an approval.
    pub(super) fn decide(&mut self, approval: &Approval) {
        self.needs_no_reader = true;
        let decided = self.calls.iter_mut().filter(|open| open.call.id == approval.call_id);
        decided.for_each(|open| open.resolve(approval));
    }

    /// Whether the call was approved with other arguments, which are to be judged.
    #[must_use]
    pub fn is_approved_otherwise(&self, call: &CallId) -> bool {
        self.calls.iter().any(|open| open.call.id == *call && open.is_approved_otherwise())
    }

    /// Whether the call is made with other arguments than the model wrote.
    #[must_use]
    pub fn is_changed(&self, call: &CallId) -> bool {
        self.calls.iter().any(|open| open.call.id == *call && open.is_changed)
    }

    /// How this call is answered without being made, if that was decided.
    #[must_use]
    pub fn decided_answer(&self, call: &CallId) -> Option<&ToolOutcome> {
        self.calls.iter().find(|open| open.call.id == *call)?.decided_answer()
    }
}
