//! Errors in OpenAI's shape, which our own endpoints and resources share: the object, and the one table of
//! statuses, types and codes.

use serde::Serialize;
use utoipa::ToSchema;

use crate::api::wire::error::{ErrorCode, WireError};
use crate::types::RunError;

/// The body of every error response.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ErrorBody {
    /// What went wrong.
    pub error: ErrorObject,
}

/// What went wrong.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ErrorObject {
    /// One or two sentences.
    #[schema(example = "temperature must be between 0 and 2")]
    pub message: String,
    /// The kind of error.
    #[schema(value_type = String, example = "invalid_request_error")]
    pub r#type: &'static str,
    /// Path of the value at fault.
    #[schema(required, example = "temperature")]
    pub param: Option<String>,
    /// The code to branch on.
    #[schema(value_type = String, example = "invalid_value")]
    pub code: &'static str,
    /// The live run that is in the way, for `session_busy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// Where that run can be followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events_url: Option<String>,
}

/// What the dialect makes of an error: the status of a plain answer, then the error's type and code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The status of an answer that is nothing but the error.
    pub status: u16,
    /// OpenAI's kind of error.
    pub r#type: &'static str,
    /// The code to branch on.
    pub code: &'static str,
}

/// What the dialect makes of each error.
const TABLE: &[(ErrorCode, u16, &str, &str)] = &[
    (ErrorCode::MalformedRequest, 400, "invalid_request_error", "malformed_request"),
    (ErrorCode::InvalidJson, 400, "invalid_request_error", "invalid_json"),
    (ErrorCode::InvalidValue, 400, "invalid_request_error", "invalid_value"),
    (ErrorCode::MissingField, 400, "invalid_request_error", "missing_field"),
    (ErrorCode::UnknownField, 400, "invalid_request_error", "unknown_field"),
    (ErrorCode::GuardrailBlocked, 400, "invalid_request_error", "guardrail_blocked"),
    (ErrorCode::ContextLength, 400, "invalid_request_error", "context_length_exceeded"),
    (ErrorCode::RequestRejected, 400, "invalid_request_error", "request_rejected"),
    (ErrorCode::IterationLimit, 400, "invalid_request_error", "max_iterations"),
    (ErrorCode::ToolCallLimit, 400, "invalid_request_error", "max_tool_calls"),
    (ErrorCode::LoopGuard, 400, "invalid_request_error", "loop_guard"),
    (ErrorCode::PreviousResponseNotFound, 400, "invalid_request_error", "previous_response_not_found"),
    (ErrorCode::PreviousResponseNotReady, 400, "invalid_request_error", "previous_response_not_ready"),
    (ErrorCode::ConversationLocked, 400, "invalid_request_error", "conversation_locked"),
    (ErrorCode::InvalidApiKey, 401, "authentication_error", "invalid_api_key"),
    (ErrorCode::InvalidToken, 401, "authentication_error", "invalid_token"),
    (ErrorCode::TokenExpired, 401, "authentication_error", "token_expired"),
    (ErrorCode::TokenRevoked, 401, "authentication_error", "token_revoked"),
    (ErrorCode::Forbidden, 403, "permission_error", "forbidden"),
    (ErrorCode::TokensDisabled, 403, "permission_error", "tokens_disabled"),
    (ErrorCode::HostNotAllowed, 403, "permission_error", "host_not_allowed"),
    (ErrorCode::OriginNotAllowed, 403, "permission_error", "origin_not_allowed"),
    (ErrorCode::ToolNotAllowed, 403, "permission_error", "tool_not_allowed"),
    (ErrorCode::ModelNotFound, 404, "invalid_request_error", "model_not_found"),
    (ErrorCode::AgentNotFound, 404, "invalid_request_error", "agent_not_found"),
    (ErrorCode::ToolNotFound, 404, "invalid_request_error", "tool_not_found"),
    (ErrorCode::SessionNotFound, 404, "invalid_request_error", "session_not_found"),
    (ErrorCode::DocumentNotFound, 404, "invalid_request_error", "document_not_found"),
    (ErrorCode::LayerNotFound, 404, "invalid_request_error", "layer_not_found"),
    (ErrorCode::ScheduleNotFound, 404, "invalid_request_error", "schedule_not_found"),
    (ErrorCode::ScheduleExists, 409, "conflict_error", "schedule_exists"),
    (ErrorCode::RunNotFound, 404, "invalid_request_error", "run_not_found"),
    (ErrorCode::ResponseNotFound, 404, "invalid_request_error", "response_not_found"),
    (ErrorCode::ConversationNotFound, 404, "invalid_request_error", "conversation_not_found"),
    (ErrorCode::ItemNotFound, 404, "invalid_request_error", "item_not_found"),
    (ErrorCode::CallNotFound, 404, "invalid_request_error", "call_not_found"),
    (ErrorCode::UnknownUrl, 404, "invalid_request_error", "unknown_url"),
    (ErrorCode::MethodNotAllowed, 405, "invalid_request_error", "method_not_allowed"),
    (ErrorCode::RequestTimeout, 408, "invalid_request_error", "request_timeout"),
    (ErrorCode::AgentReadOnly, 409, "conflict_error", "agent_read_only"),
    (ErrorCode::SessionBusy, 409, "conflict_error", "session_busy"),
    (ErrorCode::InboxFull, 409, "conflict_error", "inbox_full"),
    (ErrorCode::RunNotWaiting, 409, "conflict_error", "run_not_waiting"),
    (ErrorCode::VersionConflict, 409, "conflict_error", "version_conflict"),
    (ErrorCode::EventIdAhead, 409, "conflict_error", "event_id_ahead"),
    (ErrorCode::EventsExpired, 410, "invalid_request_error", "events_expired"),
    (ErrorCode::ApprovalExpired, 410, "invalid_request_error", "approval_expired"),
    (ErrorCode::CallExpired, 410, "invalid_request_error", "call_expired"),
    (ErrorCode::ResultExpired, 410, "invalid_request_error", "result_expired"),
    (ErrorCode::PayloadTooLarge, 413, "invalid_request_error", "payload_too_large"),
    (ErrorCode::UriTooLong, 414, "invalid_request_error", "invalid_value"),
    (ErrorCode::HeadersTooLarge, 431, "invalid_request_error", "headers_too_large"),
    (ErrorCode::UnsupportedMediaType, 415, "invalid_request_error", "unsupported_media_type"),
    (ErrorCode::IdempotencyKeyReused, 422, "invalid_request_error", "idempotency_key_reused"),
    (ErrorCode::McpServerFailed, 424, "external_connector_error", "mcp_server_error"),
    (ErrorCode::RateLimited, 429, "rate_limit_error", "rate_limit_exceeded"),
    (ErrorCode::BudgetExceeded, 429, "insufficient_quota", "budget_exceeded"),
    (ErrorCode::StorageFull, 429, "insufficient_quota", "storage_full"),
    (ErrorCode::Internal, 500, "server_error", "internal_error"),
    (ErrorCode::OutcomeUnknown, 500, "server_error", "outcome_unknown"),
    (ErrorCode::ToolFailed, 500, "server_error", "tool_error"),
    (ErrorCode::CrashLoop, 500, "server_error", "crash_loop"),
    (ErrorCode::StoreLostState, 500, "server_error", "store_lost_state"),
    (ErrorCode::TransferEncoding, 501, "invalid_request_error", "unsupported_transfer_encoding"),
    (ErrorCode::UpstreamFailed, 502, "provider_error", "provider_error"),
    (ErrorCode::EmptyResponse, 502, "provider_error", "empty_response"),
    (ErrorCode::Overloaded, 503, "server_error", "overloaded"),
    (ErrorCode::StoreUnavailable, 503, "server_error", "store_unavailable"),
    (ErrorCode::Draining, 503, "server_error", "draining"),
    (ErrorCode::UpstreamTimeout, 504, "provider_error", "provider_timeout"),
];

/// What the dialect makes of an error. Its tests look at all codes, so each is in the table.
#[must_use]
pub fn row(code: ErrorCode) -> Row {
    let found = TABLE.iter().find(|(known, ..)| *known == code);
    let (_, status, r#type, code) = found.copied().expect("each code is in the table");
    Row { status, r#type, code }
}

/// Whether a message says something of the value at fault without naming it.
fn lacks_subject(message: &str) -> bool {
    ["must ", "may ", "is "].iter().any(|verb| message.starts_with(verb))
}

impl From<WireError> for ErrorObject {
    fn from(WireError { code, param, message }: WireError) -> Self {
        let Row { r#type, code, .. } = row(code);
        // Client libraries show people the sentence alone, so it names the value.
        let message = match &param {
            Some(param) if lacks_subject(&message) => format!("{param} {message}"),
            Some(_) | None => message,
        };
        Self { message, r#type, param, code, run_id: None, events_url: None }
    }
}

impl From<&RunError> for ErrorObject {
    fn from(error: &RunError) -> Self {
        WireError::from(error).into()
    }
}

impl From<WireError> for ErrorBody {
    fn from(error: WireError) -> Self {
        Self { error: error.into() }
    }
}
