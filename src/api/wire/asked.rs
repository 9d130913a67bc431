//! What a request asks for, in whichever dialect it was written, as a run.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::agent::{CallApproval, Generation, NewRun, PreviousResponse};
use crate::api::wire::agent::options::{AgentOptions, EventsMode, IntermediateText};
use crate::api::wire::agent::{policy, prompt, rules};
use crate::api::wire::body::bad_session_id;
use crate::api::wire::error::WireError;
use crate::api::wire::openai_chat::message::Messages;
use crate::api::wire::openai_chat::tool::AskedTools;
use crate::types::offer::ToolChoice;
use crate::types::response::ResponseTerms;
use crate::types::run::{OnDisconnect, RunOptions};
use crate::types::sampling::Sampling;
use crate::types::{Message, Role, RunId, SessionId, Tenant, TraceContext};

/// Most output tokens that a request may ask for.
pub const MAX_OUTPUT_TOKENS: u64 = 10_000_000;
const DEFAULT_RECONNECT_GRACE_MS: u64 = 15_000;
/// Steps that may be voided on endpoints that can show it.
pub const MAX_DISCARDS: u32 = 2;

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

/// What a request asks for beside the `agent` object.
#[derive(Debug)]
pub struct Asked {
    /// The model or agent.
    pub model: Option<String>,
    /// The conversation that it continues.
    pub session: Option<SessionId>,
    /// The waiting run that it answers.
    pub run: Option<RunId>,
    /// The response that it continues.
    pub previous: Option<Box<PreviousResponse>>,
    /// Instructions for this run only.
    pub system: Vec<Message>,
    /// The other messages.
    pub messages: Messages,
    /// Decisions about calls of the waiting run.
    pub approvals: Vec<CallApproval>,
    /// What it offers its model.
    pub tools: AskedTools,
    /// How the upstream is to answer.
    pub sampling: Arc<Sampling>,
    /// Whether the answer is to be JSON.
    pub is_json: bool,
    /// Whether several tools may be called in one turn.
    pub parallel_tool_calls: Option<bool>,
    /// The caller's notes.
    pub metadata: BTreeMap<String, String>,
    /// Most output tokens of one model call.
    pub max_output_tokens: Option<u64>,
    /// Whether it is answered at once.
    pub is_background: bool,
    /// Steps that may be voided.
    pub max_discards: u32,
    /// Whether the caller reads nothing before the end.
    pub waits_for_the_end: bool,
    /// Whether its client sends the whole conversation each time.
    pub sends_all: bool,
    /// What its response is to say of it.
    pub response: Option<Arc<ResponseTerms>>,
    /// What the caller should know about it.
    pub warnings: Vec<String>,
}

impl Asked {
    /// The run that it asks for.
    pub fn into_run(self, agent: AgentOptions, context: RequestContext) -> Result<NewRun, WireError> {
        let AskedTools { tool_choice, client_tools, servers } = self.tools;
        let (policy, approval) = policy::read(agent.policy, agent.approval)?;
        // Where the answer is to be JSON, what stands before calls would spoil it.
        let hides = agent.intermediate_text.map_or(self.is_json, |text| text == IntermediateText::Hide);
        let options = RunOptions {
            tool_choice,
            sampling: self.sampling,
            parallel_tool_calls: self.parallel_tool_calls.unwrap_or(true),
            on_disconnect: context.on_disconnect(agent.on_disconnect, self.is_background),
            on_unknown_outcome: agent.on_unknown_outcome.unwrap_or_default(),
            reconnect_grace_ms: agent.reconnect_grace_ms.unwrap_or(DEFAULT_RECONNECT_GRACE_MS),
            hide_intermediate_text: hides,
            stream_tool_arguments: agent.stream_tool_arguments.unwrap_or(false),
            max_discards: self.max_discards,
            response: self.response,
        };
        Ok(NewRun {
            id: RunId::mint(),
            tenant: context.tenant,
            key_name: context.key_name,
            generation: Some(context.generation),
            allowed_agents: context.allowed_agents,
            model: self.model,
            session: self.session,
            run: self.run,
            previous: self.previous,
            system: self.system,
            messages: self.messages.all,
            answers_from: self.messages.answers_from,
            answered: self.messages.answered,
            decisions: self.messages.decisions,
            approvals: self.approvals,
            client_tools,
            servers,
            trace: context.trace,
            request_id: context.request_id,
            metadata: self.metadata,
            max_output_tokens: self.max_output_tokens,
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
            waits_for_the_end: self.waits_for_the_end,
            unattended: false,
            sends_all: self.sends_all,
            repeats: false,
            of_page: false,
            of: None,
            warnings: self.warnings,
            claim: None,
            memory: Arc::default(),
        })
    }
}

/// In a session, instructions shape this run only and stand ahead of the history; without one, they
/// stay where they are.
pub fn split(mut messages: Messages, in_session: bool) -> (Vec<Message>, Messages) {
    if !in_session {
        return (Vec::new(), messages);
    }
    let is_instruction = |message: &Message| matches!(message.role, Role::System | Role::Developer);
    let before = messages.all[..messages.answers_from].iter().filter(|message| is_instruction(message)).count();
    let answers_from = messages.answers_from - before;
    let (system, all) = std::mem::take(&mut messages.all).into_iter().partition(is_instruction);
    (system, Messages { all, answers_from, ..messages })
}

/// The session that a body or a header names.
pub fn session_id(body: Option<&str>, header: Option<&str>) -> Result<Option<SessionId>, WireError> {
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

/// Refuses a number out of its range.
pub fn range(param: &str, value: Option<f64>, low: f64, high: f64) -> Result<(), WireError> {
    match value {
        Some(value) if !(low..=high).contains(&value) => {
            Err(WireError::invalid(param, format!("must be between {low} and {high}")))
        }
        Some(_) | None => Ok(()),
    }
}
