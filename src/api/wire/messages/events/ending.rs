//! How a message ends.

use bytes::BytesMut;
use serde::Serialize;

use super::state::{Progress, State};
use super::text::Kind;
use crate::api::wire::agent::object::AgentObject;
use crate::api::wire::last_words::last_words;
use crate::api::wire::messages::error::{kind_in_stream, message_of};
use crate::api::wire::messages::frame::write;
use crate::api::wire::messages::object::{DeltaUsage, MessageObject, OutBlock, input_of, no_input};
use crate::api::wire::openai_error::ErrorObject;
use crate::types::{Outcome, StopReason};

/// What a call came to that its run ended before.
const NOT_FINISHED: &str = "The call was not finished.";

#[derive(Serialize)]
struct EndFrame<'a> {
    delta: End,
    usage: DeltaUsage,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<AgentObject<'a>>,
}

#[derive(Serialize)]
struct End {
    stop_reason: Option<&'static str>,
    stop_sequence: Option<&'static str>,
    stop_details: Option<&'static str>,
    container: Option<&'static str>,
}

#[derive(Serialize)]
struct Nothing {}

impl State {
    pub(super) fn finish(&mut self, outcome: &Outcome, out: &mut BytesMut) {
        self.close_text(out);
        for call in std::mem::take(&mut self.calls) {
            self.write_block(&OutBlock::result(&call, NOT_FINISHED.to_owned(), true), out);
        }
        if outcome.reason == StopReason::ClientTools {
            self.write_client_calls(outcome, out);
        } else if outcome.reason == StopReason::Approval {
            for required in &outcome.required_calls {
                self.write_server_call(&required.call, out);
            }
        } else if outcome.error.is_none()
            && let Some(text) = last_words(outcome, self.text_out)
        {
            self.say(self.step, Kind::Text, &text, out);
            self.close_text(out);
        }
        self.ended = Some(Box::new(outcome.clone()));
        if let Some(error) = &outcome.error {
            let code = ErrorObject::from(error).code;
            self.write_error(kind_in_stream(outcome.may_be_repeated()), code, &message_of(error), out);
        } else {
            self.begin(out);
            self.write_end(out);
        }
        self.progress = Progress::Ended;
    }

    fn write_client_calls(&mut self, outcome: &Outcome, out: &mut BytesMut) {
        for required in &outcome.required_calls {
            let (call, input) = (&required.call, input_of(&required.call));
            if self.shown.frames {
                self.write_by_delta(&OutBlock::of_client(call, &no_input()), input.get(), out);
            } else {
                self.write_block(&OutBlock::of_client(call, &input), out);
            }
        }
    }

    fn write_end(&self, out: &mut BytesMut) {
        if !self.shown.frames {
            return;
        }
        let MessageObject { stop_reason, usage, agent, .. } = self.object();
        let delta = End { stop_reason, stop_sequence: None, stop_details: None, container: None };
        write("message_delta", EndFrame { delta, usage: usage.into(), agent }, out);
        write("message_stop", Nothing {}, out);
    }
}
