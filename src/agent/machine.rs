//! The loop as data: fold what happened with [`Run::apply`], ask what to do with [`Run::next_step`].
//!
//! No I/O, no clock, no async. Whoever replays a run's records gets the run; whoever stops after any
//! of them and asks again goes on as if nothing had happened. Every cycle spends something that is
//! bounded: iterations, discarded steps, resumptions.

mod ending;

use std::sync::Arc;

use crate::agent::budget::{self, Purpose, Used};
use crate::types::event::{BudgetKind, DiscardReason, Reservation, Turn};
use crate::types::outcome::{CallReport, Report, RunError, StepReport};
use crate::types::run::{OnLimit, OnUnknownOutcome, RunSpec};
use crate::types::{
    CallId, Effect, Event, Message, Outcome, Record, RunStatus, StopReason, ToolCall, ToolOutcome, Usage,
};

/// How often a run may be taken over without getting further.
const MAX_RESUMES: u32 = 3;
/// How often a model may answer nothing.
const MAX_EMPTY: u32 = 1;

/// The result of a call that nobody will answer.
const UNANSWERED: &str = "The run ended before this call was answered.";

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
    /// Void what the model said in this step.
    DiscardStep(DiscardReason),
    /// Say that a budget is nearly used.
    WarnBudget { kind: BudgetKind, used: u64, limit: u64 },
    /// Dispatch these calls. One that had begun before a crash may be repeated.
    RunTools(Vec<ToolCall>),
    /// Answer these calls, which a crash interrupted and which must not be repeated.
    SettleUnknown { calls: Vec<ToolCall>, policy: OnUnknownOutcome },
    /// Answer these calls without dispatching them: the run is to stop.
    SkipTools(Vec<ToolCall>),
    /// Every server-side call is answered.
    CompleteStep,
    /// End the run, or hand it to its client.
    Finish(StopReason),
    /// Nothing: it ended, or waits.
    Done,
}

/// A run: the fold of its records.
#[derive(Debug, Clone)]
pub struct Run {
    spec: Arc<RunSpec>,
    phase: Phase,
    /// Its input, then what it added.
    messages: Vec<Message>,
    step: u32,
    iterations: u32,
    calls: Vec<OpenCall>,
    calls_minted: u16,
    stop: Option<(StopReason, Option<RunError>)>,
    limit: Option<StopReason>,
    reserved: Reservation,
    usage: Usage,
    used: Used,
    warned: Vec<BudgetKind>,
    broken: u32,
    empty: u32,
    resumes: u32,
    context: ContextEstimate,
    last_turn: Turn,
    tool_calls: u32,
    report: Report,
    started_ms: u64,
    paused_ms: u64,
    mail_read: u64,
    /// What joins the conversation before the next model call.
    steering: Vec<Message>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Unborn,
    Ready,
    ModelRunning,
    /// The model's turn held neither text nor calls.
    SaidNothing,
    AnsweringCalls,
    Answered,
    HandedOver {
        since_ms: Option<u64>,
    },
    Ended(RunStatus),
}

#[derive(Debug, Clone)]
struct OpenCall {
    call: ToolCall,
    executor: Executor,
    state: CallState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Executor {
    Server,
    Client,
}

#[derive(Debug, Clone, PartialEq)]
enum CallState {
    Pending,
    Started(Effect),
    Finished(ToolOutcome),
}

/// Input tokens of the next call: what the upstream last counted, and four characters a token for what
/// came since.
#[derive(Debug, Clone, Copy)]
struct ContextEstimate {
    counted: u64,
    bytes_since: u64,
}

impl Run {
    /// A run of which nothing happened yet.
    #[must_use]
    pub fn new(spec: Arc<RunSpec>) -> Self {
        let context = ContextEstimate { counted: spec.context_tokens, bytes_since: 0 };
        Self {
            messages: spec.input.clone(),
            started_ms: spec.created_ms,
            spec,
            phase: Phase::Unborn,
            step: 0,
            iterations: 0,
            calls: Vec::new(),
            calls_minted: 0,
            stop: None,
            limit: None,
            reserved: Reservation::default(),
            usage: Usage::default(),
            used: Used::default(),
            warned: Vec::new(),
            broken: 0,
            empty: 0,
            resumes: 0,
            context,
            last_turn: Turn::default(),
            tool_calls: 0,
            report: Report::default(),
            paused_ms: 0,
            mail_read: 0,
            steering: Vec::new(),
        }
    }

    /// What it was asked to do.
    #[must_use]
    pub fn spec(&self) -> &Arc<RunSpec> {
        &self.spec
    }

    /// Its own messages: the input, then what it added.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Its own messages once every open call has a result: what its session gets when it ends.
    #[must_use]
    pub fn final_messages(&self) -> Vec<Message> {
        let mut ended = self.clone();
        ended.close_calls(UNANSWERED);
        ended.messages.append(&mut ended.steering);
        ended.messages
    }

    /// What is set aside for a model call in flight.
    #[must_use]
    pub fn reserved(&self) -> Reservation {
        self.reserved
    }

    /// What it used of its budgets.
    #[must_use]
    pub fn used(&self) -> Used {
        self.used
    }

    /// The current step, counted from 1; 0 before the first.
    #[must_use]
    pub fn step(&self) -> u32 {
        self.step
    }

    /// How many tool calls it has named; the next id bears the next number.
    #[must_use]
    pub fn calls_minted(&self) -> u16 {
        self.calls_minted
    }

    /// Whether another step may be voided because its stream broke.
    #[must_use]
    pub fn may_discard(&self) -> bool {
        self.broken < self.spec.max_discards
    }

    /// When its deadline passes, Unix milliseconds; waiting for the client does not count.
    #[must_use]
    pub fn deadline_ms(&self) -> u64 {
        self.started_ms.saturating_add(self.spec.limits.timeout_ms).saturating_add(self.paused_ms)
    }

    /// Whether it was told to stop.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stop.is_some()
    }

    /// How many of the letters that were left for it are part of it.
    #[must_use]
    pub fn mail_read(&self) -> u64 {
        self.mail_read
    }

    /// What is known of the newest model call that counted.
    #[must_use]
    pub fn last_step(&self) -> Option<&StepReport> {
        self.report.steps.last()
    }

    /// How many model calls counted.
    #[must_use]
    pub fn iterations(&self) -> u32 {
        self.iterations
    }

    /// Whether this call's intent is recorded.
    #[must_use]
    pub fn has_started(&self, call: &CallId) -> bool {
        self.calls.iter().any(|open| open.call.id == *call && matches!(open.state, CallState::Started(_)))
    }

    /// The client's calls that it waits for.
    #[must_use]
    pub fn required_calls(&self) -> Vec<ToolCall> {
        self.calls.iter().filter(|open| open.executor == Executor::Client).map(|open| open.call.clone()).collect()
    }

    /// Where it stands.
    #[must_use]
    pub fn status(&self) -> RunStatus {
        match self.phase {
            Phase::Unborn => RunStatus::Queued,
            Phase::Ready
            | Phase::ModelRunning
            | Phase::SaidNothing
            | Phase::AnsweringCalls
            | Phase::Answered
            | Phase::HandedOver { since_ms: None } => RunStatus::InProgress,
            Phase::HandedOver { since_ms: Some(_) } => RunStatus::RequiresAction,
            Phase::Ended(status) => status,
        }
    }

    /// What to do now.
    #[must_use]
    pub fn next_step(&self) -> Step {
        match self.phase {
            Phase::Ended(_) => Step::Done,
            Phase::Unborn | Phase::HandedOver { since_ms: Some(_) } => {
                self.stop.as_ref().map_or(Step::Done, |(reason, _)| Step::Finish(*reason))
            }
            Phase::Ready => self.next_call(),
            Phase::ModelRunning => Step::DiscardStep(DiscardReason::Interrupted),
            Phase::SaidNothing => Step::DiscardStep(DiscardReason::EmptyResponse),
            Phase::AnsweringCalls => self.next_answer(),
            Phase::Answered => Step::Finish(self.end_reason()),
            Phase::HandedOver { since_ms: None } => Step::Finish(StopReason::ClientTools),
        }
    }

    /// Takes in what happened.
    pub fn apply(&mut self, record: &Record) {
        let at_ms = record.at_ms;
        match &record.event {
            Event::RunStarted => {
                self.phase = Phase::Ready;
                self.started_ms = at_ms;
            }
            Event::RunResumed { answers } => self.resume(answers, at_ms),
            Event::StepStarted { step, reserved, closing } => {
                self.phase = Phase::ModelRunning;
                self.step = *step;
                self.reserved = *reserved;
                self.limit = *closing;
            }
            Event::TurnFinished { turn, .. } => self.finish_turn(turn),
            Event::StepDiscarded { reason, usage, .. } => self.discard(*reason, *usage),
            Event::BudgetWarning { kind, .. } => self.warned.push(*kind),
            Event::ToolStarted { call, effect, .. } => self.set_call(call, CallState::Started(*effect)),
            Event::ToolFinished { call_id, outcome, .. } => {
                if let Some(call) =
                    self.calls.iter().find(|open| open.call.id == *call_id).map(|open| open.call.clone())
                {
                    self.finish_call(&call, outcome);
                }
            }
            Event::StepCompleted { .. } => self.complete_step(),
            Event::StopRequested { reason, error } => {
                match &self.stop {
                    // A second reason to stop leaves no room for a closing answer after the first.
                    Some((first, _)) => self.limit = self.limit.or(Some(*first)),
                    None => self.stop = Some((*reason, error.clone())),
                }
            }
            Event::MailRead { upto, messages } => {
                self.mail_read = *upto;
                self.steering.extend(messages.iter().cloned());
            }
            Event::RunFinished(outcome) => self.finish(outcome, at_ms),
            Event::RunQueued
            | Event::ThinkingDelta { .. }
            | Event::TextDelta { .. }
            | Event::ToolArgumentsDelta { .. }
            | Event::ProviderRetry { .. } => {}
        }
        self.steer();
    }

    /// Lets what the caller said meanwhile join the conversation where a message of its own may stand:
    /// before the next model call, which there is one more of if the run was about to end.
    fn steer(&mut self) {
        let answered = self.phase == Phase::Answered && self.stop.is_none() && self.limit.is_none();
        if !self.steering.is_empty() && (answered || self.phase == Phase::Ready) {
            self.phase = Phase::Ready;
            for message in std::mem::take(&mut self.steering) {
                self.push(message);
            }
        }
    }

    fn next_call(&self) -> Step {
        let synthesize = self.spec.on_limit == OnLimit::Synthesize && self.limit.is_none();
        if let Some((reason, _)) = &self.stop {
            let closing = self.closing_call(*reason).filter(|_| self.wants_closing());
            return closing.unwrap_or(Step::Finish(*reason));
        }
        if self.resumes > MAX_RESUMES {
            return Step::Finish(StopReason::CrashLoop);
        }
        if self.empty > MAX_EMPTY {
            return Step::Finish(StopReason::EmptyResponse);
        }
        if let Some((kind, used, limit)) = budget::due_warning(&self.spec.limits, self.used, &self.warned) {
            return Step::WarnBudget { kind, used, limit };
        }
        if let Some(limit) = self.limit {
            // The closing answer was voided: there is no second one.
            return Step::Finish(limit);
        }
        let planned = if self.iterations >= self.spec.limits.max_iterations {
            Err(StopReason::MaxIterations)
        } else {
            let purpose = Purpose::Step { keep_reserve: synthesize };
            budget::plan(&self.spec, self.used, self.context.tokens(), purpose)
        };
        match planned {
            Ok(reserve) => Step::CallModel { step: self.step + 1, reserve, closing: None },
            Err(limit) if synthesize => self.closing_call(limit).unwrap_or(Step::Finish(limit)),
            Err(limit) => Step::Finish(limit),
        }
    }

    /// Whether time ran out and a closing answer is still to be asked for.
    fn wants_closing(&self) -> bool {
        let timeout = matches!(&self.stop, Some((StopReason::Timeout, _)));
        timeout && self.spec.on_limit == OnLimit::Synthesize && self.limit.is_none()
    }

    fn closing_call(&self, limit: StopReason) -> Option<Step> {
        let reserve = budget::plan(&self.spec, self.used, self.context.tokens(), Purpose::Closing).ok()?;
        Some(Step::CallModel { step: self.step + 1, reserve, closing: Some(limit) })
    }

    fn next_answer(&self) -> Step {
        let with = |wanted: &dyn Fn(&CallState) -> bool| -> Vec<ToolCall> {
            let ours = self.calls.iter().filter(|open| open.executor == Executor::Server);
            ours.filter(|open| wanted(&open.state)).map(|open| open.call.clone()).collect()
        };
        let interrupted = with(&|state| *state == CallState::Started(Effect::Write));
        if !interrupted.is_empty() {
            return Step::SettleUnknown { calls: interrupted, policy: self.spec.on_unknown_outcome };
        }
        let open = with(&|state| !matches!(state, CallState::Finished(_)));
        match (open.is_empty(), &self.stop) {
            (true, _) => Step::CompleteStep,
            (false, Some(_)) => Step::SkipTools(open),
            (false, None) if self.resumes > MAX_RESUMES => Step::SkipTools(open),
            (false, None) => Step::RunTools(open),
        }
    }

    fn end_reason(&self) -> StopReason {
        if let Some((reason, _)) = &self.stop {
            return *reason;
        }
        self.limit.unwrap_or(match self.last_turn.finish_reason.as_str() {
            "length" => StopReason::Length,
            _ => StopReason::Done,
        })
    }

    fn resume(&mut self, answers: &[Message], at_ms: u64) {
        if let Phase::HandedOver { since_ms } = self.phase {
            self.paused_ms += since_ms.map_or(0, |since| at_ms.saturating_sub(since));
            self.push_results();
            for answer in answers {
                self.push(answer.clone());
            }
            self.phase = Phase::Ready;
        } else {
            self.resumes += 1;
        }
    }

    fn finish_turn(&mut self, turn: &Turn) {
        self.settle(turn.usage);
        self.report.llm_time_ms += turn.latency_ms;
        self.report.steps.push(StepReport {
            index: self.step,
            llm_latency_ms: turn.latency_ms,
            tool_latency_ms: 0,
            usage: turn.usage,
            finish_reason: turn.finish_reason.clone(),
            tool_calls: Vec::new(),
        });
        self.last_turn = turn.clone();
        self.resumes = 0;
        if turn.text.is_empty() && turn.calls.is_empty() && turn.finish_reason != "length" && self.stop.is_none() {
            self.phase = Phase::SaidNothing;
            self.empty += 1;
            return;
        }
        self.iterations += 1;
        self.calls = turn.calls.iter().map(|call| self.open(call)).collect();
        self.calls_minted += u16::try_from(turn.calls.len()).unwrap_or(u16::MAX);
        if !(turn.text.is_empty() && turn.calls.is_empty()) {
            self.push(Message::assistant(&turn.text, &turn.calls));
        }
        if !turn.usage.estimated {
            self.context = ContextEstimate { counted: turn.usage.total(), bytes_since: 0 };
        }
        self.phase = Phase::AnsweringCalls;
    }

    fn open(&self, call: &ToolCall) -> OpenCall {
        let is_clients = self.spec.client_tools.iter().any(|tool| tool.name == call.name);
        let executor = if is_clients { Executor::Client } else { Executor::Server };
        OpenCall { call: call.clone(), executor, state: CallState::Pending }
    }

    fn discard(&mut self, reason: DiscardReason, usage: Usage) {
        self.settle(usage);
        self.phase = Phase::Ready;
        self.last_turn = Turn::default();
        match reason {
            DiscardReason::StreamBroke => self.broken += 1,
            DiscardReason::Interrupted | DiscardReason::EmptyResponse => {}
        }
    }

    fn settle(&mut self, usage: Usage) {
        self.usage += usage;
        self.used.tokens = self.used.tokens.saturating_add(usage.total());
        self.used.cost += self.spec.price.cost(&usage);
        self.reserved = Reservation::default();
    }

    fn set_call(&mut self, call: &ToolCall, state: CallState) {
        if let Some(open) = self.calls.iter_mut().find(|open| open.call.id == call.id) {
            open.state = state;
        }
    }

    fn finish_call(&mut self, call: &ToolCall, outcome: &ToolOutcome) {
        self.set_call(call, CallState::Finished(outcome.clone()));
        self.tool_calls += 1;
        if !outcome.skipped {
            self.resumes = 0;
        }
        self.report.tool_time_ms += outcome.latency_ms;
        if let Some(step) = self.report.steps.last_mut() {
            step.tool_latency_ms += outcome.latency_ms;
            step.tool_calls.push(CallReport {
                call_id: call.id.clone(),
                name: call.name.clone(),
                arguments: call.arguments.clone(),
                result_bytes: outcome.content.len() as u64,
                latency_ms: outcome.latency_ms,
                skipped: outcome.skipped,
                error: outcome.is_error.then(|| outcome.content.clone()),
            });
        }
    }

    fn complete_step(&mut self) {
        if let Some(step) = self.report.steps.last_mut() {
            let order = |report: &CallReport| self.calls.iter().position(|open| open.call.id == report.call_id);
            step.tool_calls.sort_by_key(order);
        }
        let clients = self.calls.iter().any(|open| open.executor == Executor::Client);
        self.phase = match (self.calls.is_empty(), clients) {
            // Time ran out while the model spoke: what is held back of it is for the closing answer.
            (true, _) if self.wants_closing() => Phase::Ready,
            (true, _) => Phase::Answered,
            (false, true) if self.stop.is_none() => Phase::HandedOver { since_ms: None },
            (false, _) => {
                self.close_calls(UNANSWERED);
                Phase::Ready
            }
        };
    }

    fn finish(&mut self, outcome: &Outcome, at_ms: u64) {
        if outcome.status() == RunStatus::RequiresAction {
            self.phase = Phase::HandedOver { since_ms: Some(at_ms) };
            return;
        }
        self.close_calls(UNANSWERED);
        self.phase = Phase::Ended(outcome.status());
    }

    /// Adds the server's results in call order; the client's come with its answers.
    fn push_results(&mut self) {
        for open in std::mem::take(&mut self.calls) {
            if let CallState::Finished(outcome) = open.state {
                self.push(Message::tool(&open.call.id, &outcome.content));
            }
        }
    }

    /// The one place where a call that nobody will answer gets its result, so that every call has one.
    fn close_calls(&mut self, why: &str) {
        for open in &mut self.calls {
            if !matches!(open.state, CallState::Finished(_)) {
                open.state = CallState::Finished(ToolOutcome::skipped(why));
            }
        }
        self.push_results();
    }

    fn push(&mut self, message: Message) {
        self.context.bytes_since += message.json().len() as u64;
        self.messages.push(message);
    }
}

impl ContextEstimate {
    fn tokens(self) -> u64 {
        self.counted.saturating_add(self.bytes_since.div_ceil(4))
    }
}

#[cfg(test)]
pub(in crate::agent) mod tests;
