//! How much a message is: to a model, and in memory.

use std::mem::size_of;

use super::message::{CALL_WEIGHT, MEDIA_WEIGHT, audio_weight, is_compressed_audio};
use super::part::{Part, PartKind, Parts, Source, Thinking, ToolResult};

/// What surrounds a link in words, about, in bytes.
const LINK_WEIGHT: usize = 32;

impl Part {
    /// How many bytes of text it is to a model, about.
    pub(super) fn weight(&self) -> usize {
        match &self.kind {
            PartKind::Text(text) | PartKind::Refusal(text) => text.len(),
            // Without a seal it does not go back to the model.
            PartKind::Thinking(thinking) => thinking.seal.as_ref().map_or(0, |_| thinking.text.len()),
            PartKind::Image { .. } => MEDIA_WEIGHT,
            PartKind::Audio { source: Source::Base64 { media_type, data } } => {
                let format = media_type.strip_prefix("audio/").unwrap_or(media_type);
                audio_weight(data.len(), is_compressed_audio(format))
            }
            // How much a model reads in a file grows with its size, and nothing tells text from pictures in it.
            PartKind::Audio { source } | PartKind::File { source, .. } => source.bytes(),
            PartKind::Link(link) => LINK_WEIGHT + link.length(),
            PartKind::ToolCall(call) => CALL_WEIGHT + call.id.as_str().len() + call.name.len() + call.arguments.len(),
            PartKind::ToolResult(result) => result.weight(),
            PartKind::Unknown { json, .. } => json.get().len(),
        }
    }

    /// How many bytes of text, media and JSON it has.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let content = match &self.kind {
            PartKind::Text(text) | PartKind::Refusal(text) => text.len(),
            PartKind::Thinking(thinking) => thinking.bytes(),
            PartKind::Image { source, detail: note } | PartKind::File { source, name: note } => {
                source.bytes() + note.as_ref().map_or(0, String::len)
            }
            PartKind::Audio { source } => source.bytes(),
            PartKind::Link(link) => link.length(),
            PartKind::ToolCall(call) => call.id.as_str().len() + call.name.len() + call.arguments.len(),
            PartKind::ToolResult(result) => result.bytes(),
            PartKind::Unknown { member, json, .. } => member.len() + json.get().len(),
        };
        content + self.extra.bytes()
    }

    /// How many bytes of memory its frame takes, with those of the parts in it.
    fn frame(&self) -> usize {
        let inner = self
            .as_result()
            .map_or(0, |result| size_of::<ToolResult>() + result.parts.iter().map(Self::frame).sum::<usize>());
        size_of::<Self>() + inner
    }
}

impl Parts {
    /// How many bytes of text, media and JSON they have.
    pub(super) fn bytes(&self) -> usize {
        self.list.iter().map(Part::bytes).sum::<usize>() + self.extra.bytes()
    }

    /// How many bytes of memory their frames take.
    pub(super) fn frames(&self) -> usize {
        self.list.iter().map(Part::frame).sum()
    }
}

impl Source {
    fn bytes(&self) -> usize {
        match self {
            Self::Base64 { media_type, data } => media_type.len() + data.len(),
            Self::Url(text) | Self::Id(text) => text.len(),
        }
    }
}

impl Thinking {
    fn bytes(&self) -> usize {
        let seal = self
            .seal
            .as_ref()
            .map_or(0, |seal| seal.author.len() + seal.id.as_ref().map_or(0, String::len) + seal.proof.written().len());
        self.text.len() + seal
    }
}

impl ToolResult {
    fn weight(&self) -> usize {
        let structured = self.structured.as_ref().map_or(0, |json| json.get().len());
        let parts = self.parts.iter().map(Part::weight).sum::<usize>();
        self.call.as_str().len() + if self.parts.is_empty() { structured } else { parts }
    }

    fn bytes(&self) -> usize {
        let structured = self.structured.as_ref().map_or(0, |json| json.get().len());
        self.call.as_str().len() + structured + self.parts.iter().map(Part::bytes).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;
    use crate::types::conversation::{Dialect, Extra, Message};
    use crate::types::json::{Members, RawValueEq};
    use crate::types::{CallId, Role};

    fn weight_and_bytes(parts: Vec<Part>) -> (usize, usize) {
        let empty = Message::from_parts(Role::User, Parts::default());
        let message = Message::from_parts(Role::User, Parts { list: parts, extra: Extra::default() });
        (message.weight() - empty.weight(), message.bytes() - empty.bytes())
    }

    #[test]
    fn pictures_and_sound_weigh_what_models_read_in_them() {
        let of = |media_type: &str| Source::Base64 { media_type: media_type.into(), data: "x".repeat(1_000_000) };
        let source = || of("a/b");
        let image = PartKind::Image { source: source(), detail: None };
        assert_eq!(weight_and_bytes(vec![image.into()]), (MEDIA_WEIGHT, 1_000_003));
        let link = PartKind::Image { source: Source::Url("http://a.b/c".into()), detail: None };
        assert_eq!(weight_and_bytes(vec![link.into()]), (MEDIA_WEIGHT, 12));
        let audio = |media_type| weight_and_bytes(vec![PartKind::Audio { source: of(media_type) }.into()]);
        assert_eq!(audio("audio/wav"), (15_625, 1_000_009));
        assert_eq!(audio("audio/mp3"), (62_500, 1_000_009));
        let file = PartKind::File { source: source(), name: Some("n.pdf".into()) };
        assert_eq!(weight_and_bytes(vec![file.into()]), (1_000_003, 1_000_008));
    }

    #[test]
    fn what_no_model_reads_takes_memory_all_the_same() {
        let raw = |json: &str| RawValueEq(RawValue::from_string(json.to_owned()).unwrap());
        let thought = PartKind::Thinking(Thinking { text: "t".repeat(1_000), seal: None });
        assert_eq!(weight_and_bytes(vec![thought.into()]), (0, 1_000));
        let result = ToolResult {
            call: CallId::foreign("c"),
            parts: vec![Part::text("ab")],
            structured: Some(raw("{\"a\":[1,2,3]}")),
            is_error: false,
        };
        assert_eq!(weight_and_bytes(vec![PartKind::ToolResult(Box::new(result)).into()]), (3, 16));
        let extra = Extra::new(Dialect::OpenaiChat, Members(vec![("name".into(), raw("\"ada\""))]));
        assert_eq!(weight_and_bytes(vec![Part { extra, ..Part::text("ab") }]), (2, 11));
    }

    #[test]
    fn only_parts_are_encoded_once_more() {
        let text = |length: usize| Message::text(Role::User, &"x".repeat(length)).memory();
        assert_eq!(text(1_000) - text(0), 2_000);
        let arrived = |length: usize| {
            let json = RawValue::from_string(format!("\"{}\"", "x".repeat(length))).unwrap();
            Message::from_valid_json(Role::User, Dialect::OpenaiChat, json, length).memory()
        };
        assert_eq!(arrived(1_000) - arrived(0), 1_000);
        assert!(arrived(0) >= size_of::<Message>() && text(0) >= arrived(0) + size_of::<Part>(), "frames count");
    }
}
