//! Messages of a request: checked as OpenAI would check them, then kept as they arrived.

mod pairing;
mod view;

use std::borrow::Cow;

use serde_json::value::RawValue;

use self::pairing::Pairing;
use self::view::{AudioFormat, Part, View};
use crate::api::wire::body::{clip, located, malformed};
use crate::api::wire::error::{ErrorCode, WireError};
use crate::api::wire::escapes::surplus;
use crate::api::wire::image_url::check_image_url;
use crate::api::wire::json_object::JsonObject;
use crate::llm::openai::messages::json;
use crate::types::conversation::{Dialect, MEDIA_WEIGHT, audio_weight, is_compressed_audio};
use crate::types::event::Decision;
use crate::types::{CallId, Message, Role};

/// Most messages of one request.
const MAX_MESSAGES: usize = 10_000;

/// A message in this dialect.
pub fn encoded(message: &Message) -> &str {
    json(message)
}

/// The messages of a request, in their order.
#[derive(Debug, Default)]
pub struct Messages {
    /// All of them.
    pub all: Vec<Message>,
    /// Where the messages begin that answer the calls of an assistant message before them, or of a
    /// waiting run; they are the last.
    pub answers_from: usize,
    /// The calls that these answer.
    pub answered: Vec<CallId>,
    /// The answers that read like a decision on a call whose outcome is not known.
    pub decisions: Vec<(CallId, Decision)>,
}

/// Checks a request's messages. With `continues`, they may begin with tool results for calls that the
/// server knows of.
pub fn check_messages(raw: &[&RawValue], continues: bool) -> Result<Messages, WireError> {
    if raw.is_empty() {
        return Err(WireError::invalid("messages", "there must be at least one message"));
    }
    if raw.len() > MAX_MESSAGES {
        return Err(WireError::invalid("messages", format!("there may be at most {MAX_MESSAGES} messages")));
    }
    read(raw, Pairing::new(continues))
}

/// Checks a session's whole history, of any length.
pub fn check_history(raw: &[&RawValue]) -> Result<Vec<Message>, WireError> {
    Ok(read(raw, Pairing::new(false))?.all)
}

fn read(raw: &[&RawValue], mut pairing: Pairing) -> Result<Messages, WireError> {
    let mut messages = Messages::default();
    for (index, json) in raw.iter().enumerate() {
        let path = format!("messages[{index}]");
        let JsonObject::<View<'_>>(view) = located(json.get()).map_err(|error| error.within(&path))?;
        let (role, media) = check_message(&view).map_err(|error| error.within(&path))?;
        pairing.take(role, &view).map_err(|error| error.within(&path))?;
        match (role, view.tool_call_id) {
            (Role::Assistant, _) => {
                messages.answers_from = index + 1;
                messages.answered.clear();
                messages.decisions.clear();
            }
            (Role::Tool, Some(id)) => {
                let call = CallId::foreign(&id);
                messages.decisions.extend(view.content.and_then(decision).map(|decision| (call.clone(), decision)));
                messages.answered.push(call);
            }
            (Role::System | Role::Developer | Role::User | Role::Tool, _) => {}
        }
        let text = json.get().len().saturating_sub(media.bytes + surplus(json.get()));
        let weight = text + media.weight;
        messages.all.push(Message::from_valid_json(role, Dialect::OpenaiChat, (*json).to_owned(), weight));
    }
    pairing.close().map_err(|error| error.within(&format!("messages[{}]", raw.len().saturating_sub(1))))?;
    Ok(messages)
}

/// What a result says that is one word.
fn decision(content: &RawValue) -> Option<Decision> {
    let text = serde_json::from_str::<Cow<'_, str>>(content.get()).ok();
    let text = text.or_else(|| {
        let [JsonObject(part)]: [JsonObject<Part<'_>>; 1] = serde_json::from_str(content.get()).ok()?;
        part.text
    })?;
    match text.trim() {
        "retry" => Some(Decision::Retry),
        "skip" => Some(Decision::Skip),
        _ => None,
    }
}

/// The pictures and the sound of a message: no model reads their bytes as text.
#[derive(Default)]
struct Media {
    /// What they weigh instead.
    weight: usize,
    /// Of the URLs and texts that hold them, without the surplus of their escapes.
    bytes: usize,
}

impl Media {
    fn of(part: &Part<'_>) -> Self {
        let image = part.image_url.as_ref().map(|image| Self { weight: MEDIA_WEIGHT, bytes: image.url.len() });
        let sound = || {
            let audio = part.input_audio?;
            let format = serde_json::from_str::<AudioFormat<'_>>(audio.get()).ok()?.format;
            let bytes = audio.get().len() - surplus(audio.get());
            Some(Self { weight: audio_weight(bytes, is_compressed_audio(&format)), bytes })
        };
        image.or_else(sound).unwrap_or_default()
    }
}

/// Who speaks, and what it shows and plays.
fn check_message(view: &View<'_>) -> Result<(Role, Media), WireError> {
    let role = match &*view.role {
        "system" => Role::System,
        "developer" => Role::Developer,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "tool" => Role::Tool,
        other => {
            let message = format!("{:?} is not a role: use system, developer, user, assistant or tool", clip(other));
            return Err(WireError::invalid("role", message));
        }
    };
    if view.tool_calls.as_ref().is_some_and(Vec::is_empty) {
        return Err(WireError::invalid("tool_calls", "the list of tool calls is empty; leave it out"));
    }
    let has_calls = view.tool_calls.as_ref().is_some_and(|calls| !calls.is_empty());
    if has_calls && role != Role::Assistant {
        return Err(WireError::invalid("tool_calls", "only assistant messages have tool calls"));
    }
    let media = match view.content {
        Some(content) => check_content(content.get(), role).map_err(|error| error.within("content"))?,
        // A refusal or a spoken answer, as the API itself gave it.
        None if role == Role::Assistant && (has_calls || view.refusal.is_some() || view.audio.is_some()) => {
            Media::default()
        }
        None => return Err(WireError::invalid("content", "must be a string or a list of parts")),
    };
    Ok((role, media))
}

/// What it shows and plays.
fn check_content(content: &str, role: Role) -> Result<Media, WireError> {
    match content.as_bytes().first() {
        Some(b'"') => {
            serde_json::from_str::<Cow<'_, str>>(content).map_err(|error| malformed(&error))?;
            Ok(Media::default())
        }
        Some(b'[') => {
            let parts: Vec<JsonObject<Part<'_>>> = located(content)?;
            if parts.is_empty() {
                return Err(WireError::new(ErrorCode::InvalidValue, "the list of parts is empty"));
            }
            for (index, JsonObject(part)) in parts.iter().enumerate() {
                check_part(part, role).map_err(|error| error.within(&format!("[{index}]")))?;
            }
            let media = parts.iter().map(|JsonObject(part)| Media::of(part));
            Ok(media.fold(Media::default(), |sum, one| Media {
                weight: sum.weight + one.weight,
                bytes: sum.bytes + one.bytes,
            }))
        }
        _ => Err(WireError::new(ErrorCode::InvalidValue, "must be a string or a list of parts")),
    }
}

fn check_part(part: &Part<'_>, role: Role) -> Result<(), WireError> {
    let (present, member) = match &*part.r#type {
        "text" => (part.text.is_some(), "text"),
        "refusal" if role == Role::Assistant => (part.refusal.is_some(), "refusal"),
        "image_url" if role == Role::User => {
            if let Some(image) = &part.image_url {
                check_image_url(&image.url)
                    .map_err(|what| WireError::invalid("image_url.url", format!("the image URL {what}")))?;
            }
            (part.image_url.is_some(), "image_url")
        }
        "input_audio" if role == Role::User => (part.input_audio.is_some(), "input_audio"),
        "file" if role == Role::User => (part.file.is_some(), "file"),
        other => {
            let message = format!("a part of the type {:?} is not allowed here", clip(other));
            return Err(WireError::invalid("type", message));
        }
    };
    if present {
        Ok(())
    } else {
        Err(WireError::new(ErrorCode::MissingField, format!("{member} is missing")).at(member))
    }
}

#[cfg(test)]
mod tests;
