//! What spans and events say, by the conventions. Pure.

use super::content::Content;
use super::names::{self, event, operation};
use super::span::{Kind, Moment, Span};
use super::subject::Subject;
use crate::types::context::{Compacted, CompactionFailed, ContextEvent, Method, Pruned, SummaryCall, WindowLearned};
use crate::types::delegate::{CompletedChild, Delegated, StartedChild};
use crate::types::event::{Reservation, Turn};
use crate::types::fallback::FellBack;
use crate::types::guard::{Asked, Guarded, JudgeCall, Judged, Triggered};
use crate::types::hedge::{HedgeEnded, HedgeStarted};
use crate::types::hook::HookRan;
use crate::types::price::StepModel;
use crate::types::rules::LoopFinding;
use crate::types::shortfall::{BudgetKind, BudgetOwner};
use crate::types::succession::Handoff;
use crate::types::{BudgetStatus, ErrorKind, Outcome, Price, RunStatus, SpanKey, TurnEnd, Usage};

/// The root.
pub(super) fn run(subject: &Subject) -> Span {
    let title = format!("{} {}", operation::INVOKE_AGENT, subject.agent);
    let mut span = Span::begin(&subject.run, SpanKey::Run, title, subject.created_ms);
    span.parent = subject.trace.as_ref().and_then(|trace| trace.parent);
    span.set(names::OPERATION, operation::INVOKE_AGENT);
    span.set(names::AGENT, subject.agent.clone());
    span.set(names::REQUEST_MODEL, subject.model.clone());
    span.set(names::RUN, subject.run.to_string());
    if let Some(session) = &subject.session {
        span.set(names::CONVERSATION, session.to_string());
    }
    if let Some(asked) = &subject.asked {
        span.set(names::INPUT_MESSAGES, asked.messages.clone());
        if let Some(instructions) = &asked.instructions {
            span.set(names::SYSTEM_INSTRUCTIONS, instructions.clone());
        }
    }
    span
}

/// A model call that begins.
pub(super) fn model_call(
    subject: &Subject,
    (model, provider): (&StepModel, &str),
    step: u32,
    reserved: Reservation,
    at_ms: u64,
) -> Span {
    let mut span = Span::begin(&subject.run, SpanKey::ModelCall(step), "", at_ms);
    span.kind = Kind::Client;
    span.set(names::OPERATION, operation::CHAT);
    called(&mut span, (model, provider));
    span.set(names::REQUEST_MAX_TOKENS, reserved.output_tokens);
    span.set(names::AGENT, subject.agent.clone());
    if let Some(session) = &subject.session {
        span.set(names::CONVERSATION, session.to_string());
    }
    span.set(names::STEP, step);
    span
}

/// Which model a call is of.
pub(super) fn called(span: &mut Span, (model, provider): (&StepModel, &str)) {
    span.name = format!("{} {}", operation::CHAT, model.model);
    span.set(names::PROVIDER, provider.to_owned());
    span.set(names::SYSTEM, provider.to_owned());
    span.set(names::UPSTREAM, model.upstream.clone());
    span.set(names::REQUEST_MODEL, model.model.clone());
}

/// What the model made of the call.
pub(super) fn turn(span: &mut Span, subject: &Subject, turn: &Turn, price: &Price) {
    usage(span, &turn.usage, price);
    span.attributes.push(super::span::Attribute {
        name: names::FINISH_REASONS,
        value: super::span::Value::Texts(vec![turn_end(&turn.end).to_owned()]),
    });
    if let Some(said) = subject.content.turn(turn, turn_end(&turn.end)) {
        span.set(names::OUTPUT_MESSAGES, said);
    }
}

/// What a model call took.
pub(super) fn usage(span: &mut Span, usage: &Usage, price: &Price) {
    tokens(span, usage);
    span.set(names::COST, price.cost(usage).as_usd());
}

/// What came of a step.
pub(super) fn step(span: &mut Span, usage: &Usage, end: &TurnEnd, budget: &BudgetStatus) {
    tokens(span, usage);
    span.set("loopgate.step.turn_end", turn_end(end).to_owned());
    span.set("loopgate.run.used_tokens", budget.used.tokens);
    span.set("loopgate.run.used_cost_usd", budget.used.cost.as_usd());
}

/// How the run ended. The sentence of an error may quote what an upstream was asked, and is told as content is.
pub(super) fn outcome(root: &mut Span, content: Content, outcome: &Outcome) {
    root.set(names::STATUS, outcome.status().as_str());
    root.set(names::REASON, outcome.reason.as_str());
    root.set(names::ITERATIONS, outcome.iterations);
    root.set(names::TOOL_CALLS, outcome.tool_calls);
    tokens(root, &outcome.usage);
    root.set(names::COST, outcome.cost.as_usd());
    match (&outcome.error, outcome.status()) {
        (Some(error), _) => {
            root.fail(error_word(error.kind), content.text(&error.message).unwrap_or_default());
            if let Some(status) = error.status {
                root.set(names::HTTP_STATUS, u64::from(status));
            }
        }
        (None, RunStatus::Failed) => root.fail(outcome.reason.as_str(), ""),
        (None, RunStatus::Incomplete | RunStatus::Cancelled) => root.set(names::ERROR_TYPE, outcome.reason.as_str()),
        (None, RunStatus::Queued | RunStatus::InProgress | RunStatus::RequiresAction | RunStatus::Completed) => {}
    }
}

/// An upstream that is asked again.
pub(super) fn retry(attempt: u32, delay_ms: u64, kind: ErrorKind, at_ms: u64) -> Moment {
    let delay = std::time::Duration::from_millis(delay_ms).as_secs_f64();
    let attributes = [
        (names::ATTEMPT, attempt.into()),
        ("loopgate.delay_seconds", delay.into()),
        (names::ERROR_TYPE, error_word(kind).into()),
    ];
    Moment::new(event::RETRY, at_ms, attributes)
}

/// A run that goes on with another model.
pub(super) fn fallback(fell_back: &FellBack, at_ms: u64) -> Moment {
    let FellBack { to, from_upstream, from_model, attempt, kind, .. } = fell_back;
    let attributes = [
        (names::ATTEMPT, (*attempt).into()),
        ("loopgate.fallback.from", format!("{from_upstream}/{from_model}").into()),
        ("loopgate.fallback.to", format!("{}/{}", to.upstream, to.model).into()),
        (names::ERROR_TYPE, error_word(*kind).into()),
    ];
    Moment::new(event::FALLBACK, at_ms, attributes)
}

/// A second call that is made beside one that says nothing.
pub(super) fn hedge(started: &HedgeStarted, at_ms: u64) -> Moment {
    let HedgeStarted { to, from_upstream, from_model, after_ms, .. } = started;
    let after = std::time::Duration::from_millis(*after_ms).as_secs_f64();
    let attributes = [
        ("loopgate.hedge.from", format!("{from_upstream}/{from_model}").into()),
        ("loopgate.hedge.to", to.full_name().into()),
        ("loopgate.delay_seconds", after.into()),
    ];
    Moment::new(event::HEDGE, at_ms, attributes)
}

/// What a hook said.
pub(super) fn hook(ran: &HookRan, at_ms: u64) -> Moment {
    let attributes = [
        ("loopgate.hook.name", ran.hook.to_string().into()),
        ("loopgate.hook.point", ran.point.as_str().into()),
        ("loopgate.hook.decision", ran.reply.decision.as_str().into()),
        ("loopgate.hook.failed", ran.failed.into()),
        ("loopgate.hook.latency_ms", ran.latency_ms.into()),
    ];
    Moment::new(event::HOOK, at_ms, attributes)
}

/// A run that another one begins, or that has ended.
pub(super) fn delegated(delegated: &Delegated, at_ms: u64) -> Moment {
    match delegated {
        Delegated::Started(StartedChild { run, agent, depth, call_id, .. }) => {
            let attributes = [
                ("loopgate.delegate.run_id", run.to_string().into()),
                ("loopgate.delegate.agent", agent.clone().into()),
                ("loopgate.delegate.call_id", call_id.to_string().into()),
                ("loopgate.delegate.depth", u64::from(*depth).into()),
            ];
            Moment::new(event::DELEGATE, at_ms, attributes)
        }
        Delegated::Completed(CompletedChild { run, status, tree, .. }) => {
            let attributes = [
                ("loopgate.delegate.run_id", run.to_string().into()),
                ("loopgate.delegate.status", status.as_str().into()),
                (names::INPUT_TOKENS, tree.usage.prompt_tokens.into()),
                (names::OUTPUT_TOKENS, tree.usage.completion_tokens.into()),
                (names::COST, tree.cost.as_usd().into()),
            ];
            Moment::new(event::DELEGATE_ENDED, at_ms, attributes)
        }
    }
}

/// A run that goes on as another agent. Its reason is left out: it may quote anything.
pub(super) fn handoff(Handoff { call_id, from, to, .. }: &Handoff, at_ms: u64) -> Moment {
    let attributes = [
        ("loopgate.handoff.from", from.clone().into()),
        ("loopgate.handoff.to", to.clone().into()),
        ("loopgate.handoff.call_id", call_id.to_string().into()),
    ];
    Moment::new(event::HANDOFF, at_ms, attributes)
}

/// One of a step's two calls that is dropped.
pub(super) fn hedge_ended(ended: &HedgeEnded, at_ms: u64) -> Moment {
    let HedgeEnded { kept, dropped, usage, failed, .. } = ended;
    let attributes = [
        ("loopgate.hedge.kept", kept.as_str().into()),
        ("loopgate.hedge.dropped", dropped.full_name().into()),
        (names::INPUT_TOKENS, usage.prompt_tokens.into()),
        (names::OUTPUT_TOKENS, usage.completion_tokens.into()),
        (names::COST, dropped.price.cost(usage).as_usd().into()),
    ];
    let mut moment = Moment::new(event::HEDGE_ENDED, at_ms, attributes);
    if let Some((kind, _)) = failed {
        moment.attributes.push(super::span::Attribute { name: names::ERROR_TYPE, value: error_word(*kind).into() });
    }
    moment
}

/// What a guard found or did, without what was said.
pub(super) fn guarded(guarded: &Guarded, at_ms: u64) -> Option<Moment> {
    Some(match guarded {
        Guarded::InputFlagged { message, pattern } => {
            let attributes =
                [("loopgate.message", u64::from(*message).into()), ("loopgate.pattern", pattern.as_str().into())];
            Moment::new(event::INPUT_FLAGGED, at_ms, attributes)
        }
        Guarded::InputTruncated { message, chars, kept } => {
            let attributes = [
                ("loopgate.message", u64::from(*message).into()),
                ("loopgate.chars", (*chars).into()),
                ("loopgate.chars.kept", (*kept).into()),
            ];
            Moment::new(event::INPUT_TRUNCATED, at_ms, attributes)
        }
        Guarded::Triggered(Triggered { name, on, severity, tripwire, .. }) => {
            let attributes = [
                (names::GUARDRAIL, name.clone().into()),
                (names::GUARDRAIL_ON, on.as_str().into()),
                ("loopgate.guardrail.severity", severity.as_str().into()),
                ("loopgate.guardrail.tripwire", (*tripwire).into()),
            ];
            Moment::new(event::GUARDRAIL, at_ms, attributes)
        }
        Guarded::Judging(_) => return None,
        Guarded::Judged(Judged { asked, verdict, latency_ms, .. }) => {
            let attributes = [
                (names::GUARDRAIL, asked.name.clone().into()),
                (names::GUARDRAIL_ON, asked.on.as_str().into()),
                (names::GUARDRAIL_VERDICT, verdict.as_str().into()),
                ("loopgate.guardrail.latency_ms", (*latency_ms).into()),
            ];
            Moment::new(event::GUARDRAIL_JUDGED, at_ms, attributes)
        }
    })
}

/// A model call that judged a text.
pub(super) fn judging(span: &mut Span, subject: &Subject, (call, provider): (&JudgeCall, &str), asked: &Asked) {
    span.kind = Kind::Client;
    span.set(names::OPERATION, operation::CHAT);
    called(span, (&call.model, provider));
    usage(span, &call.usage, &call.model.price);
    span.set(names::AGENT, subject.agent.clone());
    span.set(names::STEP, asked.step);
    span.set(names::GUARDRAIL, asked.name.clone());
    span.set(names::GUARDRAIL_ON, asked.on.as_str());
}

/// What a model is shown of the conversation was shortened, or could not be.
pub(super) fn shortened(event: &ContextEvent, at_ms: u64) -> Option<Moment> {
    let sizes = |before: u64, after: u64| [(names::TOKENS_BEFORE, before.into()), (names::TOKENS_AFTER, after.into())];
    Some(match event {
        ContextEvent::Pruned(Pruned { before_tokens, after_tokens, .. }) => {
            Moment::new(event::CONTEXT_PRUNED, at_ms, sizes(*before_tokens, *after_tokens))
        }
        ContextEvent::Compacted(Compacted { summary, before_tokens, after_tokens, .. }) => {
            let [before, after] = sizes(*before_tokens, *after_tokens);
            let method = (names::COMPACTION_METHOD, summary.method.as_str().into());
            Moment::new(event::CONTEXT_COMPACTED, at_ms, [before, after, method])
        }
        ContextEvent::CompactionFailed(CompactionFailed { method, .. }) => {
            Moment::new(event::COMPACTION_FAILED, at_ms, [(names::COMPACTION_METHOD, method.as_str().into())])
        }
        ContextEvent::WindowLearned(WindowLearned { window, .. }) => {
            Moment::new(event::WINDOW_LEARNED, at_ms, [("loopgate.context.window", (*window).into())])
        }
        ContextEvent::FlushEnded(ended) if ended.messages > 0 => {
            let is_written = ended.error.is_none();
            let name = if is_written { event::CONTEXT_FLUSHED } else { event::FLUSH_FAILED };
            Moment::new(name, at_ms, [(names::FLUSHED_MESSAGES, ended.messages.into())])
        }
        ContextEvent::CompactionStarted(_)
        | ContextEvent::FlushAsked(_)
        | ContextEvent::FlushAnswered(_)
        | ContextEvent::FlushCalled(_)
        | ContextEvent::FlushEnded(_) => return None,
    })
}

/// A model call that summarised messages.
pub(super) fn summarising(span: &mut Span, subject: &Subject, called: (&SummaryCall, &str), step: u32) {
    beside(span, subject, called, step);
    span.set(names::COMPACTION_METHOD, Method::Llm.as_str());
}

/// A model call by which what matters is written down.
pub(super) fn flushing(span: &mut Span, subject: &Subject, called: (&SummaryCall, &str), step: u32) {
    beside(span, subject, called, step);
    span.set(names::FLUSHED_MESSAGES, called.0.messages);
}

fn beside(span: &mut Span, subject: &Subject, (call, provider): (&SummaryCall, &str), step: u32) {
    span.kind = Kind::Client;
    span.set(names::OPERATION, operation::CHAT);
    called(span, (&call.model, provider));
    usage(span, &call.usage, &call.model.price);
    span.set(names::AGENT, subject.agent.clone());
    span.set(names::STEP, step);
}

/// A budget that is four fifths used.
pub(super) fn budget_warning(owner: BudgetOwner, kind: BudgetKind, (used, limit): (u64, u64), at_ms: u64) -> Moment {
    let attributes = [
        ("loopgate.budget.scope", owner.as_str().into()),
        ("loopgate.budget.kind", kind.as_str().into()),
        ("loopgate.budget.used", used.into()),
        ("loopgate.budget.limit", limit.into()),
    ];
    Moment::new(event::BUDGET_WARNING, at_ms, attributes)
}

/// That a run repeats itself.
pub(super) fn loop_guard(found: &LoopFinding, at_ms: u64) -> Moment {
    let attributes = [
        ("loopgate.loop_guard.rule", found.rule.as_str().into()),
        ("loopgate.loop_guard.repeats", u64::from(found.repeats).into()),
        ("loopgate.loop_guard.action", if found.stops { "stop" } else { "warn" }.into()),
    ];
    Moment::new(event::LOOP_GUARD, at_ms, attributes)
}

fn tokens(span: &mut Span, usage: &Usage) {
    span.set(names::INPUT_TOKENS, usage.prompt_tokens);
    span.set(names::OUTPUT_TOKENS, usage.completion_tokens);
    if usage.cached_tokens > 0 {
        span.set(names::CACHED_TOKENS, usage.cached_tokens);
    }
    if usage.reasoning_tokens > 0 {
        span.set(names::REASONING_TOKENS, usage.reasoning_tokens);
    }
    if usage.estimated {
        span.set(names::ESTIMATED, true);
    }
}

/// Why a turn ended. The word of an upstream that is not among the usual ones is told if it is one.
fn turn_end(end: &TurnEnd) -> &str {
    let is_word = |text: &str| {
        (1..=64).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
    };
    match end {
        TurnEnd::Stop => "stop",
        TurnEnd::Length => "length",
        TurnEnd::ToolCalls => "tool_calls",
        TurnEnd::ContentFilter => "content_filter",
        TurnEnd::Interrupted => "interrupted",
        TurnEnd::Paused => "paused",
        TurnEnd::Other(other) if is_word(other) => other,
        TurnEnd::Other(_) => "other",
    }
}

fn error_word(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::UpstreamUnavailable => "upstream_unavailable",
        ErrorKind::UpstreamTimeout => "upstream_timeout",
        ErrorKind::UpstreamRejected => "upstream_rejected",
        ErrorKind::RequestRejected => "request_rejected",
        ErrorKind::ContextLength => "context_length",
        ErrorKind::EmptyResponse => "empty_response",
        ErrorKind::OutcomeUnknown => "outcome_unknown",
        ErrorKind::ToolFailed => "tool_error",
        ErrorKind::CrashLoop => "crash_loop",
        ErrorKind::StoreLostState => "store_lost_state",
        ErrorKind::IterationLimit => "iteration_limit",
        ErrorKind::ToolCallLimit => "tool_call_limit",
        ErrorKind::LoopGuard => "loop_guard",
        ErrorKind::BudgetExceeded => "budget_exceeded",
        ErrorKind::TimeLimit => "time_limit",
        ErrorKind::HookDenied => "hook_denied",
        ErrorKind::Internal => "internal",
    }
}
