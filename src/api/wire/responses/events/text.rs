//! A text that is being written: of an answer, of a refusal or of reasoning.

use bytes::BytesMut;
use serde::Serialize;

use super::bodies::About;
use crate::api::wire::responses::frame::{DeltaTemplate, Frames};
use crate::api::wire::responses::output::{ContentPart, ItemStatus, OutputItem, Phase, SummaryPart};

/// What kind of text it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Refusal,
    Reasoning,
}

/// An item that is being written.
#[derive(Debug)]
pub(super) struct OpenText {
    pub(super) kind: Kind,
    pub(super) step: u32,
    pub(super) index: u32,
    id: String,
    pub(super) text: String,
    pub(super) deltas: DeltaTemplate,
}

#[derive(Serialize)]
struct TextPart<'a> {
    content_index: u32,
    part: ContentPart<'a>,
}

#[derive(Serialize)]
struct ReasoningPart<'a> {
    summary_index: u32,
    part: SummaryPart<'a>,
}

#[derive(Serialize)]
struct TextDone<'a> {
    content_index: u32,
    text: &'a str,
    logprobs: [(); 0],
}

#[derive(Serialize)]
struct RefusalDone<'a> {
    content_index: u32,
    refusal: &'a str,
}

#[derive(Serialize)]
struct SummaryDone<'a> {
    summary_index: u32,
    text: &'a str,
}

impl OpenText {
    pub(super) fn new(kind: Kind, step: u32, index: u32, id: String) -> Self {
        let deltas = match kind {
            Kind::Text => {
                DeltaTemplate::new("response.output_text.delta", &id, index, "content_index", ",\"logprobs\":[]}\n\n")
            }
            Kind::Refusal => DeltaTemplate::new("response.refusal.delta", &id, index, "content_index", "}\n\n"),
            Kind::Reasoning => {
                DeltaTemplate::new("response.reasoning_summary_text.delta", &id, index, "summary_index", "}\n\n")
            }
        };
        Self { kind, step, index, id, text: String::new(), deltas }
    }

    /// The item; without what it says while it begins.
    pub(super) fn item(&self, status: ItemStatus, phase: Option<Phase>) -> OutputItem<'_> {
        let (id, has_text) = (self.id.as_str(), status != ItemStatus::InProgress);
        if self.kind == Kind::Reasoning {
            let summary = if has_text { vec![SummaryPart::of(&self.text)] } else { Vec::new() };
            return OutputItem::Reasoning { id, status, summary };
        }
        let part = ContentPart::of(&self.text, self.kind == Kind::Refusal);
        let content = if has_text { vec![part] } else { Vec::new() };
        OutputItem::Message { id, status, role: "assistant", content, phase }
    }
}

impl OpenText {
    /// The frame with all of its text.
    pub(super) fn write_text_done(&self, frames: &mut Frames, out: &mut BytesMut) {
        let (item_id, output_index) = (self.id.as_str(), self.index);
        match self.kind {
            Kind::Text => {
                let more = TextDone { content_index: 0, text: &self.text, logprobs: [] };
                frames.write("response.output_text.done", || About { item_id, output_index, more }, out);
            }
            Kind::Refusal => {
                let more = RefusalDone { content_index: 0, refusal: &self.text };
                frames.write("response.refusal.done", || About { item_id, output_index, more }, out);
            }
            Kind::Reasoning => {
                let more = SummaryDone { summary_index: 0, text: &self.text };
                frames.write("response.reasoning_summary_text.done", || About { item_id, output_index, more }, out);
            }
        }
    }

    /// A frame about its one part, which begins or ends.
    pub(super) fn write_part(&self, frames: &mut Frames, what: &str, text: &str, out: &mut BytesMut) {
        let (item_id, output_index) = (self.id.as_str(), self.index);
        if self.kind == Kind::Reasoning {
            let more = ReasoningPart { summary_index: 0, part: SummaryPart::of(text) };
            let kind = ["response.reasoning_summary_part.", what].concat();
            return frames.write(&kind, || About { item_id, output_index, more }, out);
        }
        let more = TextPart { content_index: 0, part: ContentPart::of(text, self.kind == Kind::Refusal) };
        let kind = ["response.content_part.", what].concat();
        frames.write(&kind, || About { item_id, output_index, more }, out);
    }
}
