//! Text and thinking, as they are written.

use bytes::BytesMut;
use serde::Serialize;

use super::{BlockStart, BlockStop, State};
use crate::api::wire::messages::frame::{DeltaHead, write};
use crate::api::wire::messages::object::OutBlock;

/// By what thinking is known to be a run's: the run has what its upstream signed.
const SIGNATURE: &str = "bG9vcGdhdGU=";

/// What kind of text it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Thinking,
}

/// A block that is being written.
#[derive(Debug)]
pub(super) struct OpenText {
    kind: Kind,
    step: u32,
    index: u32,
    text: String,
    deltas: DeltaHead,
}

/// A delta with nothing but a signature.
#[derive(Serialize)]
struct SignatureFrame {
    index: u32,
    delta: Signature,
}

#[derive(Serialize)]
struct Signature {
    r#type: &'static str,
    signature: &'static str,
}

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
        let index = self.next_index();
        let (delta, member, block) = match kind {
            Kind::Text => ("text_delta", "text", OutBlock::Text { text: "" }),
            Kind::Thinking => ("thinking_delta", "thinking", OutBlock::Thinking { thinking: "", signature: "" }),
        };
        if self.shown.frames {
            write("content_block_start", BlockStart { index, content_block: &block }, out);
        }
        let deltas = DeltaHead::new(index, delta, member);
        self.open = Some(OpenText { kind, step, index, text: String::new(), deltas });
    }

    /// Ends the text that is being written.
    pub(super) fn close_text(&mut self, out: &mut BytesMut) {
        let Some(open) = self.open.take() else { return };
        let index = open.index;
        if !self.shown.frames {
            let block = match open.kind {
                Kind::Text => OutBlock::Text { text: &open.text },
                Kind::Thinking => OutBlock::Thinking { thinking: &open.text, signature: SIGNATURE },
            };
            return self.keep(Some(open.step), &block);
        }
        if open.kind == Kind::Thinking {
            let delta = Signature { r#type: "signature_delta", signature: SIGNATURE };
            write("content_block_delta", SignatureFrame { index, delta }, out);
        }
        write("content_block_stop", BlockStop { index }, out);
    }
}
