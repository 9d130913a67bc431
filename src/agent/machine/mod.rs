//! The loop as data: fold what happened with [`Run::apply`], ask what to do with [`Run::next_step`].
//!
//! No I/O, no clock, no async. Whoever replays a run's records gets the run; whoever stops after any
//! of them and asks again goes on as if nothing had happened. Every cycle spends something that is
//! bounded: iterations, discarded steps, resumptions.

pub mod budget;
mod elapsed;
mod ending;
mod next;

use std::sync::Arc;

use self::elapsed::Elapsed;
pub use self::next::Step;
use crate::agent::machine::budget::Used;
use crate::types::error::RunError;
use crate::types::event::{BudgetKind, DiscardReason, Reservation, Turn};
use crate::types::outcome::{CallReport, Report, StepReport};
use crate::types::run::RunSpec;
use crate::types::{
    CallId, Effect, Event, Message, Outcome, Record, RunStatus, StopReason, ToolCall, ToolOutcome, Usage,
};

/// How long a model call is taken to have gone on when nothing was recorded of it: as long as an upstream may
/// take to begin, by its settings' default.
const MODEL_SILENCE_MS: u64 = 30_000;

/// The result of a call that nobody will answer.
const UNANSWERED: &str = "The run ended before this call was answered.";

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
    /// How long it has been under way.
    elapsed: Elapsed,
    commands_applied: u64,
    /// What joins the conversation before the next model call.
    steering: Vec<Message>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    NotStarted,
    Ready,
    ModelRunning,
    /// The model's turn held neither text nor calls.
    EmptyTurn,
    AnsweringCalls,
    Answered,
    /// The client's turn: about to be said, or said.
    HandedOver {
        waits: bool,
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

/// Input tokens of the next call: what the upstream last counted, and four bytes a token for what came
/// since.
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
            spec,
            phase: Phase::NotStarted,
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
            elapsed: Elapsed::default(),
            commands_applied: 0,
            steering: Vec::new(),
        }
    }

    /// The run after `records`.
    #[must_use]
    pub fn replayed<'a>(mut self, records: impl IntoIterator<Item = &'a Record>) -> Self {
        for record in records {
            self.apply(record);
        }
        self
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

    /// How much of its time was left when the last thing happened, in milliseconds; waiting for the
    /// client does not count.
    #[must_use]
    pub fn left_ms(&self) -> u64 {
        self.spec.limits.timeout_ms.saturating_sub(self.elapsed.ms())
    }

    /// Whether it was told to stop, and will not even ask for a closing answer.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stop.is_some() && !self.wants_closing()
    }

    /// How many of the commands that were left for it are part of it.
    #[must_use]
    pub fn commands_applied(&self) -> u64 {
        self.commands_applied
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
            Phase::NotStarted => RunStatus::Queued,
            Phase::Ready
            | Phase::ModelRunning
            | Phase::EmptyTurn
            | Phase::AnsweringCalls
            | Phase::Answered
            | Phase::HandedOver { waits: false } => RunStatus::InProgress,
            Phase::HandedOver { waits: true } => RunStatus::RequiresAction,
            Phase::Ended(status) => status,
        }
    }

    /// Takes in what happened.
    pub fn apply(&mut self, record: &Record) {
        self.time(record);
        match &record.event {
            Event::RunStarted => self.phase = Phase::Ready,
            Event::RunResumed { answers } => self.resume(answers),
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
                self.commands_applied = *upto;
                self.steering.extend(messages.iter().cloned());
            }
            Event::RunFinished(outcome) => self.finish(outcome),
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

    /// Counts the time that a run spends, before its record is taken in.
    fn time(&mut self, record: &Record) {
        if matches!(self.phase, Phase::NotStarted | Phase::HandedOver { waits: true }) {
            self.elapsed.restart(record.at_ms);
        } else if matches!(record.event, Event::RunResumed { .. }) {
            self.elapsed.taken_over(record.at_ms, self.longest_silence_ms());
        } else {
            self.elapsed.pass(record.at_ms);
        }
    }

    /// How long nothing may be recorded while it goes on as it stands.
    fn longest_silence_ms(&self) -> u64 {
        let is_started = |open: &OpenCall| matches!(open.state, CallState::Started(_));
        match self.phase {
            Phase::ModelRunning => MODEL_SILENCE_MS,
            Phase::AnsweringCalls if self.calls.iter().any(is_started) => self.spec.limits.tool_timeout_ms,
            Phase::NotStarted
            | Phase::Ready
            | Phase::EmptyTurn
            | Phase::AnsweringCalls
            | Phase::Answered
            | Phase::HandedOver { .. }
            | Phase::Ended(_) => 0,
        }
    }

    fn resume(&mut self, answers: &[Message]) {
        if let Phase::HandedOver { waits: true } = self.phase {
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
            self.phase = Phase::EmptyTurn;
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
            (false, true) if self.stop.is_none() => Phase::HandedOver { waits: false },
            (false, _) => {
                self.close_calls(UNANSWERED);
                Phase::Ready
            }
        };
    }

    fn finish(&mut self, outcome: &Outcome) {
        if outcome.status() == RunStatus::RequiresAction {
            self.phase = Phase::HandedOver { waits: true };
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
        self.context.bytes_since += message.weight() as u64;
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
