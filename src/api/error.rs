//! Errors on the wire: OpenAI's shape, for every cause and on every path.
//!
//! Operations have error enums of their own; this is the one place that gives them a status, a type
//! and a code. A message may be shown to anyone; what may not is logged here under the request's id.

use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;
use utoipa::ToSchema;

use crate::agent::error::{ClaimError, ForkError, LookupError, StartError};
use crate::agent::follow::FollowError;
use crate::types::{ErrorKind, RunError, RunId};

/// Tells OpenAI's clients not to repeat a request by themselves.
pub const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

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
    #[schema(example = "invalid_request_error")]
    pub r#type: String,
    /// Path of the value at fault.
    #[schema(example = "temperature")]
    pub param: Option<String>,
    /// The code to branch on.
    #[schema(example = "invalid_value")]
    pub code: String,
    /// The live run that is in the way, for `session_busy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// Where that run can be followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events_url: Option<String>,
}

/// An error response.
#[derive(Debug, Clone)]
pub struct ApiError {
    status: StatusCode,
    error: Box<ErrorObject>,
    retry_after_s: Option<u64>,
    permanent: bool,
}

impl ApiError {
    /// An error of this status, type and code.
    pub fn new(status: StatusCode, r#type: &str, code: &str, message: impl Into<String>) -> Self {
        let error = ErrorObject {
            message: message.into(),
            r#type: r#type.to_owned(),
            param: None,
            code: code.to_owned(),
            run_id: None,
            events_url: None,
        };
        Self { status, error: Box::new(error), retry_after_s: None, permanent: false }
    }

    /// 400 with this code.
    pub fn bad_request(code: &str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", code, message)
    }

    /// 400 for a value out of its range.
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::bad_request("invalid_value", message).at(param)
    }

    /// 404 with this code.
    pub fn not_found(code: &str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "invalid_request_error", code, message)
    }

    /// 500; `cause` goes to the log, not to the caller.
    pub fn internal(cause: &dyn std::fmt::Display) -> Self {
        tracing::error!(%cause, "a request failed");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", "internal_error", "The server failed.")
    }

    /// Names the value at fault.
    #[must_use]
    pub fn at(mut self, param: impl Into<String>) -> Self {
        self.error.param = Some(param.into());
        self
    }

    /// Puts the value at fault within `parent`.
    #[must_use]
    pub fn within(mut self, parent: &str) -> Self {
        self.error.param = Some(match self.error.param {
            Some(param) if param.starts_with('[') => format!("{parent}{param}"),
            Some(param) => format!("{parent}.{param}"),
            None => parent.to_owned(),
        });
        self
    }

    /// Repeating the request cannot help.
    #[must_use]
    pub fn permanent(mut self) -> Self {
        self.permanent = true;
        self
    }

    /// When to try again.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after_s = Some(seconds);
        self
    }

    /// A stream whose text became void.
    pub fn broken_stream() -> Self {
        let message = "The answer broke off; what was sent of it is void.";
        Self::new(StatusCode::BAD_GATEWAY, "provider_error", "provider_error", message)
    }

    /// The error as streams show it.
    pub fn object(&self) -> &ErrorObject {
        &self.error
    }

    fn busy(message: String, run: &RunId) -> Self {
        let mut error = Self::new(StatusCode::CONFLICT, "conflict_error", "session_busy", message).permanent();
        error.error.run_id = Some(run.to_string());
        error.error.events_url = Some(format!("/v1/runs/{run}/events"));
        error
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, axum::Json(ErrorBody { error: *self.error })).into_response();
        let headers = response.headers_mut();
        if self.permanent {
            headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        if let Some(seconds) = self.retry_after_s {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

impl From<StartError> for ApiError {
    fn from(error: StartError) -> Self {
        let message = error.to_string();
        match error {
            StartError::ModelNotFound(_) => Self::not_found("model_not_found", message).at("model"),
            StartError::ModelAmbiguous { .. } => Self::invalid("model", message),
            StartError::AgentForbidden(_) => {
                Self::new(StatusCode::FORBIDDEN, "permission_error", "forbidden", message).at("model")
            }
            StartError::ToolNotAllowed(_) => {
                Self::new(StatusCode::FORBIDDEN, "permission_error", "tool_not_allowed", message).at("agent.tools")
            }
            StartError::Invalid { param, message } => Self::invalid(param, message),
            StartError::ContextLength(_) => Self::bad_request("context_length_exceeded", message).at("messages"),
            StartError::BudgetExceeded(_) => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "insufficient_quota", "budget_exceeded", message).permanent()
            }
            StartError::TooManyRuns(_) => {
                let status = StatusCode::TOO_MANY_REQUESTS;
                Self::new(status, "rate_limit_error", "rate_limit_exceeded", message).retry_after(2)
            }
            StartError::SessionBusy { run, .. } => Self::busy(message, &run),
            StartError::RunNotFound(_) => Self::not_found("run_not_found", message).at("agent.run_id"),
            StartError::NotWaiting(_) => {
                Self::new(StatusCode::CONFLICT, "conflict_error", "run_not_waiting", message).permanent()
            }
            StartError::Draining => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", "draining", message).retry_after(2)
            }
            StartError::Claim(error) => error.into(),
            StartError::Store(error) => LookupError::Store(error).into(),
        }
    }
}

impl From<LookupError> for ApiError {
    fn from(error: LookupError) -> Self {
        let message = error.to_string();
        match error {
            LookupError::RunNotFound(_) => Self::not_found("run_not_found", message),
            LookupError::SessionNotFound(_) => Self::not_found("session_not_found", message),
            LookupError::SessionExists(_) | LookupError::VersionConflict(_) => {
                Self::new(StatusCode::CONFLICT, "conflict_error", "version_conflict", message).permanent()
            }
            LookupError::SessionBusy { run, .. } => Self::busy(message, &run),
            LookupError::TooMuchMetadata(_) => Self::invalid("metadata", message),
            LookupError::EventsExpired(_) => {
                Self::new(StatusCode::GONE, "invalid_request_error", "events_expired", message)
            }
            LookupError::EventIdAhead { .. } => {
                Self::new(StatusCode::CONFLICT, "conflict_error", "event_id_ahead", message).permanent()
            }
            LookupError::TooManyLetters(_) => Self::invalid("messages", message).permanent(),
            LookupError::NotLive(_) => {
                Self::new(StatusCode::CONFLICT, "conflict_error", "run_not_waiting", message).permanent()
            }
            LookupError::Claim(error) => error.into(),
            LookupError::Store(cause) => {
                tracing::error!(%cause, "the store failed a request");
                let message = "the store is not available; try again in a moment";
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", "store_unavailable", message).retry_after(1)
            }
        }
    }
}

impl From<FollowError> for ApiError {
    fn from(error: FollowError) -> Self {
        let message = error.to_string();
        match error {
            FollowError::Store(error) => LookupError::Store(error).into(),
            FollowError::Damaged(_) => Self::internal(&error),
            FollowError::Changed => Self::new(StatusCode::GONE, "invalid_request_error", "events_expired", message),
            FollowError::Leaving => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", "draining", message).retry_after(1)
            }
        }
    }
}

impl From<ClaimError> for ApiError {
    fn from(error: ClaimError) -> Self {
        let message = error.to_string();
        let invalid = |status, code| Self::new(status, "invalid_request_error", code, message.clone());
        match error {
            ClaimError::Reused => {
                let status = StatusCode::UNPROCESSABLE_ENTITY;
                invalid(status, "idempotency_key_reused").at("idempotency-key").permanent()
            }
            ClaimError::Gone => invalid(StatusCode::GONE, "result_expired").permanent(),
            ClaimError::Store(error) => LookupError::Store(error).into(),
            ClaimError::Busy => {
                Self::new(StatusCode::CONFLICT, "conflict_error", "version_conflict", message).retry_after(1)
            }
        }
    }
}

impl From<ForkError> for ApiError {
    fn from(error: ForkError) -> Self {
        match error {
            ForkError::BeyondEnd { .. } | ForkError::SplitsCalls { .. } => Self::invalid("at", error.to_string()),
            ForkError::Lookup(error) => error.into(),
        }
    }
}

impl From<&RunError> for ApiError {
    fn from(error: &RunError) -> Self {
        use http::StatusCode as S;
        let (status, r#type, code) = match error.kind {
            ErrorKind::UpstreamUnavailable | ErrorKind::UpstreamRejected => {
                (S::BAD_GATEWAY, "provider_error", "provider_error")
            }
            ErrorKind::UpstreamTimeout => (S::GATEWAY_TIMEOUT, "provider_error", "provider_timeout"),
            ErrorKind::EmptyResponse => (S::BAD_GATEWAY, "provider_error", "empty_response"),
            ErrorKind::ContextLength => (S::BAD_REQUEST, "invalid_request_error", "context_length_exceeded"),
            ErrorKind::IterationLimit => (S::BAD_REQUEST, "invalid_request_error", "max_iterations"),
            ErrorKind::TimeLimit => (S::REQUEST_TIMEOUT, "invalid_request_error", "request_timeout"),
            ErrorKind::BudgetExceeded => (S::TOO_MANY_REQUESTS, "insufficient_quota", "budget_exceeded"),
            ErrorKind::OutcomeUnknown => (S::INTERNAL_SERVER_ERROR, "server_error", "outcome_unknown"),
            ErrorKind::CrashLoop => (S::INTERNAL_SERVER_ERROR, "server_error", "crash_loop"),
            ErrorKind::StoreLostState => (S::INTERNAL_SERVER_ERROR, "server_error", "store_lost_state"),
            ErrorKind::Internal => (S::INTERNAL_SERVER_ERROR, "server_error", "internal_error"),
        };
        Self::new(status, r#type, code, error.message.clone())
    }
}
