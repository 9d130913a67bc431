//! How a response ends.

use crate::api::wire::openai_error::ErrorObject;
use crate::api::wire::responses::object::{FailureObject, IncompleteDetails};
use crate::types::{ErrorKind, Outcome, StopReason};

/// What clients are told of an end.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    /// The status of the response.
    pub(super) status: &'static str,
    /// Why it is incomplete.
    pub(super) incomplete: Option<IncompleteDetails>,
    /// The last event.
    pub(super) event: &'static str,
}

/// What clients are told of a run that ended so.
pub(super) fn end(outcome: &Outcome) -> End {
    let incomplete =
        |status, reason| End { status, incomplete: Some(IncompleteDetails { reason }), event: "response.incomplete" };
    if outcome.error.is_some() {
        return End { status: "failed", incomplete: None, event: "response.failed" };
    }
    match outcome.reason {
        StopReason::Done
        | StopReason::NoReply
        | StopReason::ClientTools
        | StopReason::OutcomeAsked
        | StopReason::AskUser
        | StopReason::Approval
        | StopReason::ToolPending => End { status: "completed", incomplete: None, event: "response.completed" },
        StopReason::Length
        | StopReason::MaxIterations
        | StopReason::MaxToolCalls
        | StopReason::LoopGuard
        | StopReason::TokenBudget
        | StopReason::CostBudget
        | StopReason::Timeout => incomplete("incomplete", "max_output_tokens"),
        StopReason::Guardrail | StopReason::ContentFilter => incomplete("incomplete", "content_filter"),
        StopReason::Cancelled | StopReason::Abandoned => incomplete("cancelled", "cancelled"),
        StopReason::ProviderError
        | StopReason::ContextLimit
        | StopReason::EmptyResponse
        | StopReason::OutcomeUnknown
        | StopReason::ToolError
        | StopReason::CrashLoop
        | StopReason::StoreLostState
        | StopReason::InternalError => End { status: "failed", incomplete: None, event: "response.failed" },
    }
}

/// Why a response failed, with a code by which clients know whether to send the request again.
pub(super) fn failure(outcome: &Outcome) -> Option<FailureObject<'_>> {
    let error = outcome.error.as_ref()?;
    let code = if error.kind == ErrorKind::ContextLength {
        "context_length_exceeded"
    } else if error.kind == ErrorKind::BudgetExceeded {
        "insufficient_quota"
    } else if outcome.may_be_repeated() {
        "server_error"
    } else {
        "invalid_prompt"
    };
    let r#type = ErrorObject::from(error).r#type;
    Some(FailureObject { code, message: &error.message, r#type, param: None })
}
