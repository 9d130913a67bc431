//! Errors in Anthropic's shape.

use serde::Serialize;
use utoipa::ToSchema;

use crate::types::{ErrorKind, RunError};

/// How Anthropic's clients recognise a conversation that is too long: they shorten it.
const TOO_LONG: &str = "prompt is too long";

/// The body of every error response of this dialect, and the frame of an error in a stream.
#[derive(Debug, Serialize, ToSchema)]
pub struct MessagesErrorBody<'a> {
    /// `error`.
    #[schema(value_type = String, example = "error")]
    pub r#type: &'static str,
    /// What went wrong.
    pub error: MessagesError<'a>,
    /// The request, as its header `request-id` names it.
    pub request_id: Option<&'a str>,
}

/// What went wrong.
#[derive(Debug, Serialize, ToSchema)]
pub struct MessagesError<'a> {
    /// The kind of error.
    #[schema(value_type = String, example = "invalid_request_error")]
    pub r#type: &'static str,
    /// One or two sentences.
    pub message: &'a str,
    /// The code to branch on, the same as in other dialects.
    pub code: &'a str,
    /// Path of the value at fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub param: Option<&'a str>,
    /// The live run that is in the way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<&'a str>,
}

impl<'a> MessagesErrorBody<'a> {
    /// An error of this kind.
    pub fn new(error: MessagesError<'a>, request_id: Option<&'a str>) -> Self {
        Self { r#type: "error", error, request_id }
    }
}

/// The kind of an error that is answered with this status.
pub fn kind_of(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 => "overloaded_error",
        504 => "timeout_error",
        400..500 => "invalid_request_error",
        _ => "api_error",
    }
}

/// The kind of an error that ends a stream. Clients repeat what is an error of the server's, and not what they asked for.
pub fn kind_in_stream(may_be_repeated: bool) -> &'static str {
    if may_be_repeated { "api_error" } else { "invalid_request_error" }
}

/// A message of an error, as clients of this dialect expect it.
pub fn worded(message: &str, is_too_long: bool) -> String {
    if is_too_long && !message.starts_with(TOO_LONG) { format!("{TOO_LONG}: {message}") } else { message.to_owned() }
}

/// The path of a value in a request for a message. Messages of a run and of a request are not one for one, so of those only the
/// list is named.
pub fn renamed(param: &str) -> String {
    let is_message = param == "agent.run_id" || param.starts_with("messages[");
    if is_message {
        "messages".to_owned()
    } else {
        param.replacen(".function.parameters", ".input_schema", 1).replacen(".function.", ".", 1)
    }
}

/// The message of a run that failed so.
pub fn message_of(error: &RunError) -> String {
    worded(&error.message, error.kind == ErrorKind::ContextLength)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_has_its_kind() {
        for (status, kind) in [
            (400, "invalid_request_error"),
            (401, "authentication_error"),
            (403, "permission_error"),
            (404, "not_found_error"),
            (409, "invalid_request_error"),
            (413, "request_too_large"),
            (429, "rate_limit_error"),
            (500, "api_error"),
            (502, "api_error"),
            (503, "overloaded_error"),
            (504, "timeout_error"),
        ] {
            assert_eq!(kind_of(status), kind, "{status}");
        }
    }

    #[test]
    fn a_conversation_that_is_too_long_is_told_in_the_words_that_clients_know() {
        assert_eq!(worded("it has 9 tokens", true), "prompt is too long: it has 9 tokens");
        assert_eq!(worded("prompt is too long: 9", true), "prompt is too long: 9");
        assert_eq!(worded("it has 9 tokens", false), "it has 9 tokens");
    }
}
