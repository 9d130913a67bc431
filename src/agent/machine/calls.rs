//! The tool calls of a run's last turn: who answers each, and how far it came.

use crate::types::approval::{Approval, ApprovalRequest};
use crate::types::event::Decision;
use crate::types::hook::{HookPoint, HookRan};
use crate::types::pending::PendingCall;
use crate::types::report::DecisionReport;
use crate::types::tool::CallEnding;
use crate::types::{Effect, ToolCall, ToolOutcome};

/// A call of the last turn.
#[derive(Debug, Clone)]
pub(super) struct OpenCall {
    pub(super) call: ToolCall,
    pub(super) executor: Executor,
    pub(super) state: CallState,
    /// What it began as.
    pub(super) effect: Effect,
    /// Whether it is not to be made, because it is beyond the run's limit of tool calls.
    pub(super) is_cut: bool,
    /// How often it was dispatched before its caller asked for it once more.
    pub(super) dispatched_before: u32,
    /// How often its run was resumed while it was dispatched.
    interrupted: u32,
    /// What was decided of it before it is made; `None` until it is judged.
    ruling: Option<Ruling>,
    /// Whether its arguments are others than the model wrote.
    pub(super) is_changed: bool,
    /// What was decided of it while it waited for an approval.
    pub(super) decisions: Vec<DecisionReport>,
    /// What hooks said of it.
    pub(super) hooked: Vec<HookRan>,
}

/// What was decided of a call before it is made.
#[derive(Debug, Clone)]
enum Ruling {
    /// It is made, without an approval or after one.
    Allowed { is_approved: bool },
    /// It waits for an approval.
    Asked(Waiting),
    /// It was approved with other arguments, which are to be judged.
    Changed,
    /// It is answered so, and is not made.
    Answered(Box<ToolOutcome>),
}

/// A call that waits for an approval.
#[derive(Debug, Clone)]
struct Waiting {
    request: Box<ApprovalRequest>,
    /// The keys whose callers have approved it.
    approved_by: Vec<Option<String>>,
}

/// Who answers a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Executor {
    /// A tool of the server, which knows nothing of runs.
    Server,
    /// The run itself: the tool needs it or the store.
    Run,
    /// The client.
    Client,
    /// The user, by the client: the call is a question.
    User,
}

impl Executor {
    /// Whether the run waits for the answer.
    pub(super) fn is_outside(self) -> bool {
        match self {
            Self::Server | Self::Run => false,
            Self::Client | Self::User => true,
        }
    }
}

/// How far a call came.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum CallState {
    Pending,
    Started(Effect),
    /// Its service has accepted it, and answers later.
    Deferred(Box<PendingCall>),
    /// Its tool answered, and the answer is still to be looked at.
    Answered(Box<ToolOutcome>),
    /// It is unknown whether the call took effect, and the caller is asked.
    Asked(ToolOutcome),
    Finished(ToolOutcome),
}

impl OpenCall {
    pub(super) fn new(call: ToolCall, executor: Executor) -> Self {
        Self {
            call,
            executor,
            state: CallState::Pending,
            effect: Effect::Read,
            is_cut: false,
            dispatched_before: 0,
            interrupted: 0,
            ruling: None,
            is_changed: false,
            decisions: Vec::new(),
            hooked: Vec::new(),
        }
    }

    /// Whether the server has still to answer it.
    pub(super) fn is_open(&self) -> bool {
        match self.state {
            CallState::Pending | CallState::Started(_) => {
                !self.executor.is_outside() && self.approval_request().is_none()
            }
            CallState::Deferred(_) | CallState::Answered(_) => true,
            CallState::Asked(_) | CallState::Finished(_) => false,
        }
    }

    /// The call begins.
    pub(super) fn start(&mut self, effect: Effect) {
        self.state = CallState::Started(effect);
        self.effect = effect;
    }

    /// Whether it is to be judged before it is made.
    pub(super) fn is_unjudged(&self) -> bool {
        let is_ruled = || self.ruling.is_some() && !self.is_approved_otherwise();
        self.is_open() && self.started().is_none() && self.pending().is_none() && !is_ruled()
    }

    /// Whether it was approved with other arguments, which are to be judged.
    pub(super) fn is_approved_otherwise(&self) -> bool {
        matches!(self.ruling, Some(Ruling::Changed))
    }

    /// Its service has accepted it, and answers later.
    pub(super) fn defer(&mut self, pending: &PendingCall) {
        if self.started().is_some() {
            self.state = CallState::Deferred(Box::new(pending.clone()));
        }
    }

    /// What is waited for, if its service answers later.
    pub(super) fn pending(&self) -> Option<&PendingCall> {
        if let CallState::Deferred(pending) = &self.state { Some(pending) } else { None }
    }

    /// Whether its service was asked, so that an answer of it would be the call's.
    pub(super) fn awaits_answer(&self) -> bool {
        match self.state {
            CallState::Started(_) | CallState::Deferred(_) => true,
            CallState::Pending | CallState::Answered(_) | CallState::Asked(_) | CallState::Finished(_) => false,
        }
    }

    /// Allows the call, with other arguments if these are given.
    pub(super) fn allow(&mut self, arguments: Option<&String>) {
        if let Some(arguments) = arguments {
            self.set_arguments(arguments);
        }
        self.ruling = Some(Ruling::Allowed { is_approved: self.is_approved_otherwise() });
    }

    fn set_arguments(&mut self, arguments: &String) {
        self.call.arguments.clone_from(arguments);
        self.is_changed = true;
    }

    /// Lets the call wait for an approval.
    pub(super) fn ask(&mut self, request: &ApprovalRequest) {
        self.call = request.call.clone();
        self.ruling = Some(Ruling::Asked(Waiting { request: Box::new(request.clone()), approved_by: Vec::new() }));
    }

    /// Applies what was decided of a call that waits for an approval.
    pub(super) fn resolve(&mut self, approval: &Approval) {
        let Some(Ruling::Asked(waiting)) = &mut self.ruling else { return };
        let Approval { decision, by, user, reason, .. } = approval.clone();
        self.decisions.push(DecisionReport { decision, by, user, reason });
        if approval.awaits_others {
            waiting.approved_by.push(approval.by.clone());
            return;
        }
        self.ruling = Some(match (approval.answer(), &approval.arguments) {
            (Some(outcome), _) => Ruling::Answered(Box::new(outcome)),
            (None, None) => Ruling::Allowed { is_approved: true },
            (None, Some(arguments)) => {
                self.set_arguments(arguments);
                // What hooks said was said of the arguments before.
                self.hooked.retain(|ran| ran.point != HookPoint::BeforeTool);
                Ruling::Changed
            }
        });
    }

    /// What an approval of the call is asked for, while it waits for one.
    pub(super) fn approval_request(&self) -> Option<&ApprovalRequest> {
        match &self.ruling {
            Some(Ruling::Asked(waiting)) if self.state == CallState::Pending => Some(&waiting.request),
            Some(Ruling::Asked(_) | Ruling::Allowed { .. } | Ruling::Changed | Ruling::Answered(_)) | None => None,
        }
    }

    /// The keys whose callers have approved the call, while it waits for others.
    pub(super) fn approved_by(&self) -> &[Option<String>] {
        match &self.ruling {
            Some(Ruling::Asked(waiting)) => &waiting.approved_by,
            Some(Ruling::Allowed { .. } | Ruling::Changed | Ruling::Answered(_)) | None => &[],
        }
    }

    /// How the call is answered without being made, if that was decided.
    pub(super) fn decided_answer(&self) -> Option<&ToolOutcome> {
        match &self.ruling {
            Some(Ruling::Answered(outcome)) => Some(outcome),
            Some(Ruling::Asked(_) | Ruling::Allowed { .. } | Ruling::Changed) | None => None,
        }
    }

    /// Whether the caller is to answer it.
    pub(super) fn waits_for_caller(&self) -> bool {
        match self.state {
            CallState::Pending | CallState::Started(_) => {
                self.executor.is_outside() || self.approval_request().is_some()
            }
            CallState::Asked(_) => true,
            CallState::Deferred(_) | CallState::Answered(_) | CallState::Finished(_) => false,
        }
    }

    /// What it began as, if it is dispatched.
    pub(super) fn started(&self) -> Option<Effect> {
        match self.state {
            CallState::Started(effect) => Some(effect),
            CallState::Pending
            | CallState::Deferred(_)
            | CallState::Answered(_)
            | CallState::Asked(_)
            | CallState::Finished(_) => None,
        }
    }

    /// Keeps what its tool answered, which is still to be looked at.
    pub(super) fn take_answer(&mut self, outcome: &ToolOutcome) {
        self.state = CallState::Answered(Box::new(outcome.clone()));
    }

    /// What its tool answered, if that is still to be looked at.
    pub(super) fn answer(&self) -> Option<&ToolOutcome> {
        match &self.state {
            CallState::Answered(outcome) => Some(outcome),
            CallState::Pending
            | CallState::Started(_)
            | CallState::Deferred(_)
            | CallState::Asked(_)
            | CallState::Finished(_) => None,
        }
    }

    /// Which time it is dispatched now, counted from 1.
    pub(super) fn attempt(&self) -> u32 {
        let interrupted = if self.started().is_some() { self.interrupted.max(1) } else { 0 };
        self.dispatched_before + interrupted + 1
    }

    /// Its run was resumed: if it was dispatched, that was interrupted.
    pub(super) fn interrupt(&mut self) {
        if self.started().is_some() {
            self.interrupted += 1;
            self.forget_answer();
        }
    }

    /// Forgets what hooks said of its answer: if it is made once more, that is answered anew.
    fn forget_answer(&mut self) {
        self.hooked.retain(|ran| ran.point == HookPoint::BeforeTool);
    }

    /// Keeps the call's outcome. With `asks`, the caller is asked for an outcome that is unknown.
    pub(super) fn finish(&mut self, outcome: &ToolOutcome, asks: bool) {
        self.state = if asks && outcome.ending == CallEnding::Lost {
            CallState::Asked(outcome.clone())
        } else {
            CallState::Finished(outcome.clone())
        };
    }

    /// Applies the caller's decision, if the caller was asked. An approval was one of the call that was made: it is asked
    /// for again before the call is repeated.
    pub(super) fn decide(&mut self, decision: Decision) {
        let CallState::Asked(outcome) = &self.state else { return };
        self.state = match decision {
            Decision::Skip => CallState::Finished(outcome.clone()),
            Decision::Retry => {
                self.dispatched_before += 1 + self.interrupted;
                self.interrupted = 0;
                self.ruling.take_if(|ruling| matches!(ruling, Ruling::Allowed { is_approved: true }));
                self.forget_answer();
                CallState::Pending
            }
        };
    }

    /// Gives the call a result, if it has none.
    pub(super) fn close(&mut self, why: &str) {
        self.state = match std::mem::replace(&mut self.state, CallState::Pending) {
            CallState::Finished(outcome) | CallState::Asked(outcome) => CallState::Finished(outcome),
            // Nothing looks at it any more, so it is not told.
            CallState::Deferred(_) | CallState::Answered(_) => CallState::Finished(ToolOutcome::stopped(why)),
            CallState::Pending | CallState::Started(_) => CallState::Finished(ToolOutcome::skipped(why)),
        };
    }
}
