//! How each event changes a run's state.

use std::sync::Arc;

use super::beside::Beside;
use super::calls::{CallState, OpenCall};
use super::fitted::{ContextEstimate, sent_back};
use super::{Phase, Run, Stop, UNANSWERED};
use crate::types::conversation::{Extra, Parts};
use crate::types::event::{Decision, DiscardReason, Leg, Reservation, Turn};
use crate::types::price::StepModel;
use crate::types::report::{CallReport, DecisionReport, StepReport};
use crate::types::run::OnUnknownOutcome;
use crate::types::tool::CallEnding;
use crate::types::{
    BudgetOwner, CallId, Event, Message, Outcome, Record, Role, RunStatus, StopReason, ToolCall, ToolOutcome, TurnEnd,
    Usage, Used,
};

/// How long a model call without a record is taken to have lasted: as long as an upstream may take to begin, by
/// default.
const MODEL_SILENCE_MS: u64 = 30_000;

impl Run {
    /// Takes in what happened.
    pub fn apply(&mut self, record: &Record) {
        self.time(record);
        match &record.event {
            Event::RunStarted => self.phase = Phase::Ready,
            Event::RunResumed { leg } => self.resume(leg.as_ref()),
            Event::StepStarted { step, reserved, model, closing } => {
                if let Some(model) = model {
                    self.model = model.clone();
                }
                (self.phase, self.limit, self.step, self.reserved) = (Phase::ModelRunning, *closing, *step, *reserved);
                (self.beside, self.answer_bytes) = (Beside::default(), 0);
                self.from_tools.begin_step();
            }
            Event::ProviderFallback(fell_back) => self.fall_back(&fell_back.to),
            Event::HedgeStarted(started) => self.begin_hedge(started),
            Event::HedgeEnded(ended) => self.end_hedge(ended),
            Event::TurnFinished { turn, .. } => self.finish_turn(turn),
            Event::StepDiscarded { reason, usage, unconfirmed, .. } => {
                self.unconfirmed += *unconfirmed;
                self.discard(*reason, *usage);
            }
            Event::TextDelta { text, .. } | Event::RefusalDelta { text, .. } | Event::ThinkingDelta { text, .. } => {
                self.answer_bytes += text.len();
            }
            Event::ToolArgumentsDelta { delta, .. } => self.answer_bytes += delta.len(),
            Event::Guarded(guarded) => self.take_guarded(guarded),
            Event::Context(event) => self.take_context(event),
            Event::BudgetWarning { owner: BudgetOwner::Run, kind, .. } => self.warned.push(*kind),
            Event::CallAllowed { call_id, arguments } => self.change(call_id, |open| open.allow(arguments.as_ref())),
            Event::ApprovalRequired(request) => self.change(&request.call.id, |open| open.ask(request)),
            Event::ApprovalResolved(approval) => self.decide(approval),
            Event::ToolStarted { call, effect, .. } => self.change(&call.id, |open| open.start(*effect)),
            Event::Delegated(delegated) => self.take_delegated(delegated),
            Event::Handoff(handoff) => self.take_handoff(handoff),
            Event::ToolPending(pending) => self.change(&pending.call_id, |open| open.defer(pending)),
            Event::QuestionAsked(asked) => self.from_tools.rare().questions.ask(asked),
            Event::QuestionResolved(resolved) => self.from_tools.rare().questions.resolve(resolved),
            Event::ToolAnswered { call_id, outcome } => self.change(call_id, |open| open.take_answer(outcome)),
            Event::ToolFinished { call_id, outcome, .. } => self.finish_call(call_id, outcome),
            Event::HookRan(ran) => self.hook_ran(ran),
            Event::StartHooked => self.start_hooked = true,
            Event::StepCompleted { .. } => self.complete_step(),
            Event::StopRequested { reason, error, short } => {
                self.stop_for(Stop { reason: *reason, error: error.clone(), short: *short });
            }
            Event::LoopGuardTriggered(_) => self.note_finding(),
            Event::PlanCreated { .. } => self.prompts.is_planned = true,
            Event::ReflectionStarted { .. } => self.prompts.begin_reflection(),
            Event::StopAfterStep => self.stops_after_step = true,
            Event::CommandsApplied { upto, messages } => self.take_commands(*upto, messages),
            Event::HandedOff => self.handed_off = true,
            Event::RunFinished(outcome) => self.finish(outcome),
            // Another budget is not the run's to count.
            Event::BudgetWarning { owner: BudgetOwner::Session | BudgetOwner::Key | BudgetOwner::Tree, .. }
            | Event::RunQueued
            | Event::ProviderRetry { .. }
            | Event::ToolProgress { .. } => {}
        }
        self.settle_between_steps();
    }

    /// Counts the time that a run spends, before its record is taken in.
    fn time(&mut self, record: &Record) {
        if matches!(self.phase, Phase::HandedOver { waits: true }) && self.children().next().is_some() {
            // The time of the runs that it began is its own.
            self.elapsed.taken_over(record.at_ms, self.spec.rules.delegation.timeout_ms);
        } else if matches!(self.phase, Phase::NotStarted | Phase::HandedOver { waits: true }) {
            self.elapsed.restart(record.at_ms);
        } else if matches!(record.event, Event::RunResumed { .. }) {
            self.elapsed.taken_over(record.at_ms, self.longest_silence_ms());
        } else {
            self.elapsed.pass(record.at_ms);
        }
    }

    /// How long the run may record nothing in its present state.
    fn longest_silence_ms(&self) -> u64 {
        let is_started = |open: &OpenCall| open.started().is_some();
        match self.phase {
            _ if self.open_judging().is_some() || self.open_compaction().is_some() || self.flush().is_some() => {
                MODEL_SILENCE_MS
            }
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

    fn resume(&mut self, leg: Option<&Leg>) {
        if let Phase::HandedOver { waits: true } = self.phase {
            self.take_answers(leg);
        } else {
            // A replica that was shut down did not die of the run.
            if !std::mem::take(&mut self.handed_off) {
                self.resumes += 1;
            }
            self.calls.iter_mut().for_each(OpenCall::interrupt);
            self.from_tools.rare.iter_mut().for_each(|rare| rare.questions.interrupt());
        }
    }

    /// Applies the answers and decisions of the client's request. Calls that are made again come first; the client's
    /// other messages wait for them.
    fn take_answers(&mut self, leg: Option<&Leg>) {
        if self.calls.iter().any(OpenCall::is_open) {
            // It waited for approvals, before any of its calls was made, or for services.
            self.phase = Phase::AnsweringCalls;
            return self.take_leg(leg);
        }
        for open in &mut self.calls {
            // Without an answer of the client the outcome stays unknown.
            let decision = leg.map_or(Some(Decision::Skip), |leg| leg.decision(&open.call.id));
            if let Some(decision) = decision {
                open.decide(decision);
            }
        }
        let (retried, answered) = std::mem::take(&mut self.calls).into_iter().partition(OpenCall::is_open);
        self.calls = answered;
        self.push_results();
        self.calls = retried;
        self.is_retrying = !self.calls.is_empty();
        self.phase = if self.is_retrying { Phase::AnsweringCalls } else { Phase::Ready };
        self.take_leg(leg);
    }

    /// Takes in what a request brings beside decisions.
    fn take_leg(&mut self, leg: Option<&Leg>) {
        let Some(leg) = leg else { return };
        (self.leg, self.leg_usage) = (leg.number, Usage::default());
        self.max_discards = leg.asked.options.max_discards;
        self.needs_no_reader |= leg.asked.options.response.as_ref().is_some_and(|response| response.background);
        self.found.extend(&leg.guarded);
        self.claims = std::mem::take(&mut self.claims).into_iter().chain(leg.claim.clone()).collect();
        for warning in &leg.warnings {
            if !self.warnings.contains(warning) {
                self.warnings.push(warning.clone());
            }
        }
        if !leg.answers.is_empty() {
            // The model has something else to go by now.
            self.loop_guard = None;
        }
        for answer in leg.answers.iter().cloned() {
            if self.is_retrying && answer.role != Role::Tool {
                self.steering.push(answer);
            } else {
                self.push(answer);
            }
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
            cost: self.model.price.cost(&turn.usage),
            fallback: (self.place > 0).then(|| self.model.full_name()),
            turn_end: turn.end.clone(),
            tool_calls: Vec::new(),
        });
        self.last_turn = turn.clone();
        self.last_turn.parts.splice(..0, self.paused.iter().cloned());
        self.resumes = 0;
        self.unanswered = 0;
        (self.left, self.failures) = (0, 0);
        self.note_input(turn.usage.prompt_tokens);
        // Asked again, a model that was kept from answering would say nothing again. One that thought for all of its
        // turn is paid for that, and may do it again.
        let was_cut = matches!(turn.end, TurnEnd::Length | TurnEnd::ContentFilter);
        if turn.is_empty() && !was_cut && self.stop.is_none() {
            self.phase = Phase::EmptyTurn;
            self.empty += 1;
            return;
        }
        // An answer that paused goes on, until a turn ends it.
        self.paused = if turn.end == TurnEnd::Paused { self.last_turn.parts.clone() } else { Vec::new() };
        self.iterations += u32::from(self.spec.rules.composite.is_none());
        self.prompts.is_reflecting = false;
        self.open_calls(turn.calls());
        if !turn.says_nothing() {
            // Thinking without a seal is sent to no model again. Readers find it in the log's turn.
            let list = turn.parts.iter().filter(|part| !part.is_unsealed_thinking()).cloned().collect();
            let parts = Parts { list, extra: Extra::default() };
            self.push(Message::from_parts(Role::Assistant, parts).from(self.step_origin()));
        }
        if !turn.usage.estimated {
            self.context = ContextEstimate { counted: sent_back(turn), bytes_since: 0 };
        }
        self.phase = Phase::AnsweringCalls;
    }

    fn discard(&mut self, reason: DiscardReason, usage: Usage) {
        self.settle(usage);
        self.phase = Phase::Ready;
        self.last_turn = Turn { parts: self.paused.clone(), ..Turn::default() };
        match reason {
            DiscardReason::StreamBroke => {
                self.broken += 1;
                self.failures += 1;
            }
            DiscardReason::NoAnswer => {
                self.unanswered += 1;
                self.failures += 1;
            }
            DiscardReason::Interrupted | DiscardReason::EmptyResponse => {}
        }
    }

    fn settle(&mut self, usage: Usage) {
        let model = self.model.clone();
        self.charge(&model, self.place, usage);
        self.reserved = Reservation::default();
        self.beside = Beside::default();
        self.settle_judges();
    }

    /// Charges what a call of this model took, whose place among the run's is this.
    pub(super) fn charge(&mut self, model: &Arc<StepModel>, place: usize, usage: Usage) -> Used {
        self.usage += usage;
        self.leg_usage += usage;
        let used = model.price.used(&usage);
        self.used += used;
        if place > 0 {
            self.count_of_fallback(model, usage, used.cost);
        }
        if !model.price_origin.is_known() && used.tokens > 0 && !self.unpriced.contains(model) {
            self.unpriced = self.unpriced.iter().chain([model]).cloned().collect();
        }
        used
    }

    fn call_mut(&mut self, id: &CallId) -> Option<&mut OpenCall> {
        self.calls.iter_mut().find(|open| open.call.id == *id)
    }

    /// Changes the open call of this id, if there is one.
    fn change(&mut self, id: &CallId, change: impl FnOnce(&mut OpenCall)) {
        if let Some(open) = self.call_mut(id) {
            change(open);
        }
    }

    fn finish_call(&mut self, id: &CallId, outcome: &ToolOutcome) {
        let policy = self.spec.options.on_unknown_outcome;
        let asks = policy == OnUnknownOutcome::Ask && self.stop.is_none() && !self.stops_after_step;
        self.context.bytes_since += self.from_tools.add(outcome, self.spec.search);
        self.from_tools.rare.iter_mut().for_each(|rare| rare.questions.end_call(id));
        let Some(open) = self.call_mut(id) else { return };
        open.finish(outcome, asks);
        let (call, decisions) = (open.call.clone(), std::mem::take(&mut open.decisions));
        if self.stop.is_none() {
            self.stop = self.stop_after(&call, outcome).map(Box::new);
        }
        if !outcome.ending.is_without_answer() {
            self.resumes = 0;
        }
        self.report_call(&call, decisions, outcome);
        if self.is_retrying && !self.calls.iter().any(OpenCall::is_open) {
            self.end_answers();
        }
    }

    /// Puts what came of a call into the report, in place of what came of it before.
    fn report_call(&mut self, call: &ToolCall, decisions: Vec<DecisionReport>, outcome: &ToolOutcome) {
        self.report.tool_time_ms += outcome.latency_ms;
        let Some(step) = self.report.steps.last_mut() else { return };
        step.tool_latency_ms += outcome.latency_ms;
        let report = CallReport {
            call_id: call.id.clone(),
            name: call.name.clone(),
            arguments: call.arguments.clone(),
            result_bytes: outcome.text().len() as u64,
            latency_ms: outcome.latency_ms,
            skipped: outcome.ending == CallEnding::Skipped,
            outcome_unknown: outcome.ending == CallEnding::Lost,
            error: outcome.is_error.then(|| outcome.text().into_owned()).or_else(|| outcome.failure.clone()),
            measurements: outcome.measurements.clone(),
            decisions,
        };
        if let Some(before) = step.tool_calls.iter_mut().find(|before| before.call_id == call.id) {
            *before = report;
        } else {
            self.tool_calls += 1;
            step.tool_calls.push(report);
        }
    }

    fn complete_step(&mut self) {
        if let Some(step) = self.report.steps.last_mut() {
            let order = |report: &CallReport| self.calls.iter().position(|open| open.call.id == report.call_id);
            step.tool_calls.sort_by_key(order);
        }
        self.prompts.calls += u32::try_from(self.calls.len()).unwrap_or(u32::MAX);
        self.guard_loop();
        self.forget_verdicts_of_calls();
        self.end_answers();
    }

    /// The server has answered its calls: the client's turn, or the model's.
    fn end_answers(&mut self) {
        self.is_retrying = false;
        let waits = self.calls.iter().any(OpenCall::waits_for_caller);
        self.phase = match (self.calls.is_empty(), waits) {
            // Time ran out while the model spoke: what is held back of it is for the closing answer.
            (true, _) if self.wants_closing() => Phase::Ready,
            (true, _) if self.is_paused() => Phase::Ready,
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
            self.needs_no_reader |= outcome.reason == StopReason::ToolPending;
            self.phase = Phase::HandedOver { waits: true };
            return;
        }
        self.close_calls(UNANSWERED);
        self.phase = Phase::Ended(outcome.status());
    }

    /// Adds the server's results in call order; the client's come with its answers.
    fn push_results(&mut self) {
        for open in std::mem::take(&mut self.calls) {
            if let Some(result) = self.result_of(open) {
                self.push(result);
            }
        }
    }

    /// The result that the server has of a call.
    pub(super) fn result_of(&self, open: OpenCall) -> Option<Message> {
        let CallState::Finished(outcome) = open.state else { return None };
        Some(Message::result(outcome.result(&open.call.id)).from(self.step_origin()))
    }

    /// Whether the model goes on as soon as it is asked again.
    fn is_paused(&self) -> bool {
        self.last_turn.end == TurnEnd::Paused && self.stop.is_none() && self.limit.is_none()
    }

    /// Gives every call without a result an error result. No other place does, so every call has exactly one.
    pub(super) fn close_calls(&mut self, why: &str) {
        self.calls.iter_mut().for_each(|open| open.close(why));
        self.push_results();
    }

    pub(super) fn push(&mut self, message: Message) {
        self.context.bytes_since += message.weight();
        self.messages.push(message);
    }
}
