//! Text, refusals and reasoning, as they are written.

use bytes::BytesMut;
use serde::Serialize;

use super::{About, State, WithItem};
use crate::api::wire::responses::frame::DeltaTemplate;
use crate::api::wire::responses::id;
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
    kind: Kind,
    step: u32,
    index: u32,
    id: String,
    text: String,
    deltas: DeltaTemplate,
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
    fn new(kind: Kind, step: u32, index: u32, id: String) -> Self {
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
    fn item(&self, status: ItemStatus, phase: Option<Phase>) -> OutputItem<'_> {
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

impl State {
    /// Adds a piece to the text of this kind, which begins with the first one.
    pub(super) fn say(&mut self, step: u32, kind: Kind, piece: &str, out: &mut BytesMut) {
        if !self.open.as_ref().is_some_and(|open| open.kind == kind && open.step == step) {
            self.begin_text(step, kind, out);
        }
        self.text_out |= kind != Kind::Reasoning;
        if let Some(open) = &mut self.open {
            open.text.push_str(piece);
            self.frames.write_delta(&open.deltas, piece, out);
        }
    }

    fn begin_text(&mut self, step: u32, kind: Kind, out: &mut BytesMut) {
        self.close_text(ItemStatus::Completed, None, out);
        if step != self.step {
            (self.step, self.blocks) = (step, 0);
        }
        let prefix = if kind == Kind::Reasoning { "rs" } else { "msg" };
        let id = id::said(prefix, &self.names.id, step, self.blocks);
        self.blocks += 1;
        let output_index = self.next_output();
        let open = OpenText::new(kind, step, output_index, id);
        let frames = &mut self.frames;
        let item = open.item(ItemStatus::InProgress, None);
        frames.write("response.output_item.added", || WithItem { output_index, item }, out);
        open.write_part(frames, "added", "", out);
        self.open = Some(open);
    }

    /// Ends the text that is being written. One that broke off is no part of the output.
    pub(super) fn close_text(&mut self, status: ItemStatus, phase: Option<Phase>, out: &mut BytesMut) {
        let Some(open) = self.open.take() else { return };
        let (item_id, output_index) = (open.id.as_str(), open.index);
        let frames = &mut self.frames;
        match open.kind {
            Kind::Text => {
                let more = TextDone { content_index: 0, text: &open.text, logprobs: [] };
                frames.write("response.output_text.done", || About { item_id, output_index, more }, out);
            }
            Kind::Refusal => {
                let more = RefusalDone { content_index: 0, refusal: &open.text };
                frames.write("response.refusal.done", || About { item_id, output_index, more }, out);
            }
            Kind::Reasoning => {
                let more = SummaryDone { summary_index: 0, text: &open.text };
                frames.write("response.reasoning_summary_text.done", || About { item_id, output_index, more }, out);
            }
        }
        open.write_part(frames, "done", &open.text, out);
        let item = open.item(status, phase);
        if status == ItemStatus::Completed {
            self.write_done(output_index, Some(open.step), &item, out);
        } else {
            self.frames.write("response.output_item.done", || WithItem { output_index, item }, out);
        }
    }
}

impl OpenText {
    /// A frame about its one part, which begins or ends.
    fn write_part(
        &self,
        frames: &mut crate::api::wire::responses::frame::Frames,
        what: &str,
        text: &str,
        out: &mut BytesMut,
    ) {
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
