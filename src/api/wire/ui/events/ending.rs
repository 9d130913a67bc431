//! How a stream ends.

use bytes::BytesMut;

use super::State;
use crate::api::wire::last_words::last_words;
use crate::api::wire::ui::act::{Act, Dialect, Kind};
use crate::types::{Outcome, StopReason};

impl<D: Dialect> State<D> {
    /// The run ended, or waits. Where the stream tells a whole run, only its last record says that it still does.
    pub(super) fn finish(&mut self, outcome: &Outcome, out: &mut BytesMut) {
        self.close_text(out);
        let is_final = outcome.status().is_final();
        if is_final {
            self.drop_calls(out);
        }
        if outcome.reason == StopReason::ClientTools {
            self.write_client_calls(outcome, out);
        } else if outcome.reason == StopReason::Approval {
            self.ask_again(outcome, out);
        } else if outcome.error.is_none()
            && let Some(text) = last_words(outcome, self.text_out)
        {
            self.say(self.step, Kind::Text, &text, out);
        }
        self.close(out);
        if is_final || !self.is_whole {
            self.end(outcome, out);
        } else {
            self.waiting = Some(Box::new(outcome.clone()));
        }
    }

    pub(super) fn end(&mut self, outcome: &Outcome, out: &mut BytesMut) {
        self.tell(&Act::End(outcome), out);
        self.ended = true;
    }
}
