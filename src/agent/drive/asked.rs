//! What becomes of questions of tools to the user. Pure.

use crate::agent::machine::Run;
use crate::types::Event;
use crate::types::tool_question::{ResolvedQuestion, Unanswered, UserAnswer};

/// What a user says to an open question; `None` if it is not open.
pub(super) fn answered(run: &Run, id: &str, answer: UserAnswer, by: Option<String>) -> Option<Event> {
    resolved(run, id, answer, by, None)
}

/// That no user answered an open question; `None` if it is not open.
pub(super) fn unanswered(run: &Run, id: &str, why: Unanswered) -> Option<Event> {
    resolved(run, id, why.answer(), None, Some(why))
}

fn resolved(
    run: &Run,
    id: &str,
    answer: UserAnswer,
    by: Option<String>,
    unanswered: Option<Unanswered>,
) -> Option<Event> {
    let call_id = run.open_question(id)?.clone();
    let name = run.tool_of(&call_id)?.to_owned();
    let (id, step) = (id.to_owned(), run.step());
    Some(Event::QuestionResolved(Box::new(ResolvedQuestion { id, step, call_id, name, answer, by, unanswered })))
}
