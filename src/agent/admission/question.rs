//! Words of the user that answer what a waiting run asks.

use crate::agent::machine::Run;
use crate::agent::request::NewRun;
use crate::llm::message_parts;
use crate::types::conversation::{Part, ToolResult};
use crate::types::{CallId, Message, Role};

/// The same request with its words as results of the calls by which the run asks; `None` if the run asks nothing, or the
/// request answers by calls already.
pub(super) fn answered_in_words(new: &NewRun, run: &Run) -> Option<NewRun> {
    let asked = run.questions();
    if asked.is_empty() || !new.answered.is_empty() {
        return None;
    }
    let (before, said) = new.messages.split_at(new.answers_from);
    let (words, rest): (Vec<&Message>, Vec<&Message>) = said.iter().partition(|message| message.role == Role::User);
    let parts: Vec<Part> = words
        .into_iter()
        .filter_map(|message| message_parts(message).ok())
        .flat_map(|parts| parts.list.clone())
        .collect();
    if parts.is_empty() {
        return None;
    }
    let answer = |call: &CallId| {
        let (call, parts) = (call.clone(), parts.clone());
        Message::result(ToolResult { call, parts, structured: None, is_error: false })
    };
    let answers = asked.iter().map(answer);
    let messages = before.iter().cloned().chain(answers).chain(rest.into_iter().cloned()).collect();
    Some(NewRun { messages, answered: asked, ..new.clone() })
}
