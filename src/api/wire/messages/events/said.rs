//! Text and thinking, as they are written.

use bytes::BytesMut;

use super::state::{BlockStart, BlockStop, State};
use super::text::{Kind, OpenText};
use crate::api::wire::messages::frame::write;

impl State {
    /// Adds a piece to the text of this kind, which begins with the first one.
    pub(super) fn say(&mut self, step: u32, kind: Kind, piece: &str, out: &mut BytesMut) {
        if piece.is_empty() || self.void.contains(&step) {
            return;
        }
        if !self.open.as_ref().is_some_and(|open| open.kind == kind && open.step == step) {
            self.begin_text(step, kind, out);
        }
        self.text_out |= kind == Kind::Text;
        let frames = self.shown.frames;
        if let Some(open) = &mut self.open {
            if frames {
                open.deltas.write(piece, out);
            } else {
                open.text.push_str(piece);
            }
        }
    }

    fn begin_text(&mut self, step: u32, kind: Kind, out: &mut BytesMut) {
        self.close_text(out);
        self.begin(out);
        let open = OpenText::new(kind, step, self.next_index());
        if self.shown.frames {
            let start = BlockStart { index: open.index, content_block: &open.begun() };
            write("content_block_start", start, out);
        }
        self.open = Some(open);
    }

    /// Ends the text that is being written.
    pub(super) fn close_text(&mut self, out: &mut BytesMut) {
        let Some(open) = self.open.take() else { return };
        if self.shown.frames {
            open.write_signature(out);
            write("content_block_stop", BlockStop { index: open.index }, out);
        } else {
            self.keep(Some(open.step), &open.whole());
        }
    }
}
