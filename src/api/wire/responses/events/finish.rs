//! The last frames of a response.

use bytes::BytesMut;
use serde::Serialize;

use super::ending::{end, failure};
use super::state::{OpenCall, Progress, State};
use super::text::Kind;
use crate::api::wire::last_words::last_words;
use crate::api::wire::responses::object::FailureObject;
use crate::api::wire::responses::output::{ItemStatus, Phase};
use crate::api::wire::responses::tool_names;
use crate::types::{Outcome, StopReason};

/// What went wrong, for readers of either form.
#[derive(Serialize)]
pub(super) struct ErrorFrame<'a> {
    code: &'static str,
    message: &'a str,
    param: Option<&'a str>,
    error: FailureObject<'a>,
}

impl<'a> ErrorFrame<'a> {
    pub(super) fn new(code: &'static str, r#type: &'static str, message: &'a str) -> Self {
        Self { code, message, param: None, error: FailureObject { code, message, r#type, param: None } }
    }
}

impl State {
    pub(super) fn finish(&mut self, outcome: &Outcome, at_ms: u64, out: &mut BytesMut) {
        let goes_on_to_call = outcome.reason == StopReason::ClientTools || outcome.reason == StopReason::Approval;
        let phase = if goes_on_to_call { Phase::Commentary } else { Phase::FinalAnswer };
        self.close_text(ItemStatus::Completed, Some(phase), out);
        for OpenCall { index, call } in std::mem::take(&mut self.calls) {
            self.write_ended_call(index, &call, None, out);
        }
        if outcome.reason == StopReason::ClientTools {
            self.write_client_calls(outcome, out);
        } else if outcome.reason == StopReason::Approval && self.may_ask(outcome) {
            self.write_approval_requests(outcome, out);
        }
        if let Some(text) = self.sentence(outcome) {
            self.say(self.step, Kind::Text, &text, out);
            self.close_text(ItemStatus::Completed, Some(Phase::FinalAnswer), out);
        }
        let end = end(outcome);
        self.ended = Some((Box::new(outcome.clone()), at_ms));
        self.progress = Progress::Ended;
        if let Some(FailureObject { code, message, r#type, .. }) = failure(outcome) {
            self.write_error(code, r#type, message, out);
        }
        self.write_response(&[end.event], out);
    }

    /// What the server says at the end, where the model did not.
    fn sentence(&self, outcome: &Outcome) -> Option<String> {
        if outcome.reason == StopReason::Approval {
            let required = outcome.required_calls.iter();
            let tools: Vec<_> = required.map(|required| format!("`{}`", required.call.name)).collect();
            let sentence = || format!("An approval is needed before {} can be called.", tools.join(", "));
            return (!self.may_ask(outcome)).then(sentence);
        }
        last_words(outcome, self.text_out)
    }

    /// Whether its client can be asked about all calls that wait for an approval.
    fn may_ask(&self, outcome: &Outcome) -> bool {
        let label = |name: &str| self.terms.may_ask_under(tool_names::shown(name, &self.terms).0);
        outcome.required_calls.iter().all(|required| label(&required.call.name))
    }

    pub(super) fn write_error(&mut self, code: &'static str, r#type: &'static str, message: &str, out: &mut BytesMut) {
        self.frames.write("error", || ErrorFrame::new(code, r#type, message), out);
    }
}
