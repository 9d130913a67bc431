//! Decides the next step of a run by its state.

use super::calls::{CallState, Executor, OpenCall};
use super::{Lack, Phase, Run};
use crate::agent::machine::budget::{self, Purpose};
use crate::guard::output::silence::is_silent;
use crate::types::context::{CompactionStarted, Method};
use crate::types::event::{DiscardReason, Reservation, Turn};
use crate::types::guard::{Guarded, Judging};
use crate::types::rules::LoopFinding;
use crate::types::run::OnLimit;
use crate::types::shortfall::BudgetKind;
use crate::types::{Effect, RunError, StopReason, ToolCall, ToolOutcome, TurnEnd};

/// How often a run may be taken over without getting further.
const MAX_RESUMES: u32 = 3;
/// How often a model may answer nothing.
const MAX_EMPTY: u32 = 1;

/// What the driver must do now.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the fields are named for what they are")]
pub enum Step {
    /// Call the model, spending no more than `reserve`.
    CallModel {
        /// The number of the step that begins.
        step: u32,
        /// What the call may take.
        reserve: Reservation,
        /// The limit after which this is the closing answer.
        closing: Option<StopReason>,
    },
    /// Go on with a model that takes more, as the conversation does not fit the present one.
    FallBack,
    /// Charge this call of a guardrail's model, which a crash interrupted.
    DropJudging(Box<Judging>),
    /// Shorten what the model is shown by this method, or in the last way that is left.
    Fit(Option<Method>),
    /// Charge this call for a summary, which a crash interrupted.
    DropCompaction(Box<CompactionStarted>),
    /// Go on with what a model writes down before messages are replaced.
    Flush,
    /// Void what the model said in this step.
    DiscardStep(DiscardReason),
    /// Say that the model is asked this, so that it makes a plan.
    Plan(String),
    /// Say that the model is asked this, so that it sees how far it has come.
    Reflect(String),
    /// Say that the run repeats itself.
    ReportLoop(LoopFinding),
    /// Say what guards found in the request.
    TellGuarded(Vec<Guarded>),
    /// Say that a budget is nearly used.
    WarnBudget { kind: BudgetKind, used: u64, limit: u64 },
    /// Judge these calls before any of them is made.
    JudgeCalls(Vec<ToolCall>),
    /// Ask the hooks that stand at the run's start.
    AskStartHooks,
    /// Look at this answer of a tool, which was stored before a crash, and record it.
    SettleAnswer(ToolCall, Box<ToolOutcome>),
    /// Dispatch these calls, which follow each other. One that had begun before a crash may be repeated.
    RunTools(Vec<ToolCall>),
    /// Answer this call, whose tool needs the run or the store. One that had begun may be repeated.
    AnswerCall(ToolCall),
    /// Record that the outcome of these calls is unknown: a crash interrupted them, and they must not be repeated.
    SettleUnknown(Vec<ToolCall>),
    /// Answer these calls without dispatching them: the run is to stop.
    SkipTools(Vec<ToolCall>),
    /// Answer these calls without dispatching them: they are beyond the run's limit of tool calls.
    CutCalls(Vec<ToolCall>),
    /// Wait for the services that answer calls later, or end the wait for those whose time is up.
    AwaitServices,
    /// Every server-side call is answered.
    CompleteStep,
    /// End the run, or hand it to its client.
    Finish(StopReason),
    /// Record this turn of an agent that is made of others, which no model made.
    Conduct(Box<Turn>),
    /// Say that the run is to stop for this reason.
    Stop(StopReason, Option<Box<RunError>>),
    /// Nothing: it ended, or waits.
    Done,
}

impl Run {
    /// What to do now.
    #[must_use]
    pub fn next_step(&self) -> Step {
        // Within a step it is dropped together with the step.
        if let Some(judging) = self.open_judging().filter(|judging| !judging.in_step) {
            return Step::DropJudging(Box::new(judging.clone()));
        }
        if let Some(open) = self.open_compaction() {
            return Step::DropCompaction(Box::new(open.clone()));
        }
        if self.goes_on_with_flush(MAX_RESUMES) {
            return Step::Flush;
        }
        match self.phase {
            Phase::Ended(_) => Step::Done,
            Phase::HandedOver { waits: true } if self.stop.is_some() && self.pending_calls().next().is_some() => {
                Step::SkipTools(self.calls_where(|open| open.pending().is_some()))
            }
            Phase::NotStarted | Phase::HandedOver { waits: true } => {
                self.stop_reason().map_or(Step::Done, Step::Finish)
            }
            Phase::Ready if self.found.untold().next().is_some() => {
                Step::TellGuarded(self.found.untold().cloned().collect())
            }
            Phase::Ready => self.next_call(),
            Phase::ModelRunning => Step::DiscardStep(DiscardReason::Interrupted),
            Phase::EmptyTurn => Step::DiscardStep(DiscardReason::EmptyResponse),
            Phase::AnsweringCalls => self.next_answer(),
            Phase::Answered => Step::Finish(self.end_reason()),
            Phase::HandedOver { waits: false } => Step::Finish(self.wait_reason()),
        }
    }

    /// Whether replicas resumed it again and again even to end it: ending it seems to kill them.
    #[must_use]
    pub fn is_beyond_help(&self) -> bool {
        self.resumes > MAX_RESUMES + 1
    }

    fn next_call(&self) -> Step {
        let synthesize = self.spec.on_limit == OnLimit::Synthesize && self.limit.is_none();
        if let Some(reason) = self.stop_reason() {
            let closing = self.closing_call(reason).filter(|_| self.wants_closing());
            return closing.unwrap_or(Step::Finish(reason));
        }
        if self.resumes > MAX_RESUMES {
            return Step::Finish(StopReason::CrashLoop);
        }
        if self.spec.compacts {
            return self.next_of_compaction();
        }
        if self.is_start_unhooked() {
            return Step::AskStartHooks;
        }
        if let Some(composite) = &self.spec.rules.composite {
            return self.due_warning().unwrap_or_else(|| self.next_of_composite(composite));
        }
        if self.empty > MAX_EMPTY {
            return Step::Finish(StopReason::EmptyResponse);
        }
        if let Some(warning) = self.due_warning() {
            return warning;
        }
        if let Some(limit) = self.limit {
            // The closing answer was voided: there is no second one.
            return Step::Finish(limit);
        }
        if let Some(finding) = self.due_finding() {
            return Step::ReportLoop(finding);
        }
        let may_go_on = !self.is_looping() && !self.is_over_calls && self.iterations < self.spec.limits.max_iterations;
        if may_go_on && self.needs_fitting() {
            return Step::Fit(self.next_method());
        }
        let planned = if self.is_looping() {
            Err(StopReason::LoopGuard)
        } else if self.is_over_calls {
            Err(StopReason::MaxToolCalls)
        } else if self.iterations >= self.spec.limits.max_iterations {
            Err(StopReason::MaxIterations)
        } else if self.has_outgrown_model() {
            if self.next_model(Lack::Window, |_| None).model.is_some() {
                return Step::FallBack;
            }
            Err(StopReason::ContextLimit)
        } else {
            self.plan_step(synthesize)
        };
        match planned {
            Ok(reserve) => self.due_prompt().unwrap_or(Step::CallModel { step: self.step + 1, reserve, closing: None }),
            Err(limit) if synthesize => self.closing_call(limit).unwrap_or(Step::Finish(limit)),
            Err(limit) => Step::Finish(limit),
        }
    }

    /// What the next step may take of the budgets, or which of them forbids it.
    fn plan_step(&self, synthesize: bool) -> Result<Reservation, StopReason> {
        // What others take is refused where it is counted, unless a closing answer is to be made of the rest.
        let used = if synthesize { self.used_of_budgets() } else { self.used };
        let plan = |keep_reserve| {
            let purpose = Purpose::Step { keep_reserve };
            budget::plan(&self.spec.limits, &self.terms(), used, self.next_input(), purpose)
        };
        // The first call may answer as well as a closing one, and may call tools besides.
        plan(synthesize).or_else(|limit| if synthesize && self.iterations == 0 { plan(false) } else { Err(limit) })
    }

    /// What is to be said of a budget of the run, which those below it use too.
    fn due_warning(&self) -> Option<Step> {
        let due = budget::due_warning(&self.spec.limits, self.used_of_budgets(), &self.warned);
        due.map(|(kind, used, limit)| Step::WarnBudget { kind, used, limit })
    }

    /// What is to be said of the model before it is called.
    fn due_prompt(&self) -> Option<Step> {
        let rules = &self.spec.rules;
        if let Some(text) = rules.planning.as_ref().filter(|_| self.iterations == 0 && !self.prompts.is_planned) {
            return Some(Step::Plan(text.clone()));
        }
        let text = rules.reflection.as_ref().filter(|_| self.reflects())?;
        Some(Step::Reflect(text.prompt.clone()))
    }

    /// Why it is to stop.
    fn stop_reason(&self) -> Option<StopReason> {
        self.stop.as_ref().map(|stop| stop.reason)
    }

    /// Whether time ran out and a closing answer is still to be asked for. No model is asked anything in a run that hooks may
    /// still refuse.
    pub(super) fn wants_closing(&self) -> bool {
        let timeout = self.stop_reason() == Some(StopReason::Timeout);
        let is_wanted =
            self.spec.on_limit == OnLimit::Synthesize && !self.stops_after_step && !self.is_start_unhooked();
        timeout && is_wanted && self.limit.is_none()
    }

    /// Whether the conversation no longer fits the model's context window, by the same estimate as at the start.
    fn has_outgrown_model(&self) -> bool {
        self.context.tokens() > self.terms().context_window
    }

    fn closing_call(&self, limit: StopReason) -> Option<Step> {
        if self.has_outgrown_model() {
            return None;
        }
        let (used, tokens) = (self.used_of_budgets(), self.context.tokens());
        let reserve = budget::plan(&self.spec.limits, &self.terms(), used, tokens, Purpose::Closing).ok()?;
        Some(Step::CallModel { step: self.step + 1, reserve, closing: Some(limit) })
    }

    fn next_answer(&self) -> Step {
        let interrupted = self.calls_where(|open| open.started() == Some(Effect::Write));
        if !interrupted.is_empty() {
            return Step::SettleUnknown(interrupted);
        }
        if let Some((call, answer)) = self.unsettled() {
            return Step::SettleAnswer(call, Box::new(answer));
        }
        let is_stopping = self.stop.is_some() || self.resumes > MAX_RESUMES;
        let cut = self.calls_where(|open| open.is_cut && !is_stopping);
        if !cut.is_empty() {
            return Step::CutCalls(cut);
        }
        if self.spec.judges_calls() && !is_stopping {
            let unjudged = self.calls_where(OpenCall::is_unjudged);
            if !unjudged.is_empty() {
                return Step::JudgeCalls(unjudged);
            }
            // All calls of a turn are decided before any of them is made.
            if self.calls.iter().any(|open| open.approval_request().is_some()) {
                return Step::Finish(StopReason::Approval);
            }
        }
        if is_stopping && self.calls.iter().any(OpenCall::is_open) {
            return Step::SkipTools(self.calls_where(|_| true));
        }
        let may_begin = |open: &&OpenCall| open.is_open() && open.pending().is_none() && !self.must_wait(open);
        let mut open = self.calls.iter().filter(may_begin).peekable();
        let Some(first) = open.peek() else {
            let waits = self.pending_calls().next().is_some();
            return if waits { self.due_warning().unwrap_or(Step::AwaitServices) } else { Step::CompleteStep };
        };
        if first.executor == Executor::Run {
            return Step::AnswerCall(first.call.clone());
        }
        Step::RunTools(
            open.take_while(|open| open.executor == Executor::Server).map(|open| open.call.clone()).collect(),
        )
    }

    /// The calls that the server has still to answer, of those that are wanted.
    fn calls_where(&self, wanted: impl Fn(&OpenCall) -> bool) -> Vec<ToolCall> {
        self.calls.iter().filter(|open| open.is_open() && wanted(open)).map(|open| open.call.clone()).collect()
    }

    /// Why it is its client's turn.
    fn wait_reason(&self) -> StopReason {
        let mut waiting = self.calls.iter().filter(|open| open.waits_for_caller());
        if self.calls.iter().any(|open| matches!(open.state, CallState::Asked(_))) {
            StopReason::OutcomeAsked
        } else if waiting.all(|open| open.executor == Executor::User) {
            StopReason::AskUser
        } else {
            StopReason::ClientTools
        }
    }

    /// Whether the model answered that it has nothing to say, where it may.
    pub(super) fn has_nothing_to_say(&self) -> bool {
        self.spec.guards.output.allow_no_reply && is_silent(&self.last_turn.text())
    }

    fn end_reason(&self) -> StopReason {
        if let Some(reason) = self.stop_reason() {
            return reason;
        }
        self.limit.unwrap_or(match self.last_turn.end {
            TurnEnd::Length => StopReason::Length,
            TurnEnd::ContentFilter => StopReason::ContentFilter,
            TurnEnd::Stop | TurnEnd::ToolCalls | TurnEnd::Other(_) if self.has_nothing_to_say() => StopReason::NoReply,
            TurnEnd::Stop | TurnEnd::ToolCalls | TurnEnd::Paused | TurnEnd::Interrupted | TurnEnd::Other(_) => {
                StopReason::Done
            }
        })
    }
}
