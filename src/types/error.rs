//! What can fail in a run, in terms of our own.
//!
//! Knows nothing of clients: each dialect has a table with the name and status of each failure.

use serde::{Deserialize, Serialize};

/// What failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The upstream was not reached, was overloaded or broke off.
    UpstreamUnavailable,
    /// The upstream did not answer, or fell silent, for too long.
    UpstreamTimeout,
    /// The upstream refused the request.
    UpstreamRejected,
    /// The upstream says that the request is not valid: 400 or 422.
    RequestRejected,
    /// The conversation does not fit the model.
    ContextLength,
    /// The model answered nothing, twice.
    EmptyResponse,
    /// It is unknown whether a call of a tool with side effects took effect.
    OutcomeUnknown,
    /// A tool call failed, and the run was not to go on then.
    ToolFailed,
    /// The run was interrupted too often without progress.
    CrashLoop,
    /// What the run needs to go on is no longer in the store or the configuration.
    StoreLostState,
    /// The limit of model calls was reached, and the run was to fail at its limits.
    IterationLimit,
    /// The limit of tool calls was reached, and the run was to fail at its limits.
    ToolCallLimit,
    /// The model repeated tool calls that brought nothing new, and the run was to fail at its limits.
    LoopGuard,
    /// A token or cost budget is used up, and the run was to fail at its limits.
    BudgetExceeded,
    /// The run's time is up, and it was to fail at its limits.
    TimeLimit,
    /// A hook of the operator's refused the run.
    HookDenied,
    /// The server failed.
    Internal,
}

impl ErrorKind {
    /// Whether the model was asked again and again before this was said.
    #[must_use]
    pub fn was_retried(self) -> bool {
        matches!(self, Self::UpstreamUnavailable | Self::UpstreamTimeout)
    }

    /// Whether the same request may succeed another time.
    #[must_use]
    pub fn is_retryable(self) -> bool {
        match self {
            Self::UpstreamUnavailable | Self::UpstreamTimeout | Self::EmptyResponse => true,
            Self::UpstreamRejected
            | Self::RequestRejected
            | Self::ContextLength
            | Self::OutcomeUnknown
            | Self::ToolFailed
            | Self::CrashLoop
            | Self::StoreLostState
            | Self::IterationLimit
            | Self::ToolCallLimit
            | Self::LoopGuard
            | Self::BudgetExceeded
            | Self::TimeLimit
            | Self::HookDenied
            | Self::Internal => false,
        }
    }
}

/// Why a run failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunError {
    /// What failed.
    pub kind: ErrorKind,
    /// One or two sentences that may be shown: they hold no secret.
    pub message: String,
    /// The status with which the upstream answered, if it is the upstream that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// How long the upstream asks to wait before the same is tried again, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

impl RunError {
    /// An error of this kind, of which nothing more is known.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), status: None, retry_after_ms: None }
    }
}
