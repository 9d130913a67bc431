//! The run that a request of a chat interface asks for.
//!
//! The interface keeps its own list of messages and sends it again and again. The session has the conversation, so of the
//! request only what is new counts: what the user says, results of the client's tools, or decisions about calls.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::agent::{CallApproval, NewRun};
use crate::api::wire::agent::options::{AgentOptions, EventsMode};
use crate::api::wire::asked::{Asked, MAX_DISCARDS, RequestContext};
use crate::api::wire::body::{bad_session_id, clip};
use crate::api::wire::error::WireError;
use crate::api::wire::openai_chat::message::{Messages, check_messages};
use crate::api::wire::openai_chat::tool::AskedTools;
use crate::api::wire::responses::id;
use crate::types::approval::ApprovalDecision;
use crate::types::run::OnUnknownOutcome;
use crate::types::sampling::Sampling;
use crate::types::{CallId, Message, RunId, SessionId};

/// What is new in a request.
#[derive(Debug)]
pub enum New {
    /// Messages of the user, or results of the client's tools.
    Messages(Messages),
    /// Decisions about calls of a waiting run.
    Approvals(Vec<CallApproval>),
}

/// What a request asks for.
#[derive(Debug)]
pub struct UiAsked {
    /// The conversation.
    pub session: SessionId,
    /// The model or agent.
    pub model: Option<String>,
    /// What Loopgate adds.
    pub agent: AgentOptions,
    /// What is new.
    pub new: New,
    /// Instructions for this run only.
    pub system: Vec<Message>,
    /// The client's tools.
    pub tools: AskedTools,
    /// The encoding of the answer.
    pub events: EventsMode,
}

impl UiAsked {
    /// The run that it asks for.
    pub fn into_run(self, context: RequestContext) -> Result<NewRun, WireError> {
        let Self { session, model, agent, new, system, tools, events } = self;
        check_options(&agent, &session, events)?;
        let (messages, approvals) = match new {
            New::Messages(messages) => (messages, Vec::new()),
            New::Approvals(approvals) => (Messages::default(), approvals),
        };
        let asked = Asked {
            model,
            session: Some(session),
            run: run_of(&approvals)?,
            previous: None,
            system,
            messages,
            approvals,
            tools,
            sampling: Arc::new(Sampling::default()),
            is_json: false,
            parallel_tool_calls: None,
            metadata: BTreeMap::new(),
            max_output_tokens: None,
            is_background: false,
            max_discards: MAX_DISCARDS,
            waits_for_the_end: false,
            sends_all: false,
            response: None,
            warnings: Vec::new(),
        };
        Ok(NewRun { repeats: true, ..asked.into_run(agent, context)? })
    }
}

/// The session of an id that the interface chose.
pub fn session_of(id: &str, param: &str) -> Result<SessionId, WireError> {
    SessionId::parse(id).ok_or_else(|| bad_session_id(param))
}

/// The run whose calls are decided.
fn run_of(approvals: &[CallApproval]) -> Result<Option<RunId>, WireError> {
    let Some(first) = approvals.first() else { return Ok(None) };
    let run = first.call.run();
    if approvals.iter().any(|approval| approval.call.run() != run) {
        return Err(WireError::invalid(
            "messages",
            "the approvals are of calls of several runs; answer one run at a time",
        ));
    }
    Ok(run)
}

/// A decision about the call that was asked for under this id.
pub fn approval(id: &str, is_approved: bool, reason: Option<String>, param: &str) -> Result<CallApproval, WireError> {
    let missing = || WireError::invalid(param, format!("there is no approval request {:?}", clip(id)));
    let call = id::read_call("mcpr", id).ok_or_else(missing)?;
    let decision = if is_approved { ApprovalDecision::Approve } else { ApprovalDecision::Deny };
    let reason = reason.filter(|reason| !reason.is_empty());
    Ok(CallApproval { call, decision, digest: None, reason, arguments: None, result: None })
}

/// A part of what a user says, as the chat dialect has it.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum UserPart {
    /// Text.
    Text {
        /// It.
        text: String,
    },
    /// A picture.
    ImageUrl {
        /// Where it is.
        image_url: Url,
    },
    /// Sound.
    InputAudio {
        /// It.
        input_audio: Sound,
    },
    /// Another file.
    File {
        /// It.
        file: File,
    },
}

/// Where a picture is.
#[derive(Debug, Serialize)]
pub struct Url {
    url: String,
}

/// Sound, as base64.
#[derive(Debug, Serialize)]
pub struct Sound {
    data: String,
    format: &'static str,
}

/// A file.
#[derive(Debug, Serialize)]
pub struct File {
    #[serde(skip_serializing_if = "Option::is_none")]
    filename: Option<String>,
    file_data: String,
}

impl UserPart {
    /// A file of this media type, at a URL or in one.
    pub fn of_file(url: String, media_type: &str, filename: Option<String>) -> Result<Self, WireError> {
        if media_type.starts_with("image/") {
            return Ok(Self::ImageUrl { image_url: Url { url } });
        }
        let Some((_, data)) = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,")) else {
            let message = "must be a data: URL with the file's bytes as base64, unless the file is a picture";
            return Err(WireError::invalid("url", message));
        };
        let format = match media_type {
            "audio/wav" | "audio/x-wav" | "audio/wave" => Some("wav"),
            "audio/mpeg" | "audio/mp3" => Some("mp3"),
            _ => None,
        };
        Ok(match format {
            Some(format) => Self::InputAudio { input_audio: Sound { data: data.to_owned(), format } },
            None => Self::File { file: File { filename, file_data: url } },
        })
    }
}

/// A message in the chat dialect.
#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum ChatMessage<'a> {
    User { content: &'a [UserPart] },
    Tool { tool_call_id: &'a str, content: &'a str },
}

/// What a user says.
pub fn said(content: &[UserPart]) -> Box<RawValue> {
    // One text is said as such.
    if let [UserPart::Text { text }] = content {
        let message = serde_json::json!({"role": "user", "content": text});
        return to_raw_value(&message).expect("a value is JSON");
    }
    to_raw_value(&ChatMessage::User { content }).expect("it holds only strings")
}

/// The result of a call of the client's tools.
pub fn answered(call: &CallId, content: &str) -> Box<RawValue> {
    let message = ChatMessage::Tool { tool_call_id: call.as_str(), content };
    to_raw_value(&message).expect("it holds only strings")
}

/// What a value says as a text.
pub fn text_of(value: &RawValue) -> String {
    serde_json::from_str(value.get()).unwrap_or_else(|_| value.get().to_owned())
}

/// Checks messages, which the request has at `param`.
pub fn checked(messages: &[Box<RawValue>], param: &str) -> Result<Messages, WireError> {
    let raw: Vec<_> = messages.iter().map(|message| &**message).collect();
    check_messages(&raw, true).map_err(|error| error.at(param))
}

/// Refuses what these endpoints do otherwise, or cannot show.
fn check_options(agent: &AgentOptions, session: &SessionId, events: EventsMode) -> Result<(), WireError> {
    let refused = [
        (
            agent.session_id.as_deref().is_some_and(|id| id != session.as_str()),
            "agent.session_id",
            "names another session than the chat, whose id is the session",
        ),
        (agent.run_id.is_some(), "agent.run_id", "is not for chats: the ids of calls lead to the run"),
        (agent.background == Some(true), "agent.background", "is not for chats: a run goes on when its reader leaves"),
        (agent.dry_run == Some(true), "agent.dry_run", "is not for chats: use /v1/agent/completions"),
        (
            agent.events.is_some_and(|asked| asked != events),
            "agent.events",
            "is fixed here; /v1/agent/completions has all encodings",
        ),
        (
            agent.on_unknown_outcome == Some(OnUnknownOutcome::Ask),
            "agent.on_unknown_outcome",
            "must be fail or tell_model: a chat has no part by which a client could be asked",
        ),
    ];
    match refused.into_iter().find(|(is_given, ..)| *is_given) {
        Some((_, param, message)) => Err(WireError::invalid(param, message)),
        None => Ok(()),
    }
}
