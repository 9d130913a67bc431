//! The request of the AI SDK's chat transport.

use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::agent::NewRun;
use crate::api::wire::agent::options::{AgentOptions, EventsMode};
use crate::api::wire::asked::RequestContext;
use crate::api::wire::body::{clip, located, missing, parse};
use crate::api::wire::error::WireError;
use crate::api::wire::json_object::JsonObject;
use crate::api::wire::openai_chat::described::ChatTool;
use crate::api::wire::openai_chat::tool::read_offer;
use crate::api::wire::ui::asked::{New, UiAsked, UserPart, answered, approval, checked, said, session_of, text_of};
use crate::types::CallId;

/// What a chat sends, and what its transport adds in `body`. Members that are not named here have no effect.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = UiChatRequest)]
pub struct UiChatRequest<'a> {
    /// The chat: its session, which is created if it does not exist.
    #[schema(required, pattern = "^[A-Za-z0-9_.:-]{1,128}$")]
    pub id: Option<String>,
    /// The chat's messages, of which the last one is read.
    #[serde(borrow)]
    #[schema(value_type = Vec<Value>, required, min_items = 1, example = json!([{"id": "m1", "role": "user", "parts": [{"type": "text", "text": "What is 6 * 7?"}]}]))]
    pub messages: Option<Vec<&'a RawValue>>,
    /// An agent, or a model of an upstream; without it, what the session names.
    #[schema(example = "demo")]
    pub model: Option<String>,
    /// The client's tools, each a function of OpenAI's chat dialect.
    #[serde(borrow)]
    #[schema(value_type = Option<Vec<ChatTool>>, max_items = 128)]
    pub tools: Option<Vec<&'a RawValue>>,
    /// What Loopgate adds.
    #[schema(value_type = Option<AgentOptions>)]
    pub agent: Option<JsonObject<AgentOptions>>,
}

/// A message of a chat.
#[derive(Deserialize)]
struct UiMessage<'a> {
    id: Option<String>,
    role: String,
    #[serde(borrow)]
    parts: Vec<&'a RawValue>,
}

/// A part of a message.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct View<'a> {
    r#type: String,
    text: Option<String>,
    url: Option<String>,
    media_type: Option<String>,
    filename: Option<String>,
    tool_call_id: Option<String>,
    state: Option<String>,
    #[serde(borrow)]
    output: Option<&'a RawValue>,
    error_text: Option<String>,
    provider_executed: Option<bool>,
    preliminary: Option<bool>,
    approval: Option<Approval>,
}

#[derive(Deserialize)]
struct Approval {
    id: String,
    approved: Option<bool>,
    reason: Option<String>,
}

impl<'a> UiChatRequest<'a> {
    /// Parses a request's body.
    pub fn read(body: &'a str) -> Result<Self, WireError> {
        parse(body)
    }

    /// The run that it asks for, and the message that it continues.
    pub fn into_run(self, context: RequestContext) -> Result<(NewRun, Option<String>), WireError> {
        let session = session_of(&self.id.ok_or_else(|| missing("id"))?, "id")?;
        let messages = self.messages.ok_or_else(|| missing("messages"))?;
        let (new, continued) = read_last(&messages)?;
        let JsonObject(agent) = self.agent.unwrap_or_default();
        let asked = UiAsked {
            session,
            model: self.model,
            agent,
            new,
            system: Vec::new(),
            tools: read_offer(None, self.tools.as_deref())?,
            events: EventsMode::AiSdk,
        };
        Ok((asked.into_run(context)?, continued))
    }
}

/// What is new in the last message, and its id if it is continued.
fn read_last(messages: &[&RawValue]) -> Result<(New, Option<String>), WireError> {
    let Some((last, before)) = messages.split_last() else {
        return Err(WireError::invalid("messages", "there must be at least one message"));
    };
    let param = format!("messages[{}]", before.len());
    let JsonObject(message): JsonObject<UiMessage<'_>> = located(last.get()).map_err(|error| error.within(&param))?;
    let mut parts = Vec::with_capacity(message.parts.len());
    for (index, raw) in message.parts.iter().enumerate() {
        let part = located(raw.get()).map_err(|error| error.within(&format!("{param}.parts[{index}]")));
        let JsonObject(view): JsonObject<View<'_>> = part?;
        parts.push((index, view));
    }
    match message.role.as_str() {
        "user" => Ok((read_user(parts, &param)?, None)),
        "assistant" => Ok((read_assistant(&parts, &param)?, message.id)),
        other => {
            let what = format!("the last message is of the role {:?}; it must be of user or assistant", clip(other));
            Err(WireError::invalid("role", what).within(&param))
        }
    }
}

/// What the user says. Parts that only the interface knows are left out.
fn read_user(parts: Vec<(usize, View<'_>)>, param: &str) -> Result<New, WireError> {
    let mut content = Vec::new();
    for (index, part) in parts {
        let within = |error: WireError| error.within(&format!("{param}.parts[{index}]"));
        match part.r#type.as_str() {
            "text" => {
                let text = part.text.ok_or_else(|| within(missing("text")))?;
                if !text.is_empty() {
                    content.push(UserPart::Text { text });
                }
            }
            "file" => {
                let url = part.url.ok_or_else(|| within(missing("url")))?;
                let media_type = part.media_type.ok_or_else(|| within(missing("mediaType")))?;
                content.push(UserPart::of_file(url, &media_type, part.filename).map_err(within)?);
            }
            _ => {}
        }
    }
    if content.is_empty() {
        return Err(WireError::invalid("parts", "the user says nothing: there is no text and no file").within(param));
    }
    Ok(New::Messages(checked(&[said(&content)], param)?))
}

/// What the client answers in the last step of a message: decisions, or results of its own tools.
fn read_assistant(parts: &[(usize, View<'_>)], param: &str) -> Result<New, WireError> {
    let step = parts.iter().rposition(|(_, part)| part.r#type == "step-start").map_or(0, |place| place + 1);
    let is_tool = |part: &View<'_>| part.r#type == "dynamic-tool" || part.r#type.starts_with("tool-");
    let calls = || parts[step..].iter().filter(|(_, part)| is_tool(part));
    let mut approvals = Vec::new();
    for (index, part) in calls().filter(|(_, part)| part.state.as_deref() == Some("approval-responded")) {
        let param = format!("{param}.parts[{index}].approval");
        let Approval { id, approved, reason } = part.approval.as_ref().ok_or_else(|| missing(&param))?;
        let is_approved = approved.ok_or_else(|| missing("approved").within(&param))?;
        approvals.push(approval(id, is_approved, reason.clone(), &format!("{param}.id"))?);
    }
    if !approvals.is_empty() {
        return Ok(New::Approvals(approvals));
    }
    let mut results = Vec::new();
    for (index, part) in calls().filter(|(_, part)| part.provider_executed != Some(true)) {
        let content = match part.state.as_deref() {
            Some("output-available") if part.preliminary != Some(true) => part.output.map(text_of).unwrap_or_default(),
            Some("output-error") => part.error_text.clone().unwrap_or_default(),
            _ => continue,
        };
        let missing = || missing("toolCallId").within(&format!("{param}.parts[{index}]"));
        let call = CallId::foreign(part.tool_call_id.as_ref().ok_or_else(missing)?);
        results.push(answered(&call, &content));
    }
    if results.is_empty() {
        let message = "there is nothing new: the last message is not of the user, and answers no call";
        return Err(WireError::invalid("messages", message));
    }
    Ok(New::Messages(checked(&results, param)?))
}
