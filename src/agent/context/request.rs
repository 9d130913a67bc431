//! Turns the history into a model request.
//!
//! What is added here shapes one request and never enters the stored history.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use xxhash_rust::xxh3::xxh3_64;

use crate::agent::context::fit::shown::Shown;
use crate::agent::context::prompt::place::placed;
use crate::agent::context::toolbox::Toolbox;
use crate::agent::machine::Run;
use crate::guard::question;
use crate::llm::ModelRequest;
use crate::llm::pairing::Pairing;
use crate::types::context::{CompactionStarted, FlushAsked};
use crate::types::guard::{Judging, ModelJudge};
use crate::types::offer::{ToolChoice, ToolOffer};
use crate::types::price::StepModel;
use crate::types::{Conversation, History, Message, Role, RunSpec, SessionId, SpanKey, StopReason};

/// Added to the last request of a run whose limit is reached.
const CLOSE: &str = "Answer now, from what is known so far. No more tools can be used.";

/// The request of the next model call, which may ask for its answer `in_one_piece`.
pub fn model_request(
    run: &Run,
    (history, shown): (&History, Option<&Shown>),
    tools: &Toolbox,
    max_tokens: Option<u64>,
    closing: Option<StopReason>,
    in_one_piece: bool,
    deadline: Instant,
) -> ModelRequest {
    let spec = run.spec();
    let prompts = if closing.is_some() { vec![CLOSE.to_owned()] } else { run.prompts() };
    let prompts = prompts.iter().map(|text| Message::text(Role::User, text));
    let shown = shown.filter(|shown| run.view().is_some_and(|view| shown.is_of(view)));
    let shown = shown.map(|shown| shown.with(run.messages()));
    let conversation = placed(spec, (history, shown), run.messages(), prompts);
    // A forced choice is for the first call only: forced again and again, the loop would never end.
    let tool_choice = if run.iterations() == 0 { spec.options.tool_choice.clone() } else { ToolChoice::Auto };
    ModelRequest {
        model: run.model().model.clone(),
        conversation,
        tools: if closing.is_some() { ToolOffer::default() } else { tools.offer(run.found_tools()) },
        tool_choice,
        sampling: spec.options.sampling.clone(),
        max_tokens,
        parallel_tool_calls: spec.options.parallel_tool_calls,
        in_one_piece,
        trace: spec.outgoing_trace(SpanKey::ModelCall(run.step())),
        request_id: spec.request_id.clone(),
        has_fallback: false,
        is_repeat: run.failures() > 0,
        pairing: Pairing::Alone,
        tenant: spec.tenant.clone(),
        affinity: affinity(spec),
        deadline,
    }
}

/// The request by which a model judges a text.
pub fn judging_request(run: &Run, judging: &Judging, (judge, text): (&ModelJudge, &str)) -> ModelRequest {
    let (spec, asked) = (run.spec(), &judging.asked);
    let told = Message::text(Role::System, &question::instructions(&judge.prompt));
    let contained = Message::text(Role::User, &question::contained(asked.on, text));
    ModelRequest {
        model: judging.model.model.clone(),
        conversation: Conversation::default().then([told, contained]),
        tools: ToolOffer::default(),
        tool_choice: ToolChoice::Auto,
        sampling: Arc::default(),
        max_tokens: Some(judging.reserved.output_tokens),
        parallel_tool_calls: false,
        in_one_piece: true,
        trace: spec.outgoing_trace(SpanKey::Judge(asked.step, asked.digest, &asked.name)),
        request_id: spec.request_id.clone(),
        has_fallback: false,
        is_repeat: false,
        pairing: Pairing::Alone,
        tenant: spec.tenant.clone(),
        // A guardrail's questions begin alike, whatever run they are of.
        affinity: xxh3_64(judge.prompt.as_bytes()),
        deadline: Instant::now() + Duration::from_millis(judge.timeout_ms),
    }
}

/// The request by which a model summarises messages.
pub fn summary_request(
    run: &Run,
    started: &CompactionStarted,
    (instructions, transcript): (&str, &str),
    timeout: Duration,
) -> ModelRequest {
    let told = vec![Message::text(Role::System, instructions), Message::text(Role::User, transcript)];
    let (output, span) = (started.reserved.output_tokens, SpanKey::Summary(started.step, started.messages));
    request_beside(run, (&started.model, output), told, span, timeout)
}

/// The request by which a model writes down what matters, by these tools.
pub fn flush_request(
    run: &Run,
    asked: &FlushAsked,
    (told, tools): (Vec<Message>, ToolOffer),
    timeout: Duration,
) -> ModelRequest {
    let (output, span) = (asked.reserved.output_tokens, SpanKey::Flush(asked.step, asked.round));
    ModelRequest {
        tools,
        parallel_tool_calls: true,
        ..request_beside(run, (&asked.model, output), told, span, timeout)
    }
}

/// A request about the conversation, which is no part of it.
fn request_beside(
    run: &Run,
    (model, output): (&StepModel, u64),
    told: Vec<Message>,
    span: SpanKey<'_>,
    timeout: Duration,
) -> ModelRequest {
    let spec = run.spec();
    ModelRequest {
        model: model.model.clone(),
        conversation: Conversation::default().then(told),
        tools: ToolOffer::default(),
        tool_choice: ToolChoice::Auto,
        sampling: Arc::default(),
        max_tokens: Some(output),
        parallel_tool_calls: false,
        in_one_piece: true,
        trace: spec.outgoing_trace(span),
        request_id: spec.request_id.clone(),
        has_fallback: false,
        is_repeat: false,
        pairing: Pairing::Alone,
        tenant: spec.tenant.clone(),
        affinity: affinity(spec),
        deadline: Instant::now() + timeout,
    }
}

/// A number that all requests of one session have, or of one run without a session. All replicas make the same.
fn affinity(spec: &RunSpec) -> u64 {
    xxh3_64(spec.session.as_ref().map_or(spec.id.as_str(), SessionId::as_str).as_bytes())
}
