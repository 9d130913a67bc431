//! The named events of the agent endpoint's stream, as the records of a log tell them.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::api::wire::RunNames;
use crate::api::wire::agent::approval::{RequiredApproval, ResolvedApproval};
use crate::api::wire::agent::attempts::{EndOfHedge, Fallback, Hedge};
use crate::api::wire::agent::budget::{Amount, Budget};
use crate::api::wire::agent::context_events::{
    CompactedContext, CompletedFlush, FailedCompaction, FailedFlush, PrunedContext, StartedCompaction, StartedFlush,
};
use crate::api::wire::agent::delegate::{BegunDelegate, EndedDelegate};
use crate::api::wire::agent::ending::Ending;
use crate::api::wire::agent::guarded::{FlaggedInput, JudgedGuardrail, TriggeredGuardrail, TruncatedInput};
use crate::api::wire::agent::hook::HookEvent;
use crate::api::wire::agent::object::Arguments;
use crate::api::wire::agent::progress::{CallProgress, DeferredCall};
use crate::api::wire::agent::question::{ClosedQuestion, OpenQuestion};
use crate::api::wire::agent::result_part::ResultPart;
use crate::api::wire::turn_end::finish_reason;
use crate::api::wire::usage::UsageObject;
use crate::types::context::ContextEvent;
use crate::types::delegate::Delegated;
use crate::types::event::DiscardReason;
use crate::types::guard::Guarded;
use crate::types::rules::LoopFinding;
use crate::types::shortfall::BudgetKind;
use crate::types::succession::Handoff;
use crate::types::tool::CallEnding;
use crate::types::{BudgetOwner, CallId, Event, Outcome, Record, RunStatus, SessionId, ToolCall, ToolOutcome};

/// The data of a named event.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type")]
#[expect(missing_docs, reason = "the fields are named for what they are; docs/api.md explains them")]
pub enum NativeEvent<'a> {
    /// The run waits behind another one in its session.
    #[serde(rename = "run.queued")]
    RunQueued { seq: u64, run_id: &'a str, session_id: Option<&'a str>, model: &'a str, created_ms: u64 },
    /// The run began.
    #[serde(rename = "run.started")]
    RunStarted { seq: u64, run_id: &'a str, session_id: Option<&'a str>, model: &'a str, created_ms: u64 },
    /// The run continues: another replica resumed it after a crash, or its client answered.
    #[serde(rename = "run.resumed")]
    RunResumed { seq: u64, run_id: &'a str, session_id: Option<&'a str>, model: &'a str },
    /// A model call begins.
    #[serde(rename = "step.started")]
    StepStarted { seq: u64, step: u32 },
    /// Reasoning text.
    #[serde(rename = "thinking.delta")]
    ThinkingDelta { seq: u64, step: u32, text: &'a str },
    /// Arguments as the model writes them.
    #[serde(rename = "tool.call.delta")]
    ToolCallDelta { seq: u64, step: u32, call_id: &'a str, arguments_delta: &'a str },
    /// The upstream failed before it said anything; another attempt follows.
    #[serde(rename = "provider.retry")]
    ProviderRetry {
        seq: u64,
        step: u32,
        upstream: &'a str,
        model: &'a str,
        attempt: u32,
        delay_ms: u64,
        cause: &'a str,
    },
    /// The model failed, or is not asked for now; the run goes on with another one.
    #[serde(rename = "provider.fallback")]
    ProviderFallback(Fallback<'a>),
    /// The model has said nothing for so long; another one is asked beside it.
    #[serde(rename = "provider.hedge")]
    ProviderHedge(Hedge<'a>),
    /// One of the two calls is dropped; the step goes on with the other.
    #[serde(rename = "provider.hedge.ended")]
    ProviderHedgeEnded(EndOfHedge<'a>),
    /// The step's text so far is void.
    #[serde(rename = "step.discarded")]
    StepDiscarded { seq: u64, step: u32, reason: &'static str },
    /// A message looks like an attempt to instruct the model in the operator's place.
    #[serde(rename = "input.flagged")]
    InputFlagged(FlaggedInput),
    /// A text failed a guardrail.
    #[serde(rename = "guardrail.triggered")]
    GuardrailTriggered(TriggeredGuardrail<'a>),
    /// A guardrail's model or service was asked about a text.
    #[serde(rename = "guardrail.judged")]
    GuardrailJudged(JudgedGuardrail<'a>),
    /// A message was longer than messages may be, and was cut.
    #[serde(rename = "input.truncated")]
    InputTruncated(TruncatedInput),
    /// Old results of tools are shortened in what the model is sent.
    #[serde(rename = "context.pruned")]
    ContextPruned(PrunedContext),
    /// A model is asked for a summary of earlier messages.
    #[serde(rename = "compaction.started")]
    CompactionStarted(StartedCompaction<'a>),
    /// Earlier messages are replaced in what the model is sent.
    #[serde(rename = "context.compacted")]
    ContextCompacted(CompactedContext),
    /// A method did not shorten the conversation.
    #[serde(rename = "compaction.failed")]
    CompactionFailed(FailedCompaction<'a>),
    /// A model is to write into its memory what matters in messages that are about to be replaced.
    #[serde(rename = "flush.started")]
    FlushStarted(StartedFlush<'a>),
    /// The model has written down what matters.
    #[serde(rename = "flush.completed")]
    FlushCompleted(CompletedFlush),
    /// The model has not written down what matters, or not to the end.
    #[serde(rename = "flush.failed")]
    FlushFailed(FailedFlush<'a>),
    /// A budget is four fifths used: tokens, or US dollars.
    #[serde(rename = "budget.warning")]
    BudgetWarning {
        seq: u64,
        scope: &'static str,
        kind: &'static str,
        #[schema(value_type = f64)]
        used: Amount,
        #[schema(value_type = f64)]
        limit: Amount,
    },
    /// A call waits for an approval.
    #[serde(rename = "approval.required")]
    ApprovalRequired(RequiredApproval<'a>),
    /// A call that waits for an approval was decided, or its time ran out.
    #[serde(rename = "approval.resolved")]
    ApprovalResolved(ResolvedApproval<'a>),
    /// The model repeats tool calls that bring nothing new: it is warned, or the run stops.
    #[serde(rename = "loop_guard.triggered")]
    LoopGuardTriggered {
        seq: u64,
        step: u32,
        action: &'static str,
        rule: &'static str,
        repeats: u32,
        tools: &'a [String],
    },
    /// The next model call asks for a plan, with this text.
    #[serde(rename = "plan.created")]
    PlanCreated { seq: u64, step: u32, text: &'a str },
    /// The next model call asks how far the model has come, with this text.
    #[serde(rename = "reflection.started")]
    ReflectionStarted { seq: u64, step: u32, text: &'a str },
    /// A server-side tool begins.
    #[serde(rename = "tool.call")]
    ToolCall {
        seq: u64,
        step: u32,
        call_id: &'a str,
        name: &'a str,
        #[schema(value_type = Value)]
        arguments: Arguments<'a>,
    },
    /// The service of a server-side tool goes on with a call, and answers later.
    #[serde(rename = "tool.pending")]
    ToolPending(DeferredCall<'a>),
    /// Another agent begins to work on a call, in a run of its own.
    #[serde(rename = "delegate.started")]
    DelegateStarted(BegunDelegate<'a>),
    /// That run has ended.
    #[serde(rename = "delegate.completed")]
    DelegateCompleted(EndedDelegate<'a>),
    /// Another agent goes on with the run.
    #[serde(rename = "handoff")]
    Handoff { seq: u64, step: u32, call_id: &'a str, from: &'a str, to: &'a str, reason: &'a str },
    /// A server-side tool tells how far it is.
    #[serde(rename = "tool.progress")]
    ToolProgress(CallProgress<'a>),
    /// A server-side tool asks the user something.
    #[serde(rename = "question.asked")]
    QuestionAsked(OpenQuestion<'a>),
    /// What a tool asked was answered, or no user answered it.
    #[serde(rename = "question.resolved")]
    QuestionResolved(ClosedQuestion<'a>),
    /// A server-side tool ended.
    #[serde(rename = "tool.result")]
    ToolResult {
        seq: u64,
        step: u32,
        call_id: &'a str,
        name: &'a str,
        is_error: bool,
        content: Cow<'a, str>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        parts: Vec<ResultPart<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<Value>)]
        structured: Option<&'a RawValue>,
        truncated: bool,
        outcome_unknown: bool,
        latency_ms: u64,
    },
    /// A hook of the operator's was asked.
    #[serde(rename = "hook.ran")]
    HookRan(HookEvent<'a>),
    /// A model call and its tools are done.
    #[serde(rename = "step.completed")]
    StepCompleted { seq: u64, step: u32, usage: UsageObject, latency_ms: u64, finish_reason: &'a str, budget: Budget },
    /// The model answered.
    #[serde(rename = "run.completed")]
    RunCompleted(Ending<'a>),
    /// A limit ended the run.
    #[serde(rename = "run.incomplete")]
    RunIncomplete(Ending<'a>),
    /// The run waits for its client.
    #[serde(rename = "run.requires_action")]
    RunRequiresAction(Ending<'a>),
    /// The run was cancelled.
    #[serde(rename = "run.cancelled")]
    RunCancelled(Ending<'a>),
    /// The run failed.
    #[serde(rename = "run.failed")]
    RunFailed(Ending<'a>),
}

/// The named event of a record; `None` for text and for internal events.
pub fn native<'a>(record: &'a Record, names: &'a RunNames, with_report: bool) -> Option<NativeEvent<'a>> {
    let (seq, run_id, model) = (record.seq, names.id.as_str(), names.model.as_str());
    let session_id = names.session.as_ref().map(SessionId::as_str);
    Some(match &record.event {
        Event::RunQueued => NativeEvent::RunQueued { seq, run_id, session_id, model, created_ms: names.created_ms },
        Event::RunStarted => NativeEvent::RunStarted { seq, run_id, session_id, model, created_ms: names.created_ms },
        Event::RunResumed { .. } => NativeEvent::RunResumed { seq, run_id, session_id, model },
        Event::StepStarted { step, .. } => NativeEvent::StepStarted { seq, step: *step },
        Event::ThinkingDelta { step, text } => NativeEvent::ThinkingDelta { seq, step: *step, text },
        Event::ToolArgumentsDelta { step, call_id, delta } => {
            NativeEvent::ToolCallDelta { seq, step: *step, call_id: call_id.as_str(), arguments_delta: delta }
        }
        Event::ProviderRetry { step, upstream, model, attempt, delay_ms, kind: _, cause } => {
            let (step, attempt, delay_ms) = (*step, *attempt, *delay_ms);
            NativeEvent::ProviderRetry { seq, step, upstream, model, attempt, delay_ms, cause }
        }
        Event::Guarded(guarded) => guarded_event(seq, guarded)?,
        Event::Context(event) => context_event(seq, event)?,
        Event::ProviderFallback(fell_back) => NativeEvent::ProviderFallback(Fallback::new(seq, fell_back)),
        Event::HedgeStarted(started) => NativeEvent::ProviderHedge(Hedge::new(seq, started)),
        Event::HedgeEnded(ended) => NativeEvent::ProviderHedgeEnded(EndOfHedge::new(seq, ended)),
        Event::StepDiscarded { step, reason, .. } => discarded(seq, *step, *reason),
        Event::BudgetWarning { owner, kind, used, limit } => budget_warning(seq, *owner, *kind, (*used, *limit)),
        Event::ApprovalRequired(request) => NativeEvent::ApprovalRequired(RequiredApproval::new(seq, request)),
        Event::ApprovalResolved(approval) => NativeEvent::ApprovalResolved(ResolvedApproval::new(seq, approval)),
        Event::LoopGuardTriggered(found) => loop_guard(seq, found),
        Event::PlanCreated { step, text } => NativeEvent::PlanCreated { seq, step: *step, text },
        Event::ReflectionStarted { step, text } => NativeEvent::ReflectionStarted { seq, step: *step, text },
        Event::ToolStarted { step, call, .. } => tool_call(seq, *step, call),
        Event::Delegated(delegated) => delegated_event(seq, delegated),
        Event::Handoff(handoff) => handoff_event(seq, handoff),
        Event::ToolPending(pending) => NativeEvent::ToolPending(DeferredCall::new(seq, pending)),
        Event::ToolProgress { step, call_id, name, progress } => {
            NativeEvent::ToolProgress(CallProgress::new(seq, *step, call_id, name, progress))
        }
        Event::QuestionAsked(asked) => NativeEvent::QuestionAsked(OpenQuestion::new(seq, asked)),
        Event::QuestionResolved(resolved) => NativeEvent::QuestionResolved(ClosedQuestion::new(seq, resolved)),
        Event::ToolFinished { step, call_id, name, outcome } => tool_result(seq, *step, call_id, name, outcome),
        Event::HookRan(ran) => NativeEvent::HookRan(HookEvent::new(seq, ran)),
        Event::StepCompleted { step, usage, turn_end, latency_ms, budget } => NativeEvent::StepCompleted {
            seq,
            step: *step,
            usage: usage.into(),
            latency_ms: *latency_ms,
            finish_reason: finish_reason(turn_end),
            budget: budget.into(),
        },
        Event::RunFinished(outcome) => ending(seq, outcome, names, with_report),
        Event::TextDelta { .. }
        | Event::RefusalDelta { .. }
        | Event::TurnFinished { .. }
        | Event::CallAllowed { .. }
        | Event::ToolAnswered { .. }
        | Event::StartHooked
        | Event::StopRequested { .. }
        | Event::StopAfterStep
        | Event::CommandsApplied { .. }
        | Event::HandedOff => return None,
    })
}

fn delegated_event(seq: u64, delegated: &Delegated) -> NativeEvent<'_> {
    match delegated {
        Delegated::Started(child) => NativeEvent::DelegateStarted(BegunDelegate::new(seq, child)),
        Delegated::Completed(child) => NativeEvent::DelegateCompleted(EndedDelegate::new(seq, child)),
    }
}

fn handoff_event(seq: u64, Handoff { step, call_id, from, to, reason, .. }: &Handoff) -> NativeEvent<'_> {
    NativeEvent::Handoff { seq, step: *step, call_id: call_id.as_str(), from, to, reason }
}

fn discarded(seq: u64, step: u32, reason: DiscardReason) -> NativeEvent<'static> {
    NativeEvent::StepDiscarded { seq, step, reason: reason.as_str() }
}

fn loop_guard(seq: u64, found: &LoopFinding) -> NativeEvent<'_> {
    let LoopFinding { step, rule, repeats, tools, stops } = found;
    let action = if *stops { "stop" } else { "warn" };
    NativeEvent::LoopGuardTriggered { seq, step: *step, action, rule: rule.as_str(), repeats: *repeats, tools }
}

fn tool_call(seq: u64, step: u32, ToolCall { id, name, arguments, .. }: &ToolCall) -> NativeEvent<'_> {
    NativeEvent::ToolCall { seq, step, call_id: id.as_str(), name, arguments: Arguments::new(arguments) }
}

fn guarded_event(seq: u64, guarded: &Guarded) -> Option<NativeEvent<'_>> {
    Some(match guarded {
        Guarded::InputFlagged { message, pattern } => {
            NativeEvent::InputFlagged(FlaggedInput::new(seq, *message, *pattern))
        }
        Guarded::InputTruncated { message, chars, kept } => {
            NativeEvent::InputTruncated(TruncatedInput { seq, message: *message, chars: *chars, kept: *kept })
        }
        Guarded::Triggered(triggered) => NativeEvent::GuardrailTriggered(TriggeredGuardrail::new(seq, triggered)),
        Guarded::Judged(judged) => NativeEvent::GuardrailJudged(JudgedGuardrail::new(seq, judged)),
        Guarded::Judging(_) => return None,
    })
}

fn context_event(seq: u64, event: &ContextEvent) -> Option<NativeEvent<'_>> {
    Some(match event {
        ContextEvent::Pruned(pruned) => NativeEvent::ContextPruned(PrunedContext::new(seq, pruned)),
        ContextEvent::CompactionStarted(begun) => NativeEvent::CompactionStarted(StartedCompaction::new(seq, begun)),
        ContextEvent::Compacted(compacted) => NativeEvent::ContextCompacted(CompactedContext::new(seq, compacted)),
        ContextEvent::CompactionFailed(failed) => NativeEvent::CompactionFailed(FailedCompaction::new(seq, failed)),
        ContextEvent::FlushAsked(asked) => NativeEvent::FlushStarted(StartedFlush::new(seq, asked)?),
        ContextEvent::FlushEnded(ended) if ended.messages > 0 => match &ended.error {
            None => NativeEvent::FlushCompleted(CompletedFlush::new(seq, ended)),
            Some(reason) => NativeEvent::FlushFailed(FailedFlush::new(seq, ended, reason)),
        },
        ContextEvent::WindowLearned(_)
        | ContextEvent::FlushAnswered(_)
        | ContextEvent::FlushCalled(_)
        | ContextEvent::FlushEnded(_) => return None,
    })
}

fn tool_result<'a>(
    seq: u64,
    step: u32,
    call_id: &'a CallId,
    name: &'a str,
    outcome: &'a ToolOutcome,
) -> NativeEvent<'a> {
    NativeEvent::ToolResult {
        seq,
        step,
        call_id: call_id.as_str(),
        name,
        is_error: outcome.is_error,
        content: outcome.text(),
        parts: ResultPart::all(&outcome.parts),
        structured: outcome.structured.as_ref().map(|json| &*json.0),
        truncated: outcome.truncated,
        outcome_unknown: outcome.ending == CallEnding::Lost,
        latency_ms: outcome.latency_ms,
    }
}

fn ending<'a>(seq: u64, outcome: &'a Outcome, names: &'a RunNames, with_report: bool) -> NativeEvent<'a> {
    let ending = Ending::new(seq, outcome, names, with_report);
    match outcome.status() {
        RunStatus::Completed => NativeEvent::RunCompleted(ending),
        RunStatus::Incomplete => NativeEvent::RunIncomplete(ending),
        RunStatus::RequiresAction => NativeEvent::RunRequiresAction(ending),
        RunStatus::Cancelled => NativeEvent::RunCancelled(ending),
        RunStatus::Failed | RunStatus::Queued | RunStatus::InProgress => NativeEvent::RunFailed(ending),
    }
}

fn budget_warning(seq: u64, owner: BudgetOwner, kind: BudgetKind, (used, limit): (u64, u64)) -> NativeEvent<'static> {
    let (used, limit) = (Amount::of(kind, used), Amount::of(kind, limit));
    NativeEvent::BudgetWarning { seq, scope: owner.as_str(), kind: kind.as_str(), used, limit }
}
