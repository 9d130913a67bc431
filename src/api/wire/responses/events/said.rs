//! What is said, as it is written.

use bytes::BytesMut;

use super::bodies::WithItem;
use super::state::State;
use super::text::{Kind, OpenText};
use crate::api::wire::responses::id;
use crate::api::wire::responses::output::{ItemStatus, Phase};

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
        let output_index = open.index;
        let frames = &mut self.frames;
        open.write_text_done(frames, out);
        open.write_part(frames, "done", &open.text, out);
        let item = open.item(status, phase);
        if status == ItemStatus::Completed {
            self.write_done(output_index, Some(open.step), &item, out);
        } else {
            self.frames.write("response.output_item.done", || WithItem { output_index, item }, out);
        }
    }
}
