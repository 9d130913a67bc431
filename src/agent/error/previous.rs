//! Why a response is not continued.

use crate::types::CallId;

/// Why a request does not continue the response that it names.
#[derive(Debug, thiserror::Error)]
pub enum PreviousError {
    /// There is none that this caller could continue.
    #[error("Previous response with id '{0}' not found.")]
    NotFound(String),
    /// It has not ended.
    #[error("Previous response with id '{0}' has not ended; continue it once it has, or cancel it.")]
    NotReady(String),
    /// It ended with a call that the request does not answer.
    #[error("No tool output found for function call {0}.")]
    Unanswered(CallId),
    /// It ended with no such call.
    #[error("No tool call found for function call output with call_id {0}.")]
    NoSuchCall(CallId),
    /// Messages before it were replaced since.
    #[error(
        "What was said before the response '{0}' was replaced in its session: continue the session by `conversation`."
    )]
    Rewritten(String),
    /// It waits for approvals that the request does not decide.
    #[error(
        "The call {0} still waits for an approval: decide all calls in one request. Where several must approve a call, \
         POST /v1/runs/{{id}}/approvals takes their decisions"
    )]
    Undecided(CallId),
}
