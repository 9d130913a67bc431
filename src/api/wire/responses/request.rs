//! The request that creates a response.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::agent::{LimitsPatch, NewRun, PreviousResponse};
use crate::api::wire::agent::options::{AgentOptions, EventsMode};
use crate::api::wire::asked::{Asked, MAX_DISCARDS, MAX_OUTPUT_TOKENS, RequestContext, range, session_id, split};
use crate::api::wire::body::{check_metadata, clip, located, parse, whole};
use crate::api::wire::error::{ErrorCode, WireError};
use crate::api::wire::json_object::JsonObject;
use crate::api::wire::responses::checks::{check_input, check_options, dropped, read_format, require_approval};
use crate::api::wire::responses::id;
use crate::api::wire::responses::input::{Known, read_input, references};
use crate::api::wire::responses::items::messages_of;
use crate::api::wire::responses::tools::{ReadTools, read_tools};
use crate::api::wire::vocabulary::metadata;
use crate::types::json::RawValueEq;
use crate::types::memory::MOST_USER;
use crate::types::response::{Echo, ResponseTerms};
use crate::types::sampling::Sampling;
use crate::types::{Message, Role, SessionId};

/// A request for a response. Members that are not named here have no effect.
#[derive(Debug, Deserialize, ToSchema)]
pub struct ResponseRequest<'a> {
    /// An agent, or a model of an upstream: `openai/gpt-5`, or bare where just one upstream has it.
    #[schema(example = "demo")]
    pub model: Option<String>,
    /// A text, or items in OpenAI's shape; may be left out where something is continued.
    #[serde(borrow)]
    #[schema(value_type = Option<Value>, example = "What is 1234 * 5678?")]
    pub input: Option<&'a RawValue>,
    /// Instructions for this response only.
    pub instructions: Option<String>,
    /// Whether to stream server-sent events.
    pub stream: Option<bool>,
    /// Whether to answer at once, and go on without a reader.
    pub background: Option<bool>,
    /// Whether the response can be read and continued by its id; true without it.
    pub store: Option<bool>,
    /// The response that this continues.
    #[schema(example = "resp_019a0000000070008000000000000000")]
    pub previous_response_id: Option<String>,
    /// The session that this continues: its id, or an object with it.
    #[serde(borrow)]
    #[schema(value_type = Option<Value>)]
    pub conversation: Option<&'a RawValue>,
    /// The client's functions and custom tools, and servers of tools.
    #[serde(borrow)]
    #[schema(value_type = Option<Vec<Value>>, max_items = 128)]
    pub tools: Option<Vec<&'a RawValue>>,
    /// `none`, `auto`, `required`, one tool or `allowed_tools`; holds for the first model call.
    #[serde(borrow)]
    #[schema(value_type = Option<Value>)]
    pub tool_choice: Option<&'a RawValue>,
    /// Whether several tools may be called in one turn.
    pub parallel_tool_calls: Option<bool>,
    /// Most output tokens of one model call.
    #[schema(minimum = 1, maximum = 10_000_000)]
    #[serde(default, deserialize_with = "whole")]
    pub max_output_tokens: Option<u64>,
    /// Most calls of the server's tools.
    #[schema(minimum = 1)]
    pub max_tool_calls: Option<u32>,
    /// The form and the length of the answer.
    #[schema(value_type = Option<TextOptions>)]
    pub text: Option<JsonObject<TextOptions<'a>>>,
    /// How much the model thinks.
    #[schema(value_type = Option<ReasoningOptions>)]
    pub reasoning: Option<JsonObject<ReasoningOptions>>,
    /// `auto` or `disabled`.
    pub truncation: Option<String>,
    /// 0 to 2.
    #[schema(minimum = 0, maximum = 2)]
    pub temperature: Option<f64>,
    /// 0 to 1.
    #[schema(minimum = 0, maximum = 1)]
    pub top_p: Option<f64>,
    /// The end user, for the upstream, and whose memory a run has; 4,096 bytes at most.
    pub user: Option<String>,
    /// The end user, for the upstream's safety checks.
    pub safety_identifier: Option<String>,
    /// Groups requests for the upstream's cache.
    pub prompt_cache_key: Option<String>,
    /// The upstream's tier.
    pub service_tier: Option<String>,
    /// The caller's notes: up to 16 short entries.
    #[schema(schema_with = metadata)]
    pub metadata: Option<BTreeMap<String, String>>,
    /// Stored prompts are refused.
    #[schema(ignore)]
    pub prompt: Option<IgnoredAny>,
    /// Policies of moderation are refused.
    #[schema(ignore)]
    pub moderation: Option<IgnoredAny>,
    /// What Loopgate adds to OpenAI's request.
    #[schema(value_type = Option<AgentOptions>)]
    pub agent: Option<JsonObject<AgentOptions>>,
}

/// The form and the length of the answer.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub struct TextOptions<'a> {
    /// Text, any JSON object, or JSON of a schema.
    #[serde(borrow)]
    #[schema(value_type = Option<Value>)]
    pub format: Option<&'a RawValue>,
    /// How long answers are, where the model can tell.
    pub verbosity: Option<String>,
}

/// How much the model thinks.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub struct ReasoningOptions {
    /// How much, where it can.
    pub effort: Option<String>,
}

/// How the answer is to be written.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Whether as a stream.
    pub stream: bool,
    /// Whether at once.
    pub background: bool,
    /// Whether objects that end have an `agent` member.
    pub with_agent: bool,
    /// Whether that has the report.
    pub with_report: bool,
    /// What the response says of its request.
    pub terms: Arc<ResponseTerms>,
}

impl<'a> ResponseRequest<'a> {
    /// Parses a request's body, and checks what needs nothing else.
    pub fn read(body: &'a str) -> Result<Self, WireError> {
        let request: Self = parse(body)?;
        request.check().map(|()| request)
    }

    /// The ids of the items that it names without having them.
    pub fn references(&self) -> Result<HashSet<String>, WireError> {
        references(self.input)
    }

    fn check(&self) -> Result<(), WireError> {
        range("temperature", self.temperature, 0.0, 2.0)?;
        range("top_p", self.top_p, 0.0, 1.0)?;
        if self.max_output_tokens.is_some_and(|tokens| !(1..=MAX_OUTPUT_TOKENS).contains(&tokens)) {
            let message = format!("must be between 1 and {MAX_OUTPUT_TOKENS}");
            return Err(WireError::invalid("max_output_tokens", message));
        }
        if self.max_tool_calls == Some(0) {
            return Err(WireError::invalid("max_tool_calls", "must be above 0; tool_choice none offers no tools"));
        }
        if self.user.as_ref().is_some_and(|user| user.len() > MOST_USER) {
            return Err(WireError::invalid("user", format!("must not be longer than {MOST_USER} bytes")));
        }
        if self.truncation.as_deref().is_some_and(|how| !matches!(how, "auto" | "disabled")) {
            return Err(WireError::invalid("truncation", "must be auto or disabled"));
        }
        if self.background == Some(true) && self.store == Some(false) {
            return Err(WireError::invalid("background", "a response in the background is stored; leave store out"));
        }
        for (param, given) in [("prompt", self.prompt.is_some()), ("moderation", self.moderation.is_some())] {
            if given {
                return Err(WireError::invalid(param, format!("{param} is not supported; leave it out")));
            }
        }
        check_metadata(self.metadata.as_ref())
    }

    /// The run that it asks for; `known` are the items that it may name.
    pub fn into_run(mut self, context: RequestContext, known: &Known) -> Result<(NewRun, Shape), WireError> {
        let JsonObject(mut agent) = self.agent.take().unwrap_or_default();
        check_options(&agent)?;
        let previous = self.previous()?;
        let session = self.session(&agent, &context)?;
        if previous.is_some() && session.is_some() {
            let message = "previous_response_id and a conversation cannot be given together";
            return Err(WireError::invalid("conversation", message));
        }
        let continues = previous.is_some() || session.is_some();
        let mut tools = read_tools(self.tools.as_deref().unwrap_or_default())?;
        let items = read_input(self.input, known, &|label| tools.place(label).to_owned())?;
        let mut input = messages_of(items, continues)?;
        check_input(&mut input, previous.is_some(), continues)?;
        let terms = Arc::new(self.terms(&mut tools, &agent));
        let offer = tools.offer(self.tool_choice)?;
        let (sampling, is_json) = self.sampling()?;
        if let Some(selected) = tools.selected.take() {
            // What the client itself offers is not among the server's.
            agent.tools = Some(selected);
        }
        let (mut system, messages) = split(input.messages, session.is_some());
        if let Some(instructions) = self.instructions.as_ref().filter(|text| !text.is_empty()) {
            system.insert(0, Message::text(Role::System, instructions));
        }
        let shape = self.shape(&agent, &terms);
        let approvals = input.approvals;
        let asked = Asked {
            model: self.model,
            session,
            run: approvals.first().and_then(|approval| approval.call.run()),
            previous,
            system,
            messages,
            approvals,
            warnings: tools.warning().into_iter().chain(dropped(&input.dropped)).collect(),
            tools: offer,
            sampling: Arc::new(sampling),
            is_json,
            parallel_tool_calls: self.parallel_tool_calls,
            metadata: self.metadata.unwrap_or_default(),
            max_output_tokens: self.max_output_tokens,
            is_background: shape.background,
            max_discards: MAX_DISCARDS,
            waits_for_the_end: !shape.stream && !shape.background,
            sends_all: true,
            response: Some(terms),
        };
        let mut new = asked.into_run(agent, context)?;
        if !tools.need_approval.is_empty() {
            require_approval(&mut new, tools.need_approval);
        }
        if self.max_tool_calls.is_some() {
            new.limits = LimitsPatch { max_tool_calls: self.max_tool_calls, ..new.limits };
        }
        Ok((new, shape))
    }

    fn shape(&self, agent: &AgentOptions, terms: &Arc<ResponseTerms>) -> Shape {
        Shape {
            stream: self.stream.unwrap_or(false),
            background: self.background.unwrap_or(false),
            with_agent: agent.events != Some(EventsMode::None),
            with_report: agent.include_report.unwrap_or(true),
            terms: terms.clone(),
        }
    }

    fn previous(&self) -> Result<Option<Box<PreviousResponse>>, WireError> {
        let Some(id) = self.previous_response_id.as_deref().filter(|id| !id.is_empty()) else { return Ok(None) };
        let missing = || {
            let message = format!("Previous response with id '{}' not found.", clip(id));
            WireError::new(ErrorCode::PreviousResponseNotFound, message).at("previous_response_id")
        };
        let (run, leg) = id::read_response(id).ok_or_else(missing)?;
        Ok(Some(Box::new(PreviousResponse { run, leg, id: id.to_owned() })))
    }

    fn session(&self, agent: &AgentOptions, context: &RequestContext) -> Result<Option<SessionId>, WireError> {
        #[derive(Deserialize)]
        struct Conversation {
            id: String,
        }
        let raw = self.conversation.filter(|raw| raw.get() != "null");
        let Some(raw) = raw else {
            return session_id(agent.session_id.as_deref(), context.session_header.as_deref());
        };
        let named: Result<String, _> = serde_json::from_str(raw.get());
        let id = if let Ok(id) = named {
            id
        } else {
            let JsonObject(Conversation { id }) = located(raw.get()).map_err(|error| error.within("conversation"))?;
            id
        };
        let missing = || WireError::new(ErrorCode::SessionNotFound, format!("session {:?} does not exist", clip(&id)));
        SessionId::parse(&id).map(Some).ok_or_else(|| missing().at("conversation"))
    }

    /// What the response says of the request.
    fn terms(&self, tools: &mut ReadTools, agent: &AgentOptions) -> ResponseTerms {
        let text = self.text.as_ref().map(|JsonObject(text)| text);
        let raw = |raw: &RawValue| RawValueEq(raw.to_owned());
        let given = |raw: &&RawValue| raw.get() != "null";
        let mut approvals = std::mem::take(&mut tools.labels);
        if agent.approval.is_some() {
            approvals = vec!["*".to_owned()];
        }
        let echo = Echo {
            instructions: self.instructions.clone(),
            max_output_tokens: self.max_output_tokens,
            max_tool_calls: self.max_tool_calls,
            parallel_tool_calls: self.parallel_tool_calls,
            temperature: self.temperature,
            top_p: self.top_p,
            truncation: self.truncation.clone(),
            effort: self.effort(),
            verbosity: text.and_then(|text| text.verbosity.clone()),
            format: text.and_then(|text| text.format).filter(given).map(raw),
            tool_choice: self.tool_choice.filter(given).map(raw),
            tools: std::mem::take(&mut tools.echo),
            metadata: self.metadata.clone().unwrap_or_default(),
            prompt_cache_key: self.prompt_cache_key.clone(),
            safety_identifier: self.safety_identifier.clone(),
        };
        ResponseTerms {
            store: self.store.unwrap_or(true),
            background: self.background.unwrap_or(false),
            previous: self.previous_response_id.clone().filter(|id| !id.is_empty()),
            inherited: 0,
            approvals,
            places: tools.places.clone(),
            custom: std::mem::take(&mut tools.custom),
            namespaced: std::mem::take(&mut tools.namespaced),
            echo,
        }
    }

    fn effort(&self) -> Option<String> {
        self.reasoning.as_ref().and_then(|JsonObject(reasoning)| reasoning.effort.clone())
    }

    /// How the upstream is to answer, and whether in JSON.
    fn sampling(&self) -> Result<(Sampling, bool), WireError> {
        let text = self.text.as_ref().map(|JsonObject(text)| text);
        let format = text.and_then(|text| text.format).filter(|format| format.get() != "null");
        let response_format = format.map(read_format).transpose()?;
        let sampling = Sampling {
            temperature: self.temperature,
            top_p: self.top_p,
            response_format,
            reasoning_effort: self.effort(),
            verbosity: text.and_then(|text| text.verbosity.clone()),
            user: self.user.clone(),
            safety_identifier: self.safety_identifier.clone(),
            service_tier: self.service_tier.clone(),
            prompt_cache_key: self.prompt_cache_key.clone(),
            ..Sampling::default()
        };
        let is_json = sampling.asks_for_json();
        Ok((sampling, is_json))
    }
}
