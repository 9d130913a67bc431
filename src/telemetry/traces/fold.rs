//! Makes spans of a run's records. Pure: no clock, no store.
//!
//! The run is the root, and its steps, waits and resumptions are parts of it. A step has a model call and tool calls.
//! When another replica resumes the run, spans that were open end where the log was left, and what goes on is a span of
//! its own within the resumption, with a link to what it continues. Times never go back, whatever the clocks of two
//! replicas say, so a span lies within its parent.

mod beside;
mod kept;

use super::calls::{Calls, Left};
use super::describe;
use super::names::{self, event};
use super::providers::Providers;
use super::span::{Moment, Room, Span};
use super::subject::Subject;
use crate::types::event::{DiscardReason, Reservation, Turn};
use crate::types::price::StepModel;
use crate::types::succession::Handoff;
use crate::types::trace::SpanId;
use crate::types::{
    BudgetStatus, CallId, Event, Outcome, Record, RunStatus, SpanKey, StopReason, ToolOutcome, TurnEnd, Usage,
};

/// Most spans of a trace, beside its root: those that begin first. Not a setting: viewers show no more.
const MOST_SPANS: usize = 5_000;

/// Most bytes of a trace that tell what was said, beside what is asked of the run. Once there is no room for what a span
/// says, no later span says anything. Not a setting: collectors take requests of four MiB.
const MOST_CONTENT: usize = 1 << 20;

/// Makes the spans of one run.
#[derive(Debug)]
pub struct SpanFold {
    subject: Subject,
    root: Span,
    queue: Option<Span>,
    wait: Option<Span>,
    resumption: Option<Span>,
    step: Option<Span>,
    model_call: Option<Span>,
    /// A model call that was interrupted, whose usage a later record says.
    cut_model_call: Option<Span>,
    /// Whether the model has spoken since it was asked.
    has_spoken: bool,
    calls: Calls,
    /// The model that is called.
    model: StepModel,
    /// The number of the newest step, and how many spans it had before the present one.
    newest_step: (u32, u32),
    waits: u32,
    resumptions: u32,
    handed_off: bool,
    /// Whether somebody decided about the calls that it waited with, or their time was up.
    is_decided: Option<bool>,
    done: Vec<Span>,
    room: Room,
    left_out: u64,
    /// How many bytes of what was said `done` tells, and whether there was more.
    content: usize,
    is_content_left_out: bool,
    now_ms: u64,
    status: RunStatus,
    providers: Providers,
}

impl SpanFold {
    /// Before the first record.
    #[must_use]
    pub fn new(subject: Subject, providers: Providers) -> Self {
        Self {
            root: describe::run(&subject),
            queue: None,
            wait: None,
            resumption: None,
            step: None,
            model_call: None,
            cut_model_call: None,
            has_spoken: false,
            calls: Calls::default(),
            model: StepModel::default(),
            newest_step: (0, 0),
            waits: 0,
            resumptions: 0,
            handed_off: false,
            is_decided: None,
            done: Vec::new(),
            room: Room(MOST_SPANS),
            left_out: 0,
            content: 0,
            is_content_left_out: false,
            now_ms: subject.created_ms,
            status: RunStatus::InProgress,
            subject,
            providers,
        }
    }

    /// The spans from here on are of another agent, which may keep what is said from traces.
    fn go_on_as(&mut self, handoff: &Handoff) {
        self.root.add(describe::handoff(handoff, self.now_ms));
        self.subject.go_on_as(&handoff.spec);
    }

    /// Takes in the next record.
    pub fn apply(&mut self, record: &Record) {
        let left_ms = self.now_ms;
        self.now_ms = left_ms.max(record.at_ms);
        match &record.event {
            Event::ThinkingDelta { .. }
            | Event::TextDelta { .. }
            | Event::RefusalDelta { .. }
            | Event::ToolArgumentsDelta { .. } => self.note_first_chunk(),
            Event::Delegated(delegated) => self.root.add(describe::delegated(delegated, self.now_ms)),
            Event::Handoff(handoff) => self.go_on_as(handoff),
            Event::ToolPending(pending) => self.calls.leave_pending(&pending.call_id, self.root.id),
            Event::ToolProgress { .. }
            | Event::CallAllowed { .. }
            | Event::ApprovalRequired(_)
            | Event::QuestionAsked(_)
            | Event::QuestionResolved(_)
            | Event::ToolAnswered { .. }
            | Event::StartHooked => {}
            Event::HookRan(ran) => self.root.add(describe::hook(ran, self.now_ms)),
            Event::RunQueued => self.queue(),
            Event::RunStarted => self.end_queue(),
            Event::ApprovalResolved(approval) => self.is_decided = Some(!approval.is_expiry()),
            Event::RunResumed { leg } => self.resume(leg.is_some(), left_ms),
            Event::StepStarted { step, reserved, model, closing } => {
                self.go_on_with_model(model.as_deref());
                self.begin_step(*step, *reserved, *closing);
            }
            Event::ProviderRetry { attempt, delay_ms, kind, .. } => {
                self.note_in_call(describe::retry(*attempt, *delay_ms, *kind, self.now_ms));
            }
            Event::ProviderFallback(fell_back) => {
                self.root.add(describe::fallback(fell_back, self.now_ms));
                self.model = StepModel::clone(&fell_back.to);
            }
            Event::HedgeStarted(started) => self.note_in_call(describe::hedge(started, self.now_ms)),
            Event::HedgeEnded(ended) => self.drop_one_of_two(ended),
            Event::TurnFinished { turn, .. } => self.finish_turn(turn),
            Event::StepDiscarded { reason, usage, .. } => self.discard(*reason, usage),
            Event::BudgetWarning { owner, kind, used, limit } => {
                self.root.add(describe::budget_warning(*owner, *kind, (*used, *limit), self.now_ms));
            }
            Event::Guarded(guarded) => self.guard(guarded),
            Event::Context(event) => self.shorten(event),
            Event::ToolStarted { step, call, effect } => {
                let (step, _) = self.go_on_with_step(*step);
                self.calls.start((&self.subject, &mut self.room), step, call, *effect, self.now_ms);
            }
            Event::ToolFinished { step, call_id, name, outcome } => self.finish_call(*step, (call_id, name), outcome),
            Event::StepCompleted { usage, turn_end, budget, .. } => self.complete_step(usage, turn_end, budget),
            Event::StopRequested { reason, .. } => self.note(event::STOP, [(names::REASON, reason.as_str().into())]),
            Event::StopAfterStep => self.note(event::STOP, [(names::REASON, StopReason::Cancelled.as_str().into())]),
            Event::LoopGuardTriggered(found) => self.root.add(describe::loop_guard(found, self.now_ms)),
            Event::PlanCreated { .. } => self.note(event::PLAN, []),
            Event::ReflectionStarted { .. } => self.note(event::REFLECTION, []),
            Event::CommandsApplied { .. } => self.note(event::COMMANDS, []),
            Event::HandedOff => self.hand_off(),
            Event::RunFinished(outcome) => self.finish(outcome),
        }
    }

    /// From this step on the run asks the model that the step names, if it names one.
    fn go_on_with_model(&mut self, model: Option<&StepModel>) {
        if let Some(model) = model {
            self.model = model.clone();
        }
    }

    fn finish_call(&mut self, step: u32, call: (&CallId, &str), outcome: &ToolOutcome) {
        let step = self.go_on_with_step(step);
        let spans = self.calls.finish((&self.subject, &mut self.room), step, call, outcome, self.now_ms);
        self.push_all(spans);
    }

    fn note_in_call(&mut self, moment: Moment) {
        let Some(span) = &mut self.model_call else { return };
        span.add(moment);
    }

    fn hand_off(&mut self) {
        self.handed_off = true;
        self.note(event::HANDED_OFF, []);
    }

    /// All spans, the root first. What the log has no end of ends with the log.
    #[must_use]
    pub fn into_spans(mut self) -> Vec<Span> {
        if !self.status.is_final() {
            let open = [&mut self.queue, &mut self.wait, &mut self.resumption, &mut self.step, &mut self.model_call];
            open.into_iter().flatten().for_each(|span| span.set(names::UNFINISHED, true));
            self.root.set(names::UNFINISHED, true);
            self.root.set(names::STATUS, self.status.as_str());
        }
        self.close_parts(Left::Unfinished);
        self.end(|fold| &mut fold.wait);
        if self.left_out > 0 {
            self.root.set(names::LEFT_OUT, self.left_out);
        }
        self.root.end_ms = self.now_ms;
        let mut spans = vec![self.root];
        spans.append(&mut self.done);
        spans
    }

    /// The run that it is of.
    #[must_use]
    pub fn subject(&self) -> &Subject {
        &self.subject
    }

    fn begin(&mut self, key: SpanKey<'_>, name: impl Into<String>) -> Span {
        let span = Span::begin(&self.subject.run, key, name, self.now_ms).within(self.stage());
        span.admitted(&mut self.room)
    }

    /// What steps are parts of: the run, or its newest resumption.
    fn stage(&self) -> SpanId {
        self.resumption.as_ref().map_or(self.root.id, |span| span.id)
    }

    fn queue(&mut self) {
        self.status = RunStatus::Queued;
        let mut span = self.begin(SpanKey::Queue, "queue").within(self.root.id);
        span.start_ms = self.root.start_ms;
        self.queue = Some(span);
    }

    fn end_queue(&mut self) {
        self.status = RunStatus::InProgress;
        self.end(|fold| &mut fold.queue);
    }

    fn begin_step(&mut self, step: u32, reserved: Reservation, closing: Option<StopReason>) {
        self.leave_step(Left::Unanswered);
        (self.newest_step, self.has_spoken) = ((step, 0), false);
        let mut span = self.begin(SpanKey::Step(step, 0), format!("step {step}"));
        span.set(names::STEP, step);
        if let Some(closing) = closing {
            span.set(names::CLOSING, closing.as_str());
        }
        if !self.subject.is_composite {
            let provider = self.providers.of(&self.model.upstream);
            let call = describe::model_call(&self.subject, (&self.model, provider), step, reserved, self.now_ms);
            self.model_call = Some(call.within(span.id).admitted(&mut self.room));
        }
        self.step = Some(span);
    }

    /// The span of this step, and when it began. One that was left goes on as another span, which has a link to it.
    fn go_on_with_step(&mut self, step: u32) -> (SpanId, u64) {
        if let Some(span) = &self.step {
            return (span.id, span.start_ms);
        }
        let before = (self.newest_step.0 == step).then_some(self.newest_step.1);
        let part = before.map_or(0, |part| part + 1);
        self.newest_step = (step, part);
        let mut span = self.begin(SpanKey::Step(step, part), format!("step {step}"));
        span.set(names::STEP, step);
        span.links.extend(before.map(|part| SpanId::of(&self.subject.run, SpanKey::Step(step, part))));
        let span = self.step.insert(span);
        (span.id, span.start_ms)
    }

    /// The first words of the model since it was asked.
    fn note_first_chunk(&mut self) {
        if std::mem::replace(&mut self.has_spoken, true) {
            return;
        }
        if let Some(call) = &mut self.model_call {
            let seconds = std::time::Duration::from_millis(self.now_ms - call.start_ms).as_secs_f64();
            call.set(names::FIRST_CHUNK, seconds);
        }
    }

    fn finish_turn(&mut self, turn: &Turn) {
        if let Some(call) = &mut self.model_call {
            describe::turn(call, &self.subject, turn, &self.model.price);
        }
        self.end(|fold| &mut fold.model_call);
    }

    fn discard(&mut self, reason: DiscardReason, usage: &Usage) {
        // Of a call that was interrupted together with its replica the log says here what it took.
        if let Some(mut call) = self.cut_model_call.take() {
            describe::usage(&mut call, usage, &self.model.price);
            return self.push(call);
        }
        if let Some(call) = &mut self.model_call {
            describe::usage(call, usage, &self.model.price);
            call.fail(reason.as_str(), "");
        }
        if let Some(step) = &mut self.step {
            step.set(names::DISCARDED, reason.as_str());
            step.fail(reason.as_str(), "");
        }
        self.close_step(Left::Unanswered);
    }

    fn complete_step(&mut self, usage: &Usage, turn_end: &TurnEnd, budget: &BudgetStatus) {
        if let Some(step) = &mut self.step {
            describe::step(step, usage, turn_end, budget);
        }
        self.close_step(Left::Unanswered);
    }

    /// Ends what is open where the last driver left it, and begins a resumption.
    fn resume(&mut self, by_client: bool, left_ms: u64) {
        self.status = RunStatus::InProgress;
        let by_client = self.is_decided.take().unwrap_or(by_client);
        let handed_off = std::mem::take(&mut self.handed_off);
        let cause = match (by_client, self.wait.is_some(), handed_off) {
            (true, ..) => "client",
            (false, true, _) => "wait_over",
            (false, false, true) => "handover",
            (false, false, false) => "crash",
        };
        let link = [&self.wait, &self.step, &self.resumption].into_iter().flatten().next().unwrap_or(&self.root).id;
        self.end(|fold| &mut fold.wait);
        let now_ms = std::mem::replace(&mut self.now_ms, left_ms);
        for span in [&mut self.model_call, &mut self.step].into_iter().flatten() {
            span.fail("interrupted", "");
        }
        if let Some(mut call) = self.model_call.take() {
            call.end_ms = left_ms;
            self.cut_model_call = Some(call);
        }
        let told = self.calls.interrupt(left_ms);
        self.push_all(told);
        self.end(|fold| &mut fold.step);
        self.end(|fold| &mut fold.resumption);
        self.now_ms = now_ms;
        self.resumptions += 1;
        let mut span = self.begin(SpanKey::Resumption(self.resumptions), "resumption");
        span.set(names::CAUSE, cause);
        span.links.push(link);
        self.resumption = Some(span);
        if self.calls.has_interrupted() {
            let (step, _) = self.go_on_with_step(self.newest_step.0);
            self.calls.resume((&self.subject, &mut self.room), step, self.now_ms);
        }
    }

    fn finish(&mut self, outcome: &Outcome) {
        self.status = outcome.status();
        if self.status.is_final() {
            self.close_parts(Left::Unanswered);
            return describe::outcome(&mut self.root, self.subject.content, outcome);
        }
        self.close_parts(Left::Waiting);
        self.waits += 1;
        let mut span = self.begin(SpanKey::Wait(self.waits), "wait for client");
        span.set(names::REASON, outcome.reason.as_str());
        self.wait = Some(span);
    }

    /// Ends every part of the run but a wait.
    fn close_parts(&mut self, left: Left) {
        self.leave_step(left);
        self.end(|fold| &mut fold.queue);
        self.end(|fold| &mut fold.resumption);
    }

    /// Ends the newest step, whatever of it is open.
    fn leave_step(&mut self, left: Left) {
        self.close_step(left);
        let call = self.cut_model_call.take();
        self.push_all(call);
    }

    fn close_step(&mut self, left: Left) {
        self.end(|fold| &mut fold.model_call);
        let left = self.calls.close(left, self.now_ms);
        self.push_all(left);
        self.end(|fold| &mut fold.step);
    }
}
