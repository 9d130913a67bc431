//! The request of both completion endpoints: OpenAI's chat completion and an optional `agent` object.
//!
//! Values that OpenAI would refuse are refused here, before anything is spent.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use utoipa::ToSchema;

use crate::agent::NewRun;
use crate::api::wire::agent::options::AgentOptions;
use crate::api::wire::asked::{Asked, MAX_DISCARDS, MAX_OUTPUT_TOKENS, RequestContext, range, session_id, split};
use crate::api::wire::body::{check_metadata, clip, malformed, missing, parse, whole};
use crate::api::wire::error::{ErrorCode, WireError};
use crate::api::wire::json_object::JsonObject;
use crate::api::wire::openai_chat::described::{ChatMessage, ChatResponseFormat, ChatStop, ChatTool, ChatToolChoice};
use crate::api::wire::openai_chat::message::{Messages, check_messages};
use crate::api::wire::openai_chat::shape::{ResponseShape, StreamOptions};
use crate::api::wire::openai_chat::tool::read_offer;
use crate::api::wire::openai_chat::unknown::read_unknown;
use crate::api::wire::openai_chat::unsupported::{check_supported, unseen};
use crate::api::wire::vocabulary::metadata;
use crate::llm::openai::sampling;
use crate::types::conversation::{Dialect, Extra};
use crate::types::json::{Members, RawValueEq};
use crate::types::memory::MOST_USER;
use crate::types::sampling::{Sampling, Stop};
use crate::types::{Message, RunId, SessionId};

/// A chat completion request. Members that are not named here are sent to upstreams that may know them.
#[derive(Debug, Deserialize, ToSchema)]
pub struct CompletionRequest<'a> {
    /// An agent, or a model of an upstream: `openai/gpt-5`, or bare where just one upstream has it.
    #[schema(example = "demo")]
    pub model: Option<String>,
    /// The conversation, in OpenAI's shape; with a session, only what is new. A request has it or `input`.
    #[serde(borrow)]
    #[schema(value_type = Option<Vec<ChatMessage>>, min_items = 1, max_items = 10_000, example = json!([{"role": "user", "content": "What is 1234 * 5678?"}]))]
    pub messages: Option<Vec<&'a RawValue>>,
    /// One message of the user, in place of `messages`.
    pub input: Option<String>,
    /// Whether to stream server-sent events. Without it, `/v1/agent/completions` does what the agent says.
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

/// Parses and checks a request body.
pub fn read_request(body: &str, context: RequestContext) -> Result<(NewRun, ResponseShape), WireError> {
    let (request, unknown) = (CompletionRequest::read(body)?, read_unknown(body)?);
    let of_text = request.message_of_text()?;
    check_supported(&unknown.members)?;
    let warnings = unknown.warning().into_iter().chain(unseen(&unknown.members)).collect();
    let sampling = Arc::new(request.sampling(unknown.members));
    let JsonObject(agent) = request.agent.unwrap_or_default();
    let shape = ResponseShape::asked(request.stream, request.stream_options, &agent, context.default_events);
    let (session, run) = read_ids(&agent, &context)?;
    let messages = of_text.as_ref().map(|message| vec![&**message]).or(request.messages);
    let (system, messages) = read_messages(messages.as_deref(), session.as_ref(), run.as_ref())?;
    let asked = Asked {
        model: request.model,
        session,
        run,
        previous: None,
        system,
        messages,
        approvals: Vec::new(),
        tools: read_offer(request.tool_choice, request.tools.as_deref())?,
        sampling,
        is_json: is_json_format(request.response_format)?,
        parallel_tool_calls: request.parallel_tool_calls,
        metadata: request.metadata.unwrap_or_default(),
        max_output_tokens: request.max_completion_tokens.or(request.max_tokens),
        is_background: shape.background,
        max_discards: if shape.can_void() { MAX_DISCARDS } else { 0 },
        waits_for_the_end: shape.stream != Some(true) && !shape.background,
        sends_all: false,
        response: None,
        warnings,
    };
    Ok((asked.into_run(agent, context)?, shape))
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

    /// The message that it has in place of messages.
    fn message_of_text(&self) -> Result<Option<Box<RawValue>>, WireError> {
        let Some(text) = &self.input else { return Ok(None) };
        if self.messages.is_some() {
            let message = "stands for one message of the user in place of `messages`: send one of the two";
            return Err(WireError::invalid("input", message));
        }
        let message = BTreeMap::from([("role", "user"), ("content", text.as_str())]);
        to_raw_value(&message).map(Some).map_err(|error| malformed(&error).at("input"))
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

fn no_run(id: &str) -> WireError {
    WireError::new(ErrorCode::RunNotFound, format!("run {:?} does not exist", clip(id))).at("agent.run_id")
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
