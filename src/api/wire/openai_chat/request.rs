//! The request of both completion endpoints: OpenAI's chat completion and an optional `agent` object.
//!
//! Values that OpenAI would refuse are refused here, before anything is spent.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::agent::{Generation, NewRun};
use crate::api::wire::agent::options::{AgentOptions, EventsMode, IntermediateText};
use crate::api::wire::agent::{policy, prompt, rules};
use crate::api::wire::body::{bad_session_id, check_metadata, clip, malformed, missing, parse, whole};
use crate::api::wire::error::{ErrorCode, WireError};
use crate::api::wire::json_object::JsonObject;
use crate::api::wire::openai_chat::described::{ChatMessage, ChatResponseFormat, ChatStop, ChatTool, ChatToolChoice};
use crate::api::wire::openai_chat::message::{Messages, check_messages};
use crate::api::wire::openai_chat::shape::{ResponseShape, StreamOptions};
use crate::api::wire::openai_chat::tool::{AskedTools, read_offer};
use crate::api::wire::openai_chat::unknown::{Unknown, read_unknown};
use crate::api::wire::openai_chat::unsupported::{check_supported, unseen};
use crate::api::wire::vocabulary::metadata;
use crate::llm::openai::sampling;
use crate::types::conversation::{Dialect, Extra};
use crate::types::json::{Members, RawValueEq};
use crate::types::memory::MOST_USER;
use crate::types::offer::ToolChoice;
use crate::types::run::{OnDisconnect, RunOptions};
use crate::types::sampling::{Sampling, Stop};
use crate::types::{Message, Role, RunId, SessionId, Tenant, TraceContext};

const MAX_OUTPUT_TOKENS: u64 = 10_000_000;
const DEFAULT_RECONNECT_GRACE_MS: u64 = 15_000;
/// Steps that may be voided on endpoints that can show it.
const MAX_DISCARDS: u32 = 2;

/// A chat completion request. Members that are not named here are sent to upstreams that may know them.
#[derive(Debug, Deserialize, ToSchema)]
pub struct CompletionRequest<'a> {
    /// An agent, or a model of an upstream: `openai/gpt-5`, or bare where just one upstream has it.
    #[schema(example = "demo")]
    pub model: Option<String>,
    /// The conversation, in OpenAI's shape; with a session, only what is new.
    #[serde(borrow)]
    #[schema(value_type = Vec<ChatMessage>, required, min_items = 1, max_items = 10_000, example = json!([{"role": "user", "content": "What is 1234 * 5678?"}]))]
    pub messages: Option<Vec<&'a RawValue>>,
    /// Whether to stream server-sent events.
    pub stream: Option<bool>,
    /// What the stream holds beside text.
    #[schema(value_type = Option<StreamOptions>)]
    pub stream_options: Option<JsonObject<StreamOptions>>,
    /// Function tools that the client executes, and MCP servers whose tools this server calls.
    #[serde(borrow)]
    #[schema(value_type = Option<Vec<ChatTool>>, max_items = 128)]
    pub tools: Option<Vec<&'a RawValue>>,
    /// `none`, `auto`, `required` or one function; holds for the first model call.
    #[serde(borrow)]
    #[schema(value_type = Option<ChatToolChoice>)]
    pub tool_choice: Option<&'a RawValue>,
    /// Whether several tools may be called in one turn.
    pub parallel_tool_calls: Option<bool>,
    /// Text, any JSON object, or JSON of a schema.
    #[serde(borrow)]
    #[schema(value_type = Option<ChatResponseFormat>)]
    pub response_format: Option<&'a RawValue>,
    /// 0 to 2.
    #[schema(minimum = 0, maximum = 2)]
    pub temperature: Option<f64>,
    /// 0 to 1.
    #[schema(minimum = 0, maximum = 1)]
    pub top_p: Option<f64>,
    /// -2 to 2.
    #[schema(minimum = -2, maximum = 2)]
    pub frequency_penalty: Option<f64>,
    /// -2 to 2.
    #[schema(minimum = -2, maximum = 2)]
    pub presence_penalty: Option<f64>,
    /// Up to four texts that end the answer.
    #[serde(borrow)]
    #[schema(value_type = Option<ChatStop>)]
    pub stop: Option<&'a RawValue>,
    /// For answers that can be repeated, where the upstream can.
    pub seed: Option<i64>,
    /// Most output tokens of one model call; the older name.
    #[schema(minimum = 1, maximum = 10_000_000)]
    #[serde(default, deserialize_with = "whole")]
    pub max_tokens: Option<u64>,
    /// Most output tokens of one model call.
    #[schema(minimum = 1, maximum = 10_000_000)]
    #[serde(default, deserialize_with = "whole")]
    pub max_completion_tokens: Option<u64>,
    /// How much the model thinks, where it can.
    pub reasoning_effort: Option<String>,
    /// How long answers are, where the model can tell.
    pub verbosity: Option<String>,
    /// Biases by token id.
    #[serde(borrow)]
    #[schema(value_type = Option<BTreeMap<String, f64>>)]
    pub logit_bias: Option<&'a RawValue>,
    /// The end user, for the upstream, and whose memory a run has; 4,096 bytes at most.
    pub user: Option<String>,
    /// The upstream's tier.
    pub service_tier: Option<String>,
    /// Groups requests for the upstream's cache.
    pub prompt_cache_key: Option<String>,
    /// The end user, for the upstream's safety checks.
    pub safety_identifier: Option<String>,
    /// Text that the answer is likely to repeat.
    #[serde(borrow)]
    #[schema(value_type = Option<BTreeMap<String, Value>>)]
    pub prediction: Option<&'a RawValue>,
    /// OpenAI's older tools, which are refused.
    #[schema(ignore)]
    pub functions: Option<serde::de::IgnoredAny>,
    /// Must be 1.
    #[schema(minimum = 1, maximum = 1)]
    #[serde(default, deserialize_with = "whole")]
    pub n: Option<u64>,
    /// The caller's notes: up to 16 short entries.
    #[schema(schema_with = metadata)]
    pub metadata: Option<BTreeMap<String, String>>,
    /// What Loopgate adds to OpenAI's request.
    #[schema(value_type = Option<AgentOptions>)]
    pub agent: Option<JsonObject<AgentOptions>>,
}

/// What came with the request beside its body.
#[derive(Debug)]
pub struct RequestContext {
    /// Whose request it is.
    pub tenant: Tenant,
    /// The configuration that the request is served by.
    pub generation: Arc<Generation>,
    /// The name of the key.
    pub key_name: Option<String>,
    /// The agents that the key may use.
    pub allowed_agents: Option<Vec<String>>,
    /// The trace that a header names.
    pub trace: Option<TraceContext>,
    /// The request's id.
    pub request_id: Option<String>,
    /// The session that a header names.
    pub session_header: Option<String>,
    /// What the endpoint's streams show unless asked otherwise.
    pub default_events: EventsMode,
    /// What happens when the last reader has gone, unless asked otherwise.
    pub default_on_disconnect: OnDisconnect,
}

impl RequestContext {
    /// What happens when the last reader has gone. A run in the background has none to lose.
    fn on_disconnect(&self, asked: Option<OnDisconnect>, background: bool) -> OnDisconnect {
        if background { OnDisconnect::Continue } else { asked.unwrap_or(self.default_on_disconnect) }
    }
}

/// Whether the text of turns with calls is left out: as asked, and by default where the answer is to be JSON.
fn hides_intermediate_text(asked: Option<IntermediateText>, format: Option<&RawValue>) -> Result<bool, WireError> {
    is_json_format(format).map(|is_json| asked.map_or(is_json, |text| text == IntermediateText::Hide))
}

/// What the caller should know of members that are not known.
fn warnings(unknown: &Unknown) -> Result<Vec<String>, WireError> {
    check_supported(&unknown.members)?;
    Ok(unknown.warning().into_iter().chain(unseen(&unknown.members)).collect())
}

/// Parses and checks a request body.
pub fn read_request(body: &str, context: RequestContext) -> Result<(NewRun, ResponseShape), WireError> {
    let (request, unknown) = (CompletionRequest::read(body)?, read_unknown(body)?);
    let warnings = warnings(&unknown)?;
    let sampling = Arc::new(request.sampling(unknown.members));
    let JsonObject(agent) = request.agent.unwrap_or_default();
    let shape = ResponseShape::asked(request.stream, request.stream_options, &agent, context.default_events);
    let (session, run) = read_ids(&agent, &context)?;
    let (system, messages) = read_messages(request.messages.as_deref(), session.as_ref(), run.as_ref())?;
    let AskedTools { tool_choice, client_tools, servers } = read_offer(request.tool_choice, request.tools.as_deref())?;
    let (policy, approval) = policy::read(agent.policy, agent.approval)?;
    let options = RunOptions {
        tool_choice,
        sampling,
        parallel_tool_calls: request.parallel_tool_calls.unwrap_or(true),
        on_disconnect: context.on_disconnect(agent.on_disconnect, shape.background),
        on_unknown_outcome: agent.on_unknown_outcome.unwrap_or_default(),
        reconnect_grace_ms: agent.reconnect_grace_ms.unwrap_or(DEFAULT_RECONNECT_GRACE_MS),
        hide_intermediate_text: hides_intermediate_text(agent.intermediate_text, request.response_format)?,
        stream_tool_arguments: agent.stream_tool_arguments.unwrap_or(false),
        max_discards: if shape.can_void() { MAX_DISCARDS } else { 0 },
    };
    let new = NewRun {
        id: RunId::mint(),
        tenant: context.tenant,
        key_name: context.key_name,
        generation: Some(context.generation),
        allowed_agents: context.allowed_agents,
        model: request.model,
        session,
        run,
        system,
        messages: messages.all,
        answers_from: messages.answers_from,
        answered: messages.answered,
        decisions: messages.decisions,
        approvals: Vec::new(),
        client_tools,
        servers,
        trace: context.trace,
        request_id: context.request_id,
        metadata: request.metadata.unwrap_or_default(),
        max_output_tokens: request.max_completion_tokens.or(request.max_tokens),
        tools: if options.tool_choice == ToolChoice::None { Some(Vec::new()) } else { agent.tools },
        policy: policy.map(Arc::new),
        approval,
        limits: agent.limits.unwrap_or_default().0.check()?,
        rules: rules::read(agent.tool_errors, agent.loop_guard, agent.planning, agent.reflection, agent.context)?,
        guards: agent.guards.unwrap_or_default().0.check()?,
        prompt: prompt::read(agent.prompt)?,
        on_limit: agent.on_limit,
        on_conflict: agent.on_conflict.unwrap_or_default(),
        options,
        waits_for_the_end: !shape.stream && !shape.background,
        of: None,
        warnings,
        claim: None,
        memory: Arc::default(),
    };
    Ok((new, shape))
}

/// The instructions that shape one run of a session only, and the other messages.
fn read_messages(
    raw: Option<&[&RawValue]>,
    session: Option<&SessionId>,
    run: Option<&RunId>,
) -> Result<(Vec<Message>, Messages), WireError> {
    let raw = raw.ok_or_else(|| missing("messages"))?;
    Ok(split(check_messages(raw, session.is_some() || run.is_some())?, session.is_some()))
}

/// The session and the run that a request names.
fn read_ids(agent: &AgentOptions, context: &RequestContext) -> Result<(Option<SessionId>, Option<RunId>), WireError> {
    let run = agent.run_id.as_deref().map(|id| RunId::parse(id).ok_or_else(|| no_run(id))).transpose()?;
    Ok((session_id(agent.session_id.as_deref(), context.session_header.as_deref())?, run))
}

impl<'a> CompletionRequest<'a> {
    fn read(body: &'a str) -> Result<Self, WireError> {
        let request: Self = parse(body)?;
        request.check().map(|()| request)
    }

    fn check(&self) -> Result<(), WireError> {
        range("temperature", self.temperature, 0.0, 2.0)?;
        range("top_p", self.top_p, 0.0, 1.0)?;
        range("frequency_penalty", self.frequency_penalty, -2.0, 2.0)?;
        range("presence_penalty", self.presence_penalty, -2.0, 2.0)?;
        for (param, tokens) in [("max_tokens", self.max_tokens), ("max_completion_tokens", self.max_completion_tokens)]
        {
            if tokens.is_some_and(|tokens| !(1..=MAX_OUTPUT_TOKENS).contains(&tokens)) {
                return Err(WireError::invalid(param, format!("must be between 1 and {MAX_OUTPUT_TOKENS}")));
            }
        }
        if let Some(biases) = self.logit_bias {
            let is_valid = |biases: BTreeMap<String, f64>| biases.values().all(|bias| (-100.0..=100.0).contains(bias));
            if !serde_json::from_str(biases.get()).is_ok_and(is_valid) {
                return Err(WireError::invalid("logit_bias", "must give each token id a bias between -100 and 100"));
            }
        }
        if self.functions.is_some() {
            return Err(WireError::invalid("functions", "functions are not supported; use tools"));
        }
        if self.n.is_some_and(|n| n != 1) {
            return Err(WireError::invalid("n", "must be 1: a run has one answer"));
        }
        if let Some(stop) = self.stop {
            let is_valid = match self::stop(stop) {
                Some(Stop::Text(_)) => true,
                Some(Stop::Texts(texts)) => texts.len() <= 4,
                None => false,
            };
            if !is_valid {
                return Err(WireError::invalid("stop", "must be a text or up to four texts"));
            }
        }
        if self.user.as_ref().is_some_and(|user| user.len() > MOST_USER) {
            return Err(WireError::invalid("user", format!("must not be longer than {MOST_USER} bytes")));
        }
        check_metadata(self.metadata.as_ref())
    }

    /// How the upstream is to answer. What is OpenAI's alone, and what is unknown, is kept as it came.
    fn sampling(&self, unknown: Members) -> Sampling {
        let format = self.response_format.and_then(|raw| sampling::response_format(raw.get()));
        let foreign = self.response_format.filter(|_| format.is_none());
        let passed = [("response_format", foreign), ("logit_bias", self.logit_bias), ("prediction", self.prediction)];
        let passed = passed.into_iter().filter_map(|(name, raw)| Some((name.to_owned(), RawValueEq(raw?.to_owned()))));
        let passed = passed.chain(unknown.0);
        Sampling {
            temperature: self.temperature,
            top_p: self.top_p,
            frequency_penalty: self.frequency_penalty,
            presence_penalty: self.presence_penalty,
            seed: self.seed,
            stop: self.stop.and_then(stop),
            response_format: format,
            reasoning_effort: self.reasoning_effort.clone(),
            verbosity: self.verbosity.clone(),
            user: self.user.clone(),
            safety_identifier: self.safety_identifier.clone(),
            service_tier: self.service_tier.clone(),
            prompt_cache_key: self.prompt_cache_key.clone(),
            extra: Extra::new(Dialect::OpenaiChat, Members(passed.collect())),
        }
    }
}

/// What `stop` says: a text, or several.
fn stop(raw: &RawValue) -> Option<Stop> {
    let text = serde_json::from_str(raw.get()).map(Stop::Text);
    text.or_else(|_| serde_json::from_str(raw.get()).map(Stop::Texts)).ok()
}

/// In a session, instructions shape this run only and stand ahead of the history; without one, they
/// stay where they are.
fn split(mut messages: Messages, in_session: bool) -> (Vec<Message>, Messages) {
    if !in_session {
        return (Vec::new(), messages);
    }
    let is_instruction = |message: &Message| matches!(message.role, Role::System | Role::Developer);
    let before = messages.all[..messages.answers_from].iter().filter(|message| is_instruction(message)).count();
    let answers_from = messages.answers_from - before;
    let (system, all) = std::mem::take(&mut messages.all).into_iter().partition(is_instruction);
    (system, Messages { all, answers_from, ..messages })
}

fn session_id(body: Option<&str>, header: Option<&str>) -> Result<Option<SessionId>, WireError> {
    let (text, param) = match (body, header) {
        (Some(body), Some(header)) if body != header => {
            let message = "the body and the header x-loopgate-session-id name different sessions";
            return Err(WireError::invalid("agent.session_id", message));
        }
        (Some(body), _) => (body, "agent.session_id"),
        (None, Some(header)) => (header, "x-loopgate-session-id"),
        (None, None) => return Ok(None),
    };
    SessionId::parse(text).map(Some).ok_or_else(|| bad_session_id(param))
}

fn no_run(id: &str) -> WireError {
    WireError::new(ErrorCode::RunNotFound, format!("run {:?} does not exist", clip(id))).at("agent.run_id")
}

fn range(param: &str, value: Option<f64>, low: f64, high: f64) -> Result<(), WireError> {
    match value {
        Some(value) if !(low..=high).contains(&value) => {
            Err(WireError::invalid(param, format!("must be between {low} and {high}")))
        }
        Some(_) | None => Ok(()),
    }
}

fn is_json_format(raw: Option<&RawValue>) -> Result<bool, WireError> {
    #[derive(Deserialize)]
    struct View<'a> {
        r#type: String,
        #[serde(borrow)]
        json_schema: Option<&'a RawValue>,
    }
    let Some(raw) = raw.filter(|raw| raw.get() != "null") else { return Ok(false) };
    let view: View<'_> =
        serde_json::from_str(raw.get()).map_err(|error| malformed(&error).within("response_format"))?;
    match (view.r#type.as_str(), view.json_schema) {
        ("text", _) => Ok(false),
        ("json_object", _) | ("json_schema", Some(_)) => Ok(true),
        ("json_schema", None) => Err(missing("json_schema").within("response_format")),
        _ => Err(WireError::invalid("response_format.type", "must be text, json_object or json_schema")),
    }
}
