//! What is said, as it is written.

use bytes::BytesMut;

use super::{OpenText, State};
use crate::api::wire::responses::id;
use crate::api::wire::ui::act::{Act, Dialect, Kind};

impl<D: Dialect> State<D> {
    /// Adds a piece to the text of this kind, which begins with the first one.
    pub(super) fn say(&mut self, step: u32, kind: Kind, piece: &str, out: &mut BytesMut) {
        if piece.is_empty() || self.void.contains(&step) {
            return;
        }
        if !self.open.as_ref().is_some_and(|open| open.kind == kind && open.step == step) {
            self.begin_text(step, kind, out);
        }
        self.text_out |= kind == Kind::Text;
        if let Some(open) = &self.open {
            self.tell(&Act::Text(kind, &open.id, piece), out);
        }
    }

    fn begin_text(&mut self, step: u32, kind: Kind, out: &mut BytesMut) {
        self.close_text(out);
        let id = self.next_id(if kind == Kind::Thinking { "rs" } else { "msg" });
        self.tell(&Act::BeginText(kind, &id), out);
        self.texts.push(id.clone());
        if kind == Kind::Text {
            self.message = Some(id.clone());
        }
        self.open = Some(OpenText { kind, step, id });
    }

    /// Ends the text that is being written.
    pub(super) fn close_text(&mut self, out: &mut BytesMut) {
        if let Some(OpenText { kind, id, .. }) = self.open.take() {
            self.tell(&Act::EndText(kind, &id), out);
        }
    }

    /// An id for a text of the step. What is said before the first step of a request has one by the request.
    pub(super) fn next_id(&mut self, prefix: &str) -> String {
        let of_request = if self.step == 0 { self.names.leg << 8 } else { 0 };
        self.texts_of_step += 1;
        id::said(prefix, &self.names.id, self.step, of_request | (self.texts_of_step - 1))
    }
}
