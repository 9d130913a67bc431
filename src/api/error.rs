//! Errors as responses, for every cause and on every path.
//!
//! Operations have error enums of their own. This module alone maps them to an [`ErrorCode`] and to what else the
//! response says. The dialect's table has the code's name and status. Clients may see every message; details that
//! they must not see are logged here under the request's id.

mod field_path;

use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};

use self::field_path::path;
use crate::agent::definitions::AcceptError;
use crate::agent::error::{
    ApprovalError, ClaimError, Field, ForkError, LookupError, PreviousError, StartError, StorageError,
};
use crate::agent::follow::FollowError;
use crate::agent::questions::AnswerError;
use crate::agent::stored_agents::{AgentError, Unreadable};
use crate::agent::tool_results::ToolResultError;
use crate::api::log_fields::LogFields;
use crate::api::wire::error::{ErrorCode, WireError};
use crate::api::wire::messages;
use crate::api::wire::openai_error::{ErrorBody, ErrorObject, Row, row};
use crate::api::wire::responses::param::renamed;
use crate::types::{RunError, RunId};

/// Tells OpenAI's clients not to repeat a request by themselves.
pub const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// An error response.
#[derive(Debug, Clone)]
pub struct ApiError(Box<Parts>);

#[derive(Debug, Clone)]
struct Parts {
    error: WireError,
    /// The live run that is in the way.
    busy: Option<RunId>,
    retry_after_s: Option<u64>,
    permanent: bool,
}

impl ApiError {
    /// An error of this code.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        WireError::new(code, message).into()
    }

    /// A value out of its range.
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        WireError::invalid(param, message).into()
    }

    /// A failure of the server; `cause` goes to the log, not to the caller.
    pub fn internal(cause: &dyn std::fmt::Display) -> Self {
        tracing::error!(%cause, "a request failed");
        Self::new(ErrorCode::Internal, "The server failed.")
    }

    /// Names the value at fault.
    #[must_use]
    pub fn at(mut self, param: impl Into<String>) -> Self {
        self.0.error.param = Some(param.into());
        self
    }

    /// Repeating the request cannot help.
    #[must_use]
    pub fn permanent(mut self) -> Self {
        self.0.permanent = true;
        self
    }

    /// When to try again.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.0.retry_after_s = Some(seconds);
        self
    }

    /// The error as streams show it.
    pub fn object(&self) -> ErrorObject {
        let run_id = self.0.busy.as_ref().map(RunId::to_string);
        let events_url = self.0.busy.as_ref().map(|run| format!("/v1/runs/{run}/events"));
        ErrorObject { run_id, events_url, ..self.0.error.clone().into() }
    }

    /// The error as clients of responses know it: they repeat whatever is a conflict.
    #[must_use]
    pub fn in_responses(mut self) -> Self {
        let error = &mut self.0.error;
        error.param = error.param.take().map(|param| renamed(&param));
        if error.code == ErrorCode::RunNotFound {
            // Only the calls that items answer lead to runs here.
            error.param = Some("input".to_owned());
        }
        if error.code == ErrorCode::SessionBusy {
            error.code = ErrorCode::ConversationLocked;
        } else if error.code == ErrorCode::SessionNotFound {
            error.code = ErrorCode::ConversationNotFound;
        } else if error.code == ErrorCode::RunNotWaiting {
            error.code = ErrorCode::PreviousResponseNotReady;
        }
        self
    }

    /// The error as clients of messages know it, which was found in a run and not in their request.
    #[must_use]
    pub fn in_messages(mut self) -> Self {
        let error = &mut self.0.error;
        error.param = error.param.take().map(|param| messages::error::renamed(&param));
        self
    }

    /// The error as the holder of a token may know it: without what the budgets, the rates and the storage of its key come to.
    #[must_use]
    pub fn without_figures(mut self) -> Self {
        let error = &mut self.0.error;
        let plain = if error.code == ErrorCode::BudgetExceeded {
            "a budget has no room for this request"
        } else if error.code == ErrorCode::RateLimited {
            "there are too many runs or requests now; try again in a while"
        } else if error.code == ErrorCode::StorageFull {
            "there is no room to store this"
        } else {
            return self;
        };
        plain.clone_into(&mut error.message);
        self
    }

    fn busy(message: String, run: &RunId) -> Self {
        let mut error = Self::new(ErrorCode::SessionBusy, message).permanent();
        error.0.busy = Some(run.clone());
        error
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let Row { status, code, .. } = row(self.0.error.code);
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, axum::Json(ErrorBody { error: self.object() })).into_response();
        let headers = response.headers_mut();
        if self.0.permanent {
            headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = self.0.retry_after_s {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        LogFields::of(&mut response).code = Some(code);
        response
    }
}

impl From<WireError> for ApiError {
    fn from(error: WireError) -> Self {
        Self(Box::new(Parts { error, busy: None, retry_after_s: None, permanent: false }))
    }
}

impl From<StartError> for ApiError {
    fn from(error: StartError) -> Self {
        let message = error.to_string();
        match error {
            StartError::ModelNotFound { .. }
            | StartError::AgentModelNotFound { .. }
            | StartError::AgentUnreadable { .. }
            | StartError::AgentWithoutModel(_) => Self::new(ErrorCode::ModelNotFound, message).at("model"),
            StartError::ModelAmbiguous { .. } | StartError::PriceUnknown(_) => Self::invalid("model", message),
            StartError::ModelMissing => Self::new(ErrorCode::MissingField, message).at("model"),
            StartError::AgentForbidden(_) => Self::new(ErrorCode::Forbidden, message).at("model"),
            StartError::OutcomeForbidden(_) => Self::new(ErrorCode::Forbidden, message).at("messages").permanent(),
            StartError::ServersForbidden(_) => Self::new(ErrorCode::Forbidden, message).at("tools"),
            StartError::ServerFailed(_) => Self::new(ErrorCode::McpServerFailed, message).at("tools").permanent(),
            StartError::ToolNotAllowed { .. } => Self::new(ErrorCode::ToolNotAllowed, message).at("agent.tools"),
            StartError::Invalid { field, message } => Self::invalid(path(field), message),
            StartError::Blocked { field, .. } => Self::new(ErrorCode::GuardrailBlocked, message).at(path(field)),
            StartError::ContextLength(_) => Self::new(ErrorCode::ContextLength, message).at("messages"),
            StartError::BudgetExceeded { short, .. } => {
                let error = Self::new(ErrorCode::BudgetExceeded, message);
                match short.retry_after_s() {
                    Some(seconds) => error.retry_after(seconds),
                    None => error.permanent(),
                }
            }
            StartError::TooManyRuns(_) | StartError::TooManyRunsOf { .. } | StartError::TooManyServersOfKey(_) => {
                Self::new(ErrorCode::RateLimited, message).retry_after(2)
            }
            StartError::TooManyStarts { wait, .. } => {
                Self::new(ErrorCode::RateLimited, message).retry_after(wait.as_secs() + 1)
            }
            StartError::OutOfMemory | StartError::TooManyServers(_) => {
                Self::new(ErrorCode::Overloaded, message).retry_after(2)
            }
            StartError::SessionBusy { run, .. }
            | StartError::SessionWaits { run, .. }
            | StartError::Compacting { run, .. } => Self::busy(message, &run),
            StartError::SessionNotFound(_) => Self::new(ErrorCode::SessionNotFound, message),
            StartError::VersionConflict(_) => Self::new(ErrorCode::VersionConflict, message).retry_after(1),
            StartError::RunNotFound(_) => Self::new(ErrorCode::RunNotFound, message).at("agent.run_id"),
            StartError::NotWaiting(_) | StartError::WaitsForApproval { .. } | StartError::WaitsForServices { .. } => {
                Self::new(ErrorCode::RunNotWaiting, message).permanent()
            }
            StartError::Approval(error) => error.into(),
            StartError::Previous(error) => error.into(),
            StartError::Draining => Self::new(ErrorCode::Draining, message).retry_after(2),
            StartError::Claim(error) => error.into(),
            StartError::Storage(error) => error.into(),
            StartError::Store(error) => LookupError::Store(error).into(),
        }
    }
}

impl From<PreviousError> for ApiError {
    fn from(error: PreviousError) -> Self {
        let (message, previous) = (error.to_string(), "previous_response_id");
        match error {
            PreviousError::NotFound(_) => Self::new(ErrorCode::PreviousResponseNotFound, message).at(previous),
            PreviousError::NotReady(_) => Self::new(ErrorCode::PreviousResponseNotReady, message).at(previous),
            PreviousError::Rewritten(_) => Self::invalid(previous, message),
            PreviousError::Unanswered(_) | PreviousError::NoSuchCall(_) | PreviousError::Undecided(_) => {
                Self::invalid("input", message)
            }
        }
    }
}

impl From<ApprovalError> for ApiError {
    fn from(error: ApprovalError) -> Self {
        let message = error.to_string();
        match error {
            ApprovalError::NoSuchCall(..) => Self::new(ErrorCode::CallNotFound, message),
            ApprovalError::Decided(_) | ApprovalError::AwaitsOthers(_) => {
                Self::new(ErrorCode::RunNotWaiting, message).permanent()
            }
            ApprovalError::Expired(_) => Self::new(ErrorCode::ApprovalExpired, message),
            ApprovalError::OtherArguments(_) => Self::new(ErrorCode::VersionConflict, message).permanent(),
            ApprovalError::MayNotApprove(_) => Self::new(ErrorCode::Forbidden, message).permanent(),
        }
    }
}

impl From<LookupError> for ApiError {
    fn from(error: LookupError) -> Self {
        let message = error.to_string();
        match error {
            LookupError::RunNotFound(_) => Self::new(ErrorCode::RunNotFound, message),
            LookupError::AgentForbidden { .. } => Self::new(ErrorCode::Forbidden, message),
            LookupError::SessionNotFound(_) => Self::new(ErrorCode::SessionNotFound, message),
            LookupError::SessionExists(_) | LookupError::VersionConflict(_) => {
                Self::new(ErrorCode::VersionConflict, message).permanent()
            }
            LookupError::SessionBusy { run, .. } => Self::busy(message, &run),
            LookupError::TooMuchMetadata(_) => Self::invalid("metadata", message),
            LookupError::EventsExpired(_) => Self::new(ErrorCode::EventsExpired, message),
            LookupError::EventIdAhead { .. } => Self::new(ErrorCode::EventIdAhead, message).permanent(),
            LookupError::CommandTooLarge { .. } => Self::new(ErrorCode::PayloadTooLarge, message).at("messages"),
            LookupError::InboxFull(_) => Self::new(ErrorCode::InboxFull, message).at("messages").permanent(),
            LookupError::PartRefused { message: index, part, .. } => {
                Self::invalid(path(Field::Part { message: index, part }), message)
            }
            LookupError::InputBlocked { place, .. } => {
                Self::new(ErrorCode::GuardrailBlocked, message).at(path(Field::Message(place)))
            }
            LookupError::NotLive(_) => Self::new(ErrorCode::RunNotWaiting, message).permanent(),
            LookupError::Claim(error) => error.into(),
            LookupError::Storage(error) => error.into(),
            LookupError::Store(cause) => {
                tracing::error!(%cause, "the store failed a request");
                let message = "the store is not available; try again in a moment";
                Self::new(ErrorCode::StoreUnavailable, message).retry_after(1)
            }
        }
    }
}

impl From<ToolResultError> for ApiError {
    fn from(error: ToolResultError) -> Self {
        let message = error.to_string();
        match error {
            ToolResultError::NoSuchCall => Self::new(ErrorCode::CallNotFound, message),
            ToolResultError::AnsweredOtherwise(_) => Self::new(ErrorCode::RunNotWaiting, message).permanent(),
            ToolResultError::TooLate(_) => Self::new(ErrorCode::CallExpired, message).permanent(),
            ToolResultError::NotSent(error) => error.into(),
            ToolResultError::Store(error) => LookupError::Store(error).into(),
        }
    }
}

impl From<AnswerError> for ApiError {
    fn from(error: AnswerError) -> Self {
        let message = error.to_string();
        match error {
            AnswerError::NoSuchQuestion(..) => Self::new(ErrorCode::CallNotFound, message).at("question_id"),
            AnswerError::AnsweredOtherwise(_) => Self::new(ErrorCode::RunNotWaiting, message).permanent(),
            AnswerError::TooLate(_) => Self::new(ErrorCode::CallExpired, message).permanent(),
            AnswerError::NotAsked { member: Some(member), .. } => Self::invalid(format!("answer.{member}"), message),
            AnswerError::NotAsked { member: None, .. } => Self::invalid("answer", message),
            AnswerError::Blocked(_) => Self::new(ErrorCode::GuardrailBlocked, message).at("answer"),
            AnswerError::Lookup(error @ (LookupError::CommandTooLarge { .. } | LookupError::InboxFull(_))) => {
                Self::from(error).at("answer")
            }
            AnswerError::Lookup(error) => error.into(),
        }
    }
}

impl From<StorageError> for ApiError {
    fn from(error: StorageError) -> Self {
        let message = error.to_string();
        match error {
            StorageError::Full { recount_in, .. } => {
                // Whether something has expired by then is not known, so no client should repeat it by itself.
                let seconds = recount_in.as_secs().saturating_add(1);
                Self::new(ErrorCode::StorageFull, message).permanent().retry_after(seconds)
            }
            StorageError::TooLarge { .. } => Self::new(ErrorCode::PayloadTooLarge, message),
            StorageError::Store(error) => LookupError::Store(error).into(),
        }
    }
}

impl From<FollowError> for ApiError {
    fn from(error: FollowError) -> Self {
        let message = error.to_string();
        match error {
            FollowError::Store(error) => LookupError::Store(error).into(),
            FollowError::Damaged(_) => Self::internal(&error),
            FollowError::Changed => Self::new(ErrorCode::EventsExpired, message),
            FollowError::Leaving => Self::new(ErrorCode::Draining, message).retry_after(1),
        }
    }
}

impl From<ClaimError> for ApiError {
    fn from(error: ClaimError) -> Self {
        let message = error.to_string();
        match error {
            ClaimError::Reused => Self::new(ErrorCode::IdempotencyKeyReused, message).at("idempotency-key").permanent(),
            ClaimError::Gone => Self::new(ErrorCode::ResultExpired, message).permanent(),
            ClaimError::Store(error) => LookupError::Store(error).into(),
            ClaimError::Busy => Self::new(ErrorCode::VersionConflict, message).retry_after(1),
        }
    }
}

impl From<AgentError> for ApiError {
    fn from(error: AgentError) -> Self {
        let message = error.to_string();
        match error {
            AgentError::NotFound(_) | AgentError::NoSuchVersion { .. } => Self::new(ErrorCode::AgentNotFound, message),
            AgentError::OfFile(_) => Self::new(ErrorCode::AgentReadOnly, message).permanent(),
            AgentError::OtherVersion { .. } => Self::new(ErrorCode::VersionConflict, message).permanent(),
            AgentError::TooMany(_) => Self::new(ErrorCode::StorageFull, message).permanent(),
            AgentError::TooLong => Self::new(ErrorCode::PayloadTooLarge, message),
            AgentError::Unreadable(Unreadable(mistakes)) => {
                let path = mistakes.0.first().map(|mistake| mistake.path.clone()).unwrap_or_default();
                let error = Self::new(ErrorCode::InvalidValue, message);
                if path.is_empty() { error } else { error.at(path) }
            }
            AgentError::Busy => Self::new(ErrorCode::VersionConflict, message).retry_after(1),
            AgentError::Store(error) => LookupError::Store(error).into(),
        }
    }
}

impl From<AcceptError> for ApiError {
    fn from(error: AcceptError) -> Self {
        match error {
            AcceptError::Unknown(_) => Self::new(ErrorCode::ToolNotFound, error.to_string()),
            AcceptError::NotHeld { .. } => Self::new(ErrorCode::VersionConflict, error.to_string()),
            AcceptError::Unavailable(cause) => LookupError::Store(cause).into(),
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
        let shown = Self::from(WireError::from(error));
        match error.retry_after_ms {
            Some(wait) => shown.retry_after(wait.div_ceil(1000)),
            None => shown,
        }
    }
}
