//! What a request may ask for that the demo model does not have. It reads text and answers in sentences, by rules that nothing
//! of a request changes.

use crate::llm::unsupported::{Place, Unsupported, refused_part, unsupported_part};
use crate::types::Message;
use crate::types::conversation::{Dialect, PartKind};
use crate::types::sampling::{ResponseFormat, Sampling, Stop};

/// What of a request it cannot do.
pub(super) fn unsupported(sampling: &Sampling, messages: &[Message]) -> Option<Unsupported> {
    match sampling.response_format {
        Some(ResponseFormat::JsonObject | ResponseFormat::JsonSchema { .. }) => {
            let message = "the demo model answers in sentences, and has no such `response_format`: leave it out";
            Some(Unsupported { place: Place::Member("response_format"), message: message.to_owned() })
        }
        Some(ResponseFormat::Text) | None => unsupported_part(messages, unsupported_part_of),
    }
}

/// The first part of a message that it cannot read, and why.
pub(super) fn unsupported_part_of(message: &Message) -> Option<(usize, String)> {
    refused_part(message, |part| {
        let what = match part {
            PartKind::Image { .. } => "pictures",
            PartKind::Audio { .. } => "sound",
            PartKind::File { .. } => "files",
            PartKind::Text(_)
            | PartKind::Refusal(_)
            | PartKind::Thinking(_)
            | PartKind::ToolCall(_)
            | PartKind::ToolResult(_)
            | PartKind::Link(_)
            | PartKind::Unknown { .. } => return None,
        };
        Some(format!("the demo model reads text and takes no {what}: ask the model of an upstream"))
    })
}

/// The names of members that change nothing.
pub(super) fn unheeded(sampling: &Sampling) -> Vec<&str> {
    let given = [
        ("temperature", sampling.temperature.is_some()),
        ("top_p", sampling.top_p.is_some()),
        ("frequency_penalty", sampling.frequency_penalty.is_some()),
        ("presence_penalty", sampling.presence_penalty.is_some()),
        ("reasoning_effort", sampling.reasoning_effort.is_some()),
        ("verbosity", sampling.verbosity.is_some()),
    ];
    let given = given.into_iter().filter_map(|(name, is_given)| is_given.then_some(name));
    let extra = sampling.extra.members(Dialect::OpenaiChat).iter().map(|(name, _)| name.as_str());
    given.chain(extra).collect()
}

/// As much of an answer as stands before the texts that end it.
pub(super) fn until<'t>(text: &'t str, stop: Option<&Stop>) -> &'t str {
    let ends = match stop {
        None => &[],
        Some(Stop::Text(end)) => std::slice::from_ref(end),
        Some(Stop::Texts(ends)) => ends.as_slice(),
    };
    let places = ends.iter().filter(|end| !end.is_empty()).filter_map(|end| text.find(end.as_str()));
    &text[..places.min().unwrap_or(text.len())]
}
