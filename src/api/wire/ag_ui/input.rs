//! The input of a run.

use serde::Deserialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use utoipa::ToSchema;

use crate::agent::{CallApproval, NewRun};
use crate::api::wire::ag_ui::events::AgUi;
use crate::api::wire::agent::options::{AgentOptions, EventsMode};
use crate::api::wire::asked::RequestContext;
use crate::api::wire::body::{clip, located, missing, parse};
use crate::api::wire::error::{ErrorCode, WireError};
use crate::api::wire::json_object::JsonObject;
use crate::api::wire::openai_chat::message::check_messages;
use crate::api::wire::openai_chat::tool::read_offer;
use crate::api::wire::responses::id;
use crate::api::wire::ui::asked::{New, UiAsked, UserPart, answered, approval, checked, said, session_of};
use crate::types::{CallId, Message};

/// What a client of AG-UI sends. Members that are not named here have no effect.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunAgentInput<'a> {
    /// The thread: its session, which is created if it does not exist.
    #[schema(required, pattern = "^[A-Za-z0-9_.:-]{1,128}$")]
    pub thread_id: Option<String>,
    /// What the client calls the run; the events repeat it.
    #[schema(required)]
    pub run_id: Option<String>,
    /// The thread's messages, of which those behind the last one of the agent are read.
    #[serde(borrow)]
    #[schema(value_type = Vec<Value>, required, example = json!([{"id": "m1", "role": "user", "content": "What is 6 * 7?"}]))]
    pub messages: Option<Vec<&'a RawValue>>,
    /// The client's tools.
    #[serde(borrow)]
    #[schema(value_type = Option<Vec<Value>>, max_items = 128)]
    pub tools: Option<Vec<&'a RawValue>>,
    /// What the model is to know in this run.
    #[schema(value_type = Option<Vec<AgUiContext>>)]
    pub context: Option<Vec<JsonObject<AgUiContext>>>,
    /// Answers to the interrupts of the run before.
    #[schema(value_type = Option<Vec<ResumeEntry>>)]
    pub resume: Option<Vec<JsonObject<ResumeEntry<'a>>>>,
    /// What Loopgate reads beside.
    #[schema(value_type = Option<ForwardedProps>)]
    pub forwarded_props: Option<JsonObject<ForwardedProps>>,
}

/// Something that the model is to know.
#[derive(Debug, Deserialize, ToSchema)]
pub struct AgUiContext {
    /// What it is.
    description: String,
    /// It.
    value: String,
}

/// The answer to an interrupt.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResumeEntry<'a> {
    /// The interrupt.
    interrupt_id: String,
    /// `resolved` or `cancelled`.
    status: String,
    /// `{"approved": true}`, or false, with a `reason`.
    #[serde(borrow)]
    #[schema(value_type = Option<Value>)]
    payload: Option<&'a RawValue>,
}

/// What of `forwardedProps` is read.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub struct ForwardedProps {
    /// An agent, or a model of an upstream; without it, what the session names.
    #[schema(example = "demo")]
    model: Option<String>,
    /// What Loopgate adds.
    #[schema(value_type = Option<AgentOptions>)]
    pub agent: Option<JsonObject<AgentOptions>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct View<'a> {
    id: Option<String>,
    role: String,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    tool_call_id: Option<String>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct PartView {
    r#type: String,
    text: Option<String>,
    source: Option<Source>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Source {
    r#type: String,
    value: String,
    mime_type: Option<String>,
}

impl<'a> RunAgentInput<'a> {
    /// Parses a request's body.
    pub fn read(body: &'a str) -> Result<Self, WireError> {
        parse(body)
    }

    /// The run that it asks for, and how its events call it.
    pub fn into_run(self, context: RequestContext) -> Result<(NewRun, AgUi), WireError> {
        let thread = self.thread_id.ok_or_else(|| missing("threadId"))?;
        let run = self.run_id.ok_or_else(|| missing("runId"))?;
        let session = session_of(&thread, "threadId")?;
        let new = self.messages.as_deref().ok_or_else(|| missing("messages")).and_then(read_new)?;
        let resume = self.resume.unwrap_or_default();
        let new = match (new, resume.is_empty()) {
            (None, true) => {
                let message = "there is nothing new: behind the last message of the agent there is neither one of the \
                               user nor a result of the client's tools";
                return Err(WireError::invalid("messages", message));
            }
            (Some(_), false) => {
                let message = "must be left out where messages are new; answer the interrupts first";
                return Err(WireError::invalid("resume", message));
            }
            (Some(new), true) => new,
            (None, false) => New::Approvals(read_resume(resume)?),
        };
        let JsonObject(ForwardedProps { model, agent }) = self.forwarded_props.unwrap_or_default();
        let tools = self.tools.unwrap_or_default().iter().enumerate().map(tool).collect::<Result<Vec<_>, _>>()?;
        let tools: Vec<_> = tools.iter().map(|tool| &**tool).collect();
        let asked = UiAsked {
            session,
            model,
            agent: agent.unwrap_or_default().0,
            new,
            system: told(self.context.unwrap_or_default())?,
            tools: read_offer(None, Some(&tools))?,
            events: EventsMode::AgUi,
        };
        Ok((asked.into_run(context)?, AgUi { thread, run }))
    }
}

/// A tool, as the chat dialect has it.
fn tool((index, raw): (usize, &&RawValue)) -> Result<Box<RawValue>, WireError> {
    #[derive(Deserialize)]
    struct Tool<'a> {
        name: String,
        description: Option<String>,
        #[serde(borrow)]
        parameters: Option<&'a RawValue>,
    }
    let read = located(raw.get()).map_err(|error| error.within(&format!("tools[{index}]")));
    let JsonObject(Tool { name, description, parameters }) = read?;
    let parameters = parameters.filter(|parameters| parameters.get() != "null");
    let any = || json!({"type": "object", "properties": {}});
    let schema = parameters.map_or_else(any, |parameters| json!(parameters));
    let mut function = json!({"name": name, "parameters": schema});
    if let Some(description) = description {
        function["description"] = description.into();
    }
    Ok(to_raw_value(&json!({"type": "function", "function": function})).expect("a value is JSON"))
}

/// What the model is told for this run.
fn told(context: Vec<JsonObject<AgUiContext>>) -> Result<Vec<Message>, WireError> {
    let tell = |JsonObject(AgUiContext { description, value }): JsonObject<AgUiContext>| {
        let message = json!({"role": "system", "content": format!("{description}: {value}")});
        to_raw_value(&message).expect("a value is JSON")
    };
    let messages: Vec<_> = context.into_iter().map(tell).collect();
    if messages.is_empty() {
        return Ok(Vec::new());
    }
    let raw: Vec<_> = messages.iter().map(|message| &**message).collect();
    Ok(check_messages(&raw, false).map_err(|error| error.at("context"))?.all)
}

/// The messages behind the last one of the agent: what the user says, and results of the client's tools.
fn read_new(messages: &[&RawValue]) -> Result<Option<New>, WireError> {
    let mut new = Vec::new();
    for (index, raw) in messages.iter().enumerate().rev() {
        let param = format!("messages[{index}]");
        let JsonObject(view): JsonObject<View<'_>> = located(raw.get()).map_err(|error| error.within(&param))?;
        let message = match view.role.as_str() {
            "assistant" => break,
            "user" => Some(user(view.content, &param)?),
            "tool" => result(view, &param)?,
            // What the interface shows beside the conversation, and instructions, which the agent has its own of.
            "reasoning" | "activity" | "system" | "developer" => None,
            other => {
                let what = format!("{:?} is not a role of a message", clip(other));
                return Err(WireError::invalid("role", what).within(&param));
            }
        };
        new.extend(message);
    }
    if new.is_empty() {
        return Ok(None);
    }
    new.reverse();
    Ok(Some(New::Messages(checked(&new, "messages")?)))
}

/// The result of a call of the client's tools; `None` if the server made the call and told the result itself.
fn result(view: View<'_>, param: &str) -> Result<Option<Box<RawValue>>, WireError> {
    let call = CallId::foreign(&view.tool_call_id.ok_or_else(|| missing("toolCallId").within(param))?);
    if view.id.is_some_and(|own| own == id::of_call("result", &call)) {
        return Ok(None);
    }
    let content = match (view.content, view.error) {
        (_, Some(error)) if !error.is_empty() => error,
        (Some(content), _) => text_of(content, param)?,
        (None, _) => return Err(missing("content").within(param)),
    };
    Ok(Some(answered(&call, &content)))
}

/// What a tool says: a text, or the texts of its parts.
fn text_of(content: &RawValue, param: &str) -> Result<String, WireError> {
    if content.get().starts_with('"') {
        return located(content.get()).map_err(|error| error.within(&format!("{param}.content")));
    }
    let parts = parts(content, param)?;
    Ok(parts.into_iter().filter_map(|part| part.text).collect::<Vec<_>>().join("\n"))
}

fn parts(content: &RawValue, param: &str) -> Result<Vec<PartView>, WireError> {
    if !content.get().starts_with('[') {
        let error = WireError::new(ErrorCode::InvalidValue, "must be a string or a list of parts");
        return Err(error.at(format!("{param}.content")));
    }
    let read: Vec<JsonObject<PartView>> =
        located(content.get()).map_err(|error| error.within(&format!("{param}.content")))?;
    Ok(read.into_iter().map(|JsonObject(part)| part).collect())
}

fn user(content: Option<&RawValue>, param: &str) -> Result<Box<RawValue>, WireError> {
    let content = content.ok_or_else(|| missing("content").within(param))?;
    if content.get().starts_with('"') {
        let text = located(content.get()).map_err(|error| error.within(&format!("{param}.content")))?;
        return Ok(said(&[UserPart::Text { text }]));
    }
    let read = |(index, part)| part_of(part).map_err(|error| error.within(&format!("{param}.content[{index}]")));
    let parts = parts(content, param)?.into_iter().enumerate().map(read).collect::<Result<Vec<_>, _>>()?;
    Ok(said(&parts))
}

fn part_of(part: PartView) -> Result<UserPart, WireError> {
    match part.r#type.as_str() {
        "text" => Ok(UserPart::Text { text: part.text.ok_or_else(|| missing("text"))? }),
        kind @ ("image" | "audio" | "video" | "document") => {
            let Source { r#type, value, mime_type } = part.source.ok_or_else(|| missing("source"))?;
            let media_type = match (mime_type, kind) {
                (Some(mime_type), _) => mime_type,
                (None, "image") => "image/png".to_owned(),
                (None, _) => return Err(missing("mimeType").within("source")),
            };
            let url = match r#type.as_str() {
                "data" => format!("data:{media_type};base64,{value}"),
                "url" => value,
                _ => {
                    let message = "must be data or url: files that were uploaded elsewhere are not known here";
                    return Err(WireError::invalid("source.type", message));
                }
            };
            UserPart::of_file(url, &media_type, None).map_err(|error| error.at("source"))
        }
        other => {
            let message = format!("a part of the type {:?} is not allowed here", clip(other));
            Err(WireError::invalid("type", message))
        }
    }
}

/// The decisions that answers to interrupts are.
fn read_resume(entries: Vec<JsonObject<ResumeEntry<'_>>>) -> Result<Vec<CallApproval>, WireError> {
    #[derive(Deserialize)]
    struct Payload {
        approved: bool,
        reason: Option<String>,
    }
    let read = |(index, JsonObject(entry)): (usize, JsonObject<ResumeEntry<'_>>)| {
        let param = format!("resume[{index}]");
        let (is_approved, reason) = match entry.status.as_str() {
            "cancelled" => (false, None),
            "resolved" => {
                let payload = entry.payload.ok_or_else(|| missing("payload").within(&param))?;
                let payload = located(payload.get()).map_err(|error| error.within(&format!("{param}.payload")))?;
                let JsonObject(Payload { approved, reason }) = payload;
                (approved, reason)
            }
            _ => return Err(WireError::invalid("status", "must be resolved or cancelled").within(&param)),
        };
        approval(&entry.interrupt_id, is_approved, reason, &format!("{param}.interruptId"))
    };
    entries.into_iter().enumerate().map(read).collect()
}
