//! Questions of tools to the user: the events that tell of them, and the answers that a client sends.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::api::wire::body::{missing, parse};
use crate::api::wire::error::WireError;
use crate::types::tool_question::{ResolvedQuestion, ToolQuestion, Unanswered};
use crate::types::unambiguous::unambiguous_object;

/// A call asks the user something, and waits for the answer.
#[derive(Debug, Serialize, ToSchema)]
pub struct OpenQuestion<'a> {
    seq: u64,
    step: u32,
    call_id: &'a str,
    name: &'a str,
    /// What it is answered by.
    question_id: &'a str,
    /// The MCP server whose words the message and the schema are.
    server: &'a str,
    message: &'a str,
    /// The JSON schema of the answer: an object whose members are texts, numbers, truth values and choices.
    #[schema(value_type = Value)]
    schema: &'a RawValue,
    /// Until when it may be answered, Unix milliseconds.
    expires_ms: u64,
}

impl<'a> OpenQuestion<'a> {
    /// That this was asked.
    pub(super) fn new(seq: u64, asked: &'a ToolQuestion) -> Self {
        let ToolQuestion { id, step, call_id, name, server, message, schema, expires_ms } = asked;
        let (call_id, schema) = (call_id.as_str(), &*schema.0);
        Self { seq, step: *step, call_id, name, question_id: id, server, message, schema, expires_ms: *expires_ms }
    }
}

/// What became of a question.
#[derive(Debug, Serialize, ToSchema)]
pub struct ClosedQuestion<'a> {
    seq: u64,
    step: u32,
    call_id: &'a str,
    name: &'a str,
    question_id: &'a str,
    /// What the server is told: `accept`, `decline` or `cancel`.
    action: &'static str,
    /// What the user said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    answer: Option<&'a RawValue>,
    /// The name of the key that answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'a str>,
    /// Why no user answered: `expired`, `call_ended`, `run_stopped` or `shutdown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

impl<'a> ClosedQuestion<'a> {
    /// That a question was closed so.
    pub(super) fn new(seq: u64, resolved: &'a ResolvedQuestion) -> Self {
        let ResolvedQuestion { id, step, call_id, name, answer, by, unanswered } = resolved;
        let (action, answer) = (answer.action.as_str(), answer.content.as_ref().map(|content| &*content.0));
        let (by, reason) = (by.as_deref(), unanswered.map(Unanswered::as_str));
        Self { seq, step: *step, call_id: call_id.as_str(), name, question_id: id, action, answer, by, reason }
    }
}

/// What a user says to a question of a call. An unknown field is an error.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QuestionAnswer<'a> {
    /// The question, as the event `question.asked` names it.
    #[schema(value_type = String, required)]
    pub question_id: Option<String>,
    /// Whether the user says what was asked.
    #[schema(value_type = AnswerAction, required)]
    pub action: Option<AnswerAction>,
    /// What the user says, as the question's schema wants it; with `accept` alone.
    #[serde(borrow)]
    #[schema(value_type = Option<Object>)]
    pub answer: Option<&'a RawValue>,
}

/// Whether a user says what was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AnswerAction {
    /// The user does.
    Accept,
    /// The user does not.
    Decline,
}

/// The question, and what the user says to it; nothing if the user declines.
pub fn read_answer(body: &str) -> Result<(String, Option<Value>), WireError> {
    let QuestionAnswer { question_id, action, answer } = parse(body)?;
    let id = question_id.ok_or_else(|| missing("question_id"))?;
    let answer = answer.filter(|answer| answer.get() != "null");
    match (action.ok_or_else(|| missing("action"))?, answer) {
        (AnswerAction::Decline, None) => Ok((id, None)),
        (AnswerAction::Decline, Some(_)) => {
            Err(WireError::invalid("answer", "a question that is declined has no answer; leave it out"))
        }
        (AnswerAction::Accept, answer) => {
            let said = unambiguous_object(answer.map_or("{}", RawValue::get)).map(Value::Object);
            let wrong = || WireError::invalid("answer", "must be an object in which no name is given twice");
            said.map(|said| (id, Some(said))).ok_or_else(wrong)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_accepts_with_an_object_or_declines_without() {
        let read = |body: &str| read_answer(body).map_err(|error| error.param.unwrap_or_default());
        let accepted = read(r#"{"question_id":"q","action":"accept","answer":{"a":1}}"#);
        assert_eq!(accepted, Ok(("q".to_owned(), Some(json!({"a": 1})))));
        assert_eq!(read(r#"{"question_id":"q","action":"accept"}"#), Ok(("q".to_owned(), Some(json!({})))));
        assert_eq!(read(r#"{"question_id":"q","action":"decline","answer":null}"#), Ok(("q".to_owned(), None)));
        for (body, param) in [
            (r#"{"action":"accept"}"#, "question_id"),
            (r#"{"question_id":"q"}"#, "action"),
            (r#"{"question_id":"q","action":"cancel"}"#, "action"),
            (r#"{"question_id":"q","action":"decline","answer":{}}"#, "answer"),
            (r#"{"question_id":"q","action":"accept","answer":[]}"#, "answer"),
            (r#"{"question_id":"q","action":"accept","answer":{"a":1,"a":2}}"#, "answer"),
            (r#"{"question_id":"q","action":"accept","answers":{}}"#, "answers"),
        ] {
            assert_eq!(read(body), Err(param.to_owned()), "{body}");
        }
    }
}
