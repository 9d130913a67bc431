//! Turns the records of a run into observations. Pure: no clock, no counters.

use std::sync::Arc;

use crate::types::context::{Compacted, ContextEvent, SummaryCall};
use crate::types::delegate::Delegated;
use crate::types::event::{DiscardReason, Reservation, Turn};
use crate::types::fallback::FellBack;
use crate::types::guard::{Guarded, Judged, Verdict};
use crate::types::hedge::{HedgeEnded, KeptCall};
use crate::types::price::StepModel;
use crate::types::succession::Handoff;
use crate::types::tool::CallEnding;
use crate::types::{
    BudgetOwner, ErrorKind, Event, Micros, Outcome, Record, RunSpec, RunStatus, StopReason, ToolOutcome, Usage, Used,
};

/// Something that is counted.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the fields are named for what they are")]
pub enum Observation<'r> {
    /// The run was accepted.
    Accepted,
    /// The run began after it had waited in its session's queue.
    Dequeued { waited_ms: u64 },
    /// The run was resumed.
    Resumed(ResumeCause),
    /// A step begins, for which so much is reserved.
    Reserved(Reservation),
    /// What was reserved for the step is settled.
    Settled,
    /// A model call failed so, and the model is asked again.
    Retried(FailureClass),
    /// A model failed so, or is not asked for now, and another one is.
    FellBack(FailureClass),
    /// A second call was made beside one that said nothing yet, and the step goes on with this one of the two.
    Hedged(KeptCall),
    /// An upstream failed.
    UpstreamFailed(FailureClass),
    /// The model answered.
    Answered { latency_ms: u64, first_token_ms: Option<u64>, output_tokens: u64 },
    /// A model call took tokens.
    Took { usage: Usage, cost: Micros },
    /// A model call may have taken more than the run is charged for.
    Unconfirmed(Used),
    /// A step ended with its turn and the results of its tools. `total_ms` is the time from its begin, if the driver saw
    /// that.
    StepCompleted { total_ms: Option<u64> },
    /// A step's answer is void.
    StepDiscarded(DiscardReason),
    /// A server-side tool call has its result.
    ToolFinished { name: &'r str, outcome: &'r ToolOutcome },
    /// A run that a call begins is about to begin, or ended.
    Delegated(&'r Delegated),
    /// The run goes on as another agent.
    Handoff(&'r Handoff),
    /// A budget is four fifths used.
    BudgetWarned(BudgetOwner),
    /// A guard found something, or did something about it.
    Guarded(&'r Guarded),
    /// What a model is shown of a conversation was shortened, or could not be.
    Context(&'r ContextEvent),
    /// The run waits for its client.
    Waits(StopReason),
    /// The run ended. `total_ms` is the time that it was under way.
    Ended { reason: StopReason, total_ms: u64 },
}

/// Why a run was resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResumeCause {
    /// The replica that drove it died, or lost its lease.
    Crash,
    /// The replica that drove it was shut down.
    Handover,
    /// Its client answered.
    Client,
    /// Its wait for its client is over.
    WaitOver,
}

/// How an upstream failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureClass {
    /// Of this kind.
    Kind(ErrorKind),
    /// It broke off after its answer had begun.
    StreamBroke,
    /// It took the request and failed before it said anything.
    NoAnswer,
}

/// What of a run the next record is understood by.
#[derive(Debug, Clone)]
pub struct RunFold {
    created_ms: u64,
    model: Arc<StepModel>,
    /// What is reserved for the call that is under way.
    reserved: Reservation,
    /// When the step began that is under way.
    step_began_ms: Option<u64>,
    is_queued: bool,
    waits: bool,
    handed_off: bool,
    /// Whether somebody decided about the calls that it waited with, or their time was up.
    is_decided: Option<bool>,
    /// How the last step failed, if the run has not gone on since.
    failed: Option<FailureClass>,
    /// What failed, if the run is to stop for it.
    stopped_by: Option<ErrorKind>,
    is_stopping: bool,
    /// Whether its turns are its own, and no model makes them.
    is_composite: bool,
}

impl RunFold {
    /// Of a run that continues from `status` with this model. `handed_off` tells whether the last driver left it by
    /// order.
    #[must_use]
    pub fn new(spec: &RunSpec, model: Arc<StepModel>, status: RunStatus, handed_off: bool) -> Self {
        Self {
            created_ms: spec.created_ms,
            model,
            reserved: Reservation::default(),
            step_began_ms: None,
            is_queued: spec.queued_at.is_some(),
            waits: status == RunStatus::RequiresAction,
            handed_off,
            is_decided: None,
            failed: None,
            stopped_by: None,
            is_stopping: false,
            is_composite: spec.rules.composite.is_some(),
        }
    }

    /// Tells `observe` what a record adds to the counts, and the model that the run calls.
    pub fn apply<'r>(&mut self, record: &'r Record, mut observe: impl FnMut(&Arc<StepModel>, Observation<'r>)) {
        let observation = match &record.event {
            // The commonest, and nothing is counted of them.
            Event::ThinkingDelta { .. }
            | Event::TextDelta { .. }
            | Event::RefusalDelta { .. }
            | Event::ToolArgumentsDelta { .. }
            | Event::CallAllowed { .. }
            | Event::ApprovalRequired(_)
            | Event::ToolStarted { .. }
            | Event::ToolPending(_)
            | Event::QuestionAsked(_)
            | Event::QuestionResolved(_)
            | Event::ToolProgress { .. }
            | Event::LoopGuardTriggered(_)
            | Event::PlanCreated { .. }
            | Event::ReflectionStarted { .. }
            | Event::StopAfterStep
            | Event::ToolAnswered { .. }
            | Event::HookRan(_)
            | Event::StartHooked
            | Event::CommandsApplied { .. } => return,
            Event::RunQueued => Observation::Accepted,
            Event::RunStarted => self.start(record.at_ms),
            Event::ApprovalResolved(approval) => return self.is_decided = Some(!approval.is_expiry()),
            Event::RunResumed { leg } => Observation::Resumed(self.resume(leg.is_some())),
            Event::StepStarted { reserved, model, .. } => {
                self.begin_step(model.as_ref(), *reserved, record.at_ms);
                self.repeat(&mut observe);
                Observation::Reserved(*reserved)
            }
            Event::ProviderRetry { kind, .. } => {
                observe(&self.model, Observation::UpstreamFailed(FailureClass::Kind(*kind)));
                Observation::Retried(FailureClass::Kind(*kind))
            }
            Event::ProviderFallback(fell_back) => return self.fall_back(fell_back, &mut observe),
            Event::HedgeStarted(started) => Observation::Reserved(self.reserved.and(started.reserved)),
            Event::HedgeEnded(ended) => return self.drop_one_of_two(ended, &mut observe),
            Event::TurnFinished { turn, .. } => self.finish_turn(turn, &mut observe),
            Event::StepDiscarded { reason, usage, unconfirmed, .. } => {
                self.discard(*reason, &mut observe);
                observe(&self.model, self.took(*usage));
                Observation::Unconfirmed(*unconfirmed)
            }
            Event::BudgetWarning { owner, .. } => Observation::BudgetWarned(*owner),
            Event::Guarded(guarded) => {
                self.judge(guarded, &mut observe);
                Observation::Guarded(guarded)
            }
            Event::Context(event) => shorten(event, &mut observe),
            Event::ToolFinished { name, outcome, .. } => Observation::ToolFinished { name, outcome },
            Event::Delegated(delegated) => Observation::Delegated(delegated),
            Event::Handoff(handoff) => Observation::Handoff(handoff),
            Event::StepCompleted { .. } => self.complete_step(record.at_ms),
            Event::StopRequested { error, .. } => return self.stop(error.as_ref().map(|error| error.kind)),
            Event::HandedOff => return self.handed_off = true,
            Event::RunFinished(outcome) => self.finish(outcome),
        };
        observe(&self.model, observation);
    }

    fn complete_step<'r>(&mut self, at_ms: u64) -> Observation<'r> {
        let began_ms = self.step_began_ms.take();
        Observation::StepCompleted { total_ms: began_ms.map(|began_ms| at_ms.saturating_sub(began_ms)) }
    }

    fn finish_turn<'r>(
        &mut self,
        turn: &Turn,
        observe: &mut impl FnMut(&Arc<StepModel>, Observation<'r>),
    ) -> Observation<'r> {
        if self.is_composite {
            return Observation::Settled;
        }
        let Turn { latency_ms, first_token_ms, usage, .. } = *turn;
        observe(&self.model, Observation::Settled);
        let output_tokens = usage.completion_tokens;
        observe(&self.model, Observation::Answered { latency_ms, first_token_ms, output_tokens });
        self.took(usage)
    }

    fn begin_step(&mut self, model: Option<&Arc<StepModel>>, reserved: Reservation, at_ms: u64) {
        if let Some(model) = model {
            self.model.clone_from(model);
        }
        self.step_began_ms = Some(at_ms);
        self.reserved = reserved;
    }

    /// The run is to stop, because of this error if there was one.
    fn stop(&mut self, error: Option<ErrorKind>) {
        self.is_stopping = true;
        self.stopped_by = error;
    }

    /// A step begins: if the one before failed, the same model is asked again.
    fn repeat<'r>(&mut self, observe: &mut impl FnMut(&Arc<StepModel>, Observation<'r>)) {
        let Some(class) = self.failed.take() else { return };
        if class == FailureClass::NoAnswer {
            observe(&self.model, Observation::UpstreamFailed(class));
        }
        observe(&self.model, Observation::Retried(class));
    }

    fn fall_back<'r>(&mut self, to: &FellBack, observe: &mut impl FnMut(&Arc<StepModel>, Observation<'r>)) {
        let class = FailureClass::Kind(to.kind);
        if self.failed.take() == Some(FailureClass::NoAnswer) {
            observe(&self.model, Observation::UpstreamFailed(class));
        }
        observe(&self.model, Observation::FellBack(class));
        self.model.clone_from(&to.to);
    }

    fn drop_one_of_two<'r>(&mut self, ended: &HedgeEnded, observe: &mut impl FnMut(&Arc<StepModel>, Observation<'r>)) {
        let HedgeEnded { kept, to, dropped, usage, unconfirmed, failed, .. } = ended;
        if let Some((kind, _)) = failed {
            observe(dropped, Observation::UpstreamFailed(FailureClass::Kind(*kind)));
        }
        observe(dropped, Observation::Took { usage: *usage, cost: dropped.price.cost(usage) });
        observe(dropped, Observation::Unconfirmed(*unconfirmed));
        observe(&self.model, Observation::Hedged(*kept));
        if let Some(to) = to {
            self.model.clone_from(to);
        }
    }

    /// A guardrail's model is asked, or was: its call is counted as any other.
    fn judge<'r>(&self, guarded: &Guarded, observe: &mut impl FnMut(&Arc<StepModel>, Observation<'r>)) {
        if let Guarded::Judging(judging) = guarded {
            let beside = if judging.in_step { self.reserved } else { Reservation::default() };
            observe(&judging.model, Observation::Reserved(beside.and(judging.set_aside)));
        }
        let Guarded::Judged(Judged { verdict, latency_ms, call: Some(call), .. }) = guarded else { return };
        let (model, output_tokens) = (&call.model, call.usage.completion_tokens);
        if !call.in_step {
            observe(model, Observation::Settled);
        }
        if let Some(kind) = call.failed {
            observe(model, Observation::UpstreamFailed(FailureClass::Kind(kind)));
        } else if *verdict != Verdict::Dropped {
            observe(model, Observation::Answered { latency_ms: *latency_ms, first_token_ms: None, output_tokens });
        }
        observe(model, Observation::Took { usage: call.usage, cost: model.price.cost(&call.usage) });
        observe(model, Observation::Unconfirmed(call.unconfirmed));
    }

    fn start(&mut self, at_ms: u64) -> Observation<'static> {
        if std::mem::take(&mut self.is_queued) {
            Observation::Dequeued { waited_ms: at_ms.saturating_sub(self.created_ms) }
        } else {
            Observation::Accepted
        }
    }

    fn resume(&mut self, by_client: bool) -> ResumeCause {
        let by_client = self.is_decided.take().unwrap_or(by_client);
        // Nothing was done meanwhile.
        self.step_began_ms = None;
        let (waited, handed_off) = (std::mem::take(&mut self.waits), std::mem::take(&mut self.handed_off));
        match (by_client, waited, handed_off) {
            (true, ..) => ResumeCause::Client,
            (false, true, _) => ResumeCause::WaitOver,
            (false, false, true) => ResumeCause::Handover,
            (false, false, false) => ResumeCause::Crash,
        }
    }

    fn discard<'r>(&mut self, reason: DiscardReason, observe: &mut impl FnMut(&Arc<StepModel>, Observation<'r>)) {
        observe(&self.model, Observation::Settled);
        observe(&self.model, Observation::StepDiscarded(reason));
        let class = match reason {
            DiscardReason::StreamBroke => FailureClass::StreamBroke,
            DiscardReason::NoAnswer => self.stopped_by.map_or(FailureClass::NoAnswer, FailureClass::Kind),
            DiscardReason::Interrupted | DiscardReason::EmptyResponse => return,
        };
        // The next event says whether the same model is asked again, or another one, and then what failed.
        self.failed = Some(class).filter(|_| !self.is_stopping);
        if self.failed != Some(FailureClass::NoAnswer) {
            observe(&self.model, Observation::UpstreamFailed(class));
        }
    }

    fn took(&self, usage: Usage) -> Observation<'static> {
        Observation::Took { usage, cost: self.model.price.cost(&usage) }
    }

    fn finish(&mut self, outcome: &Outcome) -> Observation<'static> {
        let (reason, total_ms) = (outcome.reason, outcome.report.total_ms);
        if outcome.status() == RunStatus::RequiresAction {
            self.waits = true;
            Observation::Waits(reason)
        } else {
            Observation::Ended { reason, total_ms }
        }
    }
}

/// What came of a call, in a word.
#[must_use]
pub fn call_outcome(outcome: &ToolOutcome) -> &'static str {
    match outcome.ending {
        CallEnding::Answered if outcome.has_failed() => "error",
        CallEnding::Answered => "ok",
        CallEnding::Stopped => "stopped",
        CallEnding::Skipped => "skipped",
        CallEnding::Lost => "lost",
        CallEnding::Pending => "pending",
    }
}

/// A conversation was shortened, or is to be.
fn shorten<'r>(event: &'r ContextEvent, observe: &mut impl FnMut(&Arc<StepModel>, Observation<'r>)) -> Observation<'r> {
    summarise(event, observe);
    Observation::Context(event)
}

/// A model is asked for a summary or for what it writes down, or was: its call is counted as any other.
fn summarise<'r>(event: &ContextEvent, observe: &mut impl FnMut(&Arc<StepModel>, Observation<'r>)) {
    if let Some((_, model, reserved)) = event.asked() {
        return observe(model, Observation::Reserved(reserved));
    }
    let answered_in = match event {
        ContextEvent::Compacted(Compacted { latency_ms, .. }) => Some(*latency_ms),
        ContextEvent::FlushAnswered(answered) if !answered.lost => Some(answered.latency_ms),
        ContextEvent::Pruned(_)
        | ContextEvent::CompactionStarted(_)
        | ContextEvent::CompactionFailed(_)
        | ContextEvent::WindowLearned(_)
        | ContextEvent::FlushAsked(_)
        | ContextEvent::FlushAnswered(_)
        | ContextEvent::FlushCalled(_)
        | ContextEvent::FlushEnded(_) => None,
    };
    let Some((_, SummaryCall { model, usage, unconfirmed, .. })) = event.call() else { return };
    observe(model, Observation::Settled);
    if let Some(latency_ms) = answered_in {
        let output_tokens = usage.completion_tokens;
        observe(model, Observation::Answered { latency_ms, first_token_ms: None, output_tokens });
    }
    observe(model, Observation::Took { usage: *usage, cost: model.price.cost(usage) });
    observe(model, Observation::Unconfirmed(*unconfirmed));
}
