//! Tells those that write a response to its connection how to say that the connection did not take all of it.

use axum::response::Response;

use crate::agent::{AnswerFate, OpenAnswer};
use crate::api::at_end::BrokenOff;

/// Notes that this response, which is all of the answer, is given to the connection. One that breaks the answer off is not
/// the end of it.
pub fn note(answer: Option<OpenAnswer>, response: &mut Response) {
    let Some(answer) = answer.filter(|_| response.extensions().get::<BrokenOff>().is_none()) else { return };
    attach(Some(answer.fate()), response);
    answer.reached();
}

/// Notes that all of the answer was given to the connection, if it was and that is kept.
pub fn reached(answer: &mut Option<OpenAnswer>, is_told: bool) {
    if let Some(answer) = answer.take_if(|_| is_told) {
        answer.reached();
    }
}

/// Lets those that write the response find out what is kept of it.
pub fn attach(fate: Option<AnswerFate>, response: &mut Response) {
    if let Some(fate) = fate {
        response.extensions_mut().insert(fate);
    }
}
