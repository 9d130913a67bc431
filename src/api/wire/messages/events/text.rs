//! Text and thinking while they are open.

use bytes::BytesMut;
use serde::Serialize;

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
    pub(super) kind: Kind,
    pub(super) step: u32,
    pub(super) index: u32,
    pub(super) text: String,
    pub(super) deltas: DeltaHead,
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

impl OpenText {
    pub(super) fn new(kind: Kind, step: u32, index: u32) -> Self {
        let (delta, member) = match kind {
            Kind::Text => ("text_delta", "text"),
            Kind::Thinking => ("thinking_delta", "thinking"),
        };
        Self { kind, step, index, text: String::new(), deltas: DeltaHead::new(index, delta, member) }
    }

    /// The block as it begins.
    pub(super) fn begun(&self) -> OutBlock<'static> {
        match self.kind {
            Kind::Text => OutBlock::Text { text: "" },
            Kind::Thinking => OutBlock::Thinking { thinking: "", signature: "" },
        }
    }

    /// The block once it is whole.
    pub(super) fn whole(&self) -> OutBlock<'_> {
        match self.kind {
            Kind::Text => OutBlock::Text { text: &self.text },
            Kind::Thinking => OutBlock::Thinking { thinking: &self.text, signature: SIGNATURE },
        }
    }

    /// Signs what was thought, as its last delta.
    pub(super) fn write_signature(&self, out: &mut BytesMut) {
        if self.kind == Kind::Thinking {
            let delta = Signature { r#type: "signature_delta", signature: SIGNATURE };
            write("content_block_delta", SignatureFrame { index: self.index, delta }, out);
        }
    }
}
