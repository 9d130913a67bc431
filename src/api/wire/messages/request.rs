//! The request that creates a message.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use utoipa::ToSchema;

use crate::agent::NewRun;
use crate::api::wire::agent::options::{AgentOptions, EventsMode};
use crate::api::wire::asked::{Asked, MAX_DISCARDS, MAX_OUTPUT_TOKENS, RequestContext, range, session_id, split};
use crate::api::wire::body::{located, missing, parse, whole};
use crate::api::wire::error::WireError;
use crate::api::wire::json_object::JsonObject;
use crate::api::wire::messages::tools::{ReadTools, read_tools};
use crate::api::wire::messages::transcript::{self, Transcript};
use crate::types::CallId;
use crate::types::conversation::{Dialect, Extra};
use crate::types::json::{Members, RawValueEq};
use crate::types::memory::MOST_USER;
use crate::types::run::OnUnknownOutcome;
use crate::types::sampling::{ResponseFormat, Sampling, Stop};

/// What a schema of the answer is called upstream.
const FORMAT_NAME: &str = "answer";

/// A request for a message. Members that are not named here have no effect.
#[derive(Debug, Deserialize, ToSchema)]
pub struct MessagesRequest<'a> {
    /// An agent, or a model of an upstream: `openai/gpt-5`, or bare where just one upstream has it.
    #[schema(example = "demo")]
    pub model: Option<String>,
    /// The conversation, in Anthropic's shape; with a session, only what is new.
    #[serde(borrow)]
    #[schema(value_type = Vec<Value>, required, min_items = 1, max_items = 10_000, example = json!([{"role": "user", "content": "What is 1234 * 5678?"}]))]
    pub messages: Option<Vec<&'a RawValue>>,
    /// Instructions: a text, or blocks of text.
    #[serde(borrow)]
    #[schema(value_type = Option<Value>)]
    pub system: Option<&'a RawValue>,
    /// Most output tokens of one model call. Only counting tokens does without it.
    #[schema(minimum = 1, maximum = 10_000_000, example = 4096)]
    #[serde(default, deserialize_with = "whole")]
    pub max_tokens: Option<u64>,
    /// Whether to stream server-sent events.
    pub stream: Option<bool>,
    /// The client's tools, and toolsets of the servers in `mcp_servers`.
    #[serde(borrow)]
    #[schema(value_type = Option<Vec<Value>>, max_items = 128)]
    pub tools: Option<Vec<&'a RawValue>>,
    /// `auto`, `any`, `tool` or `none`; what forces a call holds for the first model call.
    #[serde(borrow)]
    #[schema(value_type = Option<Value>)]
    pub tool_choice: Option<&'a RawValue>,
    /// Servers of tools that this server has, by their names: only these tools are offered then.
    #[serde(borrow)]
    #[schema(value_type = Option<Vec<Value>>)]
    pub mcp_servers: Option<Vec<&'a RawValue>>,
    /// Texts that end the answer.
    pub stop_sequences: Option<Vec<String>>,
    /// 0 to 1.
    #[schema(minimum = 0, maximum = 1)]
    pub temperature: Option<f64>,
    /// 0 to 1.
    #[schema(minimum = 0, maximum = 1)]
    pub top_p: Option<f64>,
    /// From how many of the likeliest tokens one is chosen, where the upstream knows it.
    #[serde(default, deserialize_with = "whole")]
    pub top_k: Option<u64>,
    /// Whether and how much the model thinks.
    #[schema(value_type = Option<ThinkingOptions>)]
    pub thinking: Option<JsonObject<ThinkingOptions>>,
    /// How hard the model tries, and the form of the answer.
    #[schema(value_type = Option<OutputOptions>)]
    pub output_config: Option<JsonObject<OutputOptions<'a>>>,
    /// The form of the answer, as it was called first.
    #[serde(borrow)]
    #[schema(value_type = Option<Value>)]
    pub output_format: Option<&'a RawValue>,
    /// Whom the request is for.
    #[schema(value_type = Option<EndUser>)]
    pub metadata: Option<JsonObject<EndUser>>,
    /// What Loopgate adds to Anthropic's request.
    #[schema(value_type = Option<AgentOptions>)]
    pub agent: Option<JsonObject<AgentOptions>>,
}

/// Whether and how much the model thinks.
#[derive(Debug, Deserialize, ToSchema)]
pub struct ThinkingOptions {
    /// `enabled`, `adaptive` or `disabled`.
    r#type: String,
    /// How many tokens it may think, about, where it is enabled.
    #[serde(default, deserialize_with = "whole")]
    budget_tokens: Option<u64>,
}

/// How hard the model tries, and the form of the answer.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub struct OutputOptions<'a> {
    /// `low`, `medium`, `high`, …, where the model can tell.
    effort: Option<String>,
    /// JSON of a schema.
    #[serde(borrow)]
    #[schema(value_type = Option<Value>)]
    format: Option<&'a RawValue>,
}

/// Whom a request is for.
#[derive(Debug, Deserialize, ToSchema)]
pub struct EndUser {
    /// The end user, for the upstream, and whose memory a run has; 4,096 bytes at most.
    user_id: Option<String>,
}

/// How the answer is to be written.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Whether as a stream.
    pub stream: bool,
    /// Whether it has an `agent` member.
    pub with_agent: bool,
    /// Whether that has the report.
    pub with_report: bool,
    /// The call with which the last message paused.
    pub paused: Option<CallId>,
}

impl<'a> MessagesRequest<'a> {
    /// Parses a request's body, and checks what needs nothing else.
    pub fn read(body: &'a str) -> Result<Self, WireError> {
        let request: Self = parse(body)?;
        request.check().map(|()| request)
    }

    /// Refuses a request that does not say how long answers may be.
    pub fn check_max_tokens(&self) -> Result<(), WireError> {
        self.max_tokens.map(drop).ok_or_else(|| missing("max_tokens"))
    }

    fn check(&self) -> Result<(), WireError> {
        range("temperature", self.temperature, 0.0, 1.0)?;
        range("top_p", self.top_p, 0.0, 1.0)?;
        if self.max_tokens.is_some_and(|tokens| !(1..=MAX_OUTPUT_TOKENS).contains(&tokens)) {
            return Err(WireError::invalid("max_tokens", format!("must be between 1 and {MAX_OUTPUT_TOKENS}")));
        }
        if self.user().is_some_and(|user| user.len() > MOST_USER) {
            let message = format!("must not be longer than {MOST_USER} bytes");
            return Err(WireError::invalid("metadata.user_id", message));
        }
        let kind = self.thinking.as_ref().map(|JsonObject(thinking)| thinking.r#type.as_str());
        if kind.is_some_and(|kind| !matches!(kind, "enabled" | "adaptive" | "disabled")) {
            return Err(WireError::invalid("thinking.type", "must be enabled, adaptive or disabled"));
        }
        Ok(())
    }

    fn user(&self) -> Option<&String> {
        self.metadata.as_ref().and_then(|JsonObject(metadata)| metadata.user_id.as_ref())
    }

    /// The run that it asks for.
    pub fn into_run(mut self, context: RequestContext) -> Result<(NewRun, Shape), WireError> {
        let JsonObject(mut agent) = self.agent.take().unwrap_or_default();
        check_options(&agent)?;
        let session = session_id(agent.session_id.as_deref(), context.session_header.as_deref())?;
        let messages = self.messages.as_deref().ok_or_else(|| missing("messages"))?;
        let Transcript { input, paused } = transcript::read(self.system, messages, session.is_some())?;
        let (tools, servers) = (self.tools.as_deref().unwrap_or_default(), self.mcp_servers.as_deref());
        let (read, offer) = read_tools(tools, servers.unwrap_or_default(), self.tool_choice)?;
        let ReadTools { selected, parallel, mut warnings, .. } = read;
        if let Some(selected) = selected {
            agent.tools = Some(selected);
        }
        if !input.dropped.is_empty() {
            let names = input.dropped.join(", ");
            warnings.push(format!("these blocks were made elsewhere and were left out: {names}"));
        }
        let (sampling, is_json) = self.sampling()?;
        let (system, messages) = split(input.messages, session.is_some());
        let stream = self.stream.unwrap_or(false);
        let shape = Shape {
            stream,
            with_agent: agent.events != Some(EventsMode::None),
            with_report: agent.include_report.unwrap_or(true),
            paused,
        };
        let asked = Asked {
            model: self.model,
            session,
            run: None,
            previous: None,
            system,
            messages,
            approvals: Vec::new(),
            tools: offer,
            sampling: Arc::new(sampling),
            is_json,
            parallel_tool_calls: parallel,
            metadata: std::collections::BTreeMap::new(),
            max_output_tokens: self.max_tokens,
            is_background: false,
            // A stream of this dialect cannot take back what it said.
            max_discards: if stream { 0 } else { MAX_DISCARDS },
            waits_for_the_end: !stream,
            sends_all: true,
            response: None,
            warnings,
        };
        Ok((asked.into_run(agent, context)?, shape))
    }

    /// How the upstream is to answer, and whether in JSON.
    fn sampling(&self) -> Result<(Sampling, bool), WireError> {
        let output = self.output_config.as_ref().map(|JsonObject(output)| output);
        let given = |raw: &&RawValue| raw.get() != "null";
        let in_config = output.and_then(|output| output.format).filter(given).map(|raw| (raw, "output_config.format"));
        let format = in_config.or_else(|| self.output_format.filter(given).map(|raw| (raw, "output_format")));
        let response_format = format.map(|(raw, path)| read_format(raw).map_err(|error| error.within(path)));
        let effort = output.and_then(|output| output.effort.clone()).or_else(|| self.effort_of_thinking());
        let sampling = Sampling {
            temperature: self.temperature,
            top_p: self.top_p,
            stop: self.stop_sequences.clone().filter(|texts| !texts.is_empty()).map(Stop::Texts),
            response_format: response_format.transpose()?,
            reasoning_effort: effort,
            user: self.user().cloned(),
            extra: self.passed(),
            ..Sampling::default()
        };
        let is_json = sampling.asks_for_json();
        Ok((sampling, is_json))
    }

    /// The effort that stands for a budget of thinking.
    fn effort_of_thinking(&self) -> Option<String> {
        let JsonObject(thinking) =
            self.thinking.as_ref().filter(|JsonObject(thinking)| thinking.r#type == "enabled")?;
        let effort = match thinking.budget_tokens.unwrap_or_default() {
            0..=2_048 => "low",
            2_049..=16_384 => "medium",
            _ => "high",
        };
        Some(effort.to_owned())
    }

    /// What upstreams are sent that may know it. That the model is to think as it sees fit, only Anthropic's are told: others do
    /// so anyway.
    fn passed(&self) -> Extra {
        let number = |number: u64| RawValueEq(to_raw_value(&number).expect("a number is JSON"));
        let mut members: Vec<_> = self.top_k.map(|top_k| ("top_k".to_owned(), number(top_k))).into_iter().collect();
        let is_adaptive = self.thinking.as_ref().is_some_and(|JsonObject(thinking)| thinking.r#type == "adaptive");
        if is_adaptive {
            let adaptive = to_raw_value(&serde_json::json!({"type": "adaptive"})).expect("values are JSON");
            members.push(("thinking".to_owned(), RawValueEq(adaptive)));
        }
        Extra::new(if is_adaptive { Dialect::AnthropicMessages } else { Dialect::OpenaiChat }, Members(members))
    }
}

/// Refuses what the dialect does otherwise, or cannot show.
fn check_options(agent: &AgentOptions) -> Result<(), WireError> {
    let refused = [
        (agent.run_id.is_some(), "agent.run_id", "is not for messages: the tool_result blocks lead to the run"),
        (agent.background.is_some(), "agent.background", "is not for messages: use /v1/responses"),
        (agent.dry_run == Some(true), "agent.dry_run", "is not for messages: use /v1/agent/completions"),
        (
            agent.events.is_some_and(|events| !matches!(events, EventsMode::Native | EventsMode::None)),
            "agent.events",
            "must be native or none: clients of messages know no other events",
        ),
        (
            agent.on_unknown_outcome == Some(OnUnknownOutcome::Ask),
            "agent.on_unknown_outcome",
            "must be fail or tell_model: messages have no block by which a client could be asked",
        ),
    ];
    match refused.into_iter().find(|(is_given, ..)| *is_given) {
        Some((_, param, message)) => Err(WireError::invalid(param, message)),
        None => Ok(()),
    }
}

/// Reads the form of the answer.
fn read_format(raw: &RawValue) -> Result<ResponseFormat, WireError> {
    #[derive(Deserialize)]
    struct View<'a> {
        r#type: String,
        #[serde(borrow)]
        schema: Option<&'a RawValue>,
    }
    let JsonObject(view): JsonObject<View<'_>> = located(raw.get())?;
    if view.r#type != "json_schema" {
        return Err(WireError::invalid("type", "must be json_schema"));
    }
    let schema = view.schema.ok_or_else(|| missing("schema"))?;
    Ok(ResponseFormat::JsonSchema {
        name: FORMAT_NAME.to_owned(),
        description: None,
        schema: Some(RawValueEq(schema.to_owned())),
        strict: Some(true),
    })
}
