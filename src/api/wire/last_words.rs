//! What the server says at a run's end where the model did not, for dialects that show ends as a message.

use crate::types::question::asked;
use crate::types::{Outcome, RunStatus, StopReason};

/// The sentence of an end; `None` where there is nothing to say. `text_out` is whether the last step's text went out.
pub fn last_words(outcome: &Outcome, text_out: bool) -> Option<String> {
    if outcome.reason == StopReason::OutcomeAsked {
        let reasons = outcome.required_calls.iter().filter_map(|required| required.reason.clone());
        return Some(reasons.collect::<Vec<_>>().join("\n"));
    }
    if outcome.reason == StopReason::AskUser && text_out {
        return asked(outcome).map(|text| text.trim_start().to_owned());
    }
    let says_why = outcome.status() == RunStatus::Incomplete || outcome.reason.is_told_in_words();
    let sentence = || match outcome.message() {
        Some(sentence) if outcome.output_text.is_empty() => sentence.into_owned(),
        Some(_) | None => outcome.output_text.clone(),
    };
    (says_why && !text_out).then(sentence).filter(|text| !text.is_empty())
}
