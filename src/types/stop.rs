//! Where a run stands, and why it stopped.

use serde::{Deserialize, Serialize};

use crate::types::error::{ErrorKind, RunError};

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Accepted, not begun.
    Queued,
    /// Being driven.
    InProgress,
    /// Waits for its client.
    RequiresAction,
    /// The model answered.
    Completed,
    /// A limit ended it.
    Incomplete,
    /// It was cancelled.
    Cancelled,
    /// It failed.
    Failed,
}

impl RunStatus {
    /// The status as it is written on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::InProgress => "in_progress",
            Self::RequiresAction => "requires_action",
            Self::Completed => "completed",
            Self::Incomplete => "incomplete",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }

    /// Whether nothing can happen in the run any more.
    #[must_use]
    pub fn is_final(self) -> bool {
        match self {
            Self::Queued | Self::InProgress | Self::RequiresAction => false,
            Self::Completed | Self::Incomplete | Self::Cancelled | Self::Failed => true,
        }
    }
}

/// Why the loop stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model answered without calling tools.
    Done,
    /// The model answered that it has nothing to say.
    NoReply,
    /// The model's own length limit.
    Length,
    /// What was said failed a guardrail.
    Guardrail,
    /// The upstream's content filter held the answer, or the rest of it, back.
    ContentFilter,
    /// [`Limits::max_iterations`](crate::types::Limits::max_iterations).
    MaxIterations,
    /// [`Limits::max_tool_calls`](crate::types::Limits::max_tool_calls).
    MaxToolCalls,
    /// Its model repeated tool calls that brought nothing new.
    LoopGuard,
    /// The token budget of the run, its session or its key.
    TokenBudget,
    /// The cost budget of the run, its session or its key.
    CostBudget,
    /// [`Limits::timeout_ms`](crate::types::Limits::timeout_ms).
    Timeout,
    /// Client tools were called.
    ClientTools,
    /// It is unknown whether a call with side effects took effect, and the caller is to say it.
    OutcomeAsked,
    /// Its model asks the user.
    AskUser,
    /// Calls need an approval.
    Approval,
    /// Services go on with calls, and answer later.
    ToolPending,
    /// Someone cancelled it.
    Cancelled,
    /// Its last reader went away, and it was not to go on without one. On the wire it is cancelled.
    Abandoned,
    /// The upstream failed after all retries.
    ProviderError,
    /// The conversation has grown beyond what the model takes.
    ContextLimit,
    /// The model answered nothing, twice.
    EmptyResponse,
    /// It is unknown whether a call with side effects took effect, and the run was to fail then.
    OutcomeUnknown,
    /// A tool call failed, and the run was not to go on then.
    ToolError,
    /// It was resumed too often without progress.
    CrashLoop,
    /// What it needs to go on is no longer in the store or the configuration.
    StoreLostState,
    /// The server failed.
    InternalError,
}

impl StopReason {
    /// The reason as it is written on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::NoReply => "no_reply",
            Self::Length => "length",
            Self::Guardrail => "guardrail",
            Self::ContentFilter => "content_filter",
            Self::MaxIterations => "max_iterations",
            Self::MaxToolCalls => "max_tool_calls",
            Self::LoopGuard => "loop_guard",
            Self::TokenBudget => "token_budget",
            Self::CostBudget => "cost_budget",
            Self::Timeout => "timeout",
            Self::ClientTools => "client_tools",
            Self::Cancelled | Self::Abandoned => "cancelled",
            Self::ProviderError => "provider_error",
            Self::ContextLimit => "context_limit",
            Self::EmptyResponse => "empty_response",
            Self::OutcomeAsked => "outcome_asked",
            Self::AskUser => "ask_user",
            Self::Approval => "approval",
            Self::ToolPending => "tool_pending",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::ToolError => "tool_error",
            Self::CrashLoop => "crash_loop",
            Self::StoreLostState => "store_lost_state",
            Self::InternalError => "internal_error",
        }
    }

    /// Whether a waiting run tells in words what it waits for, so that its calls are not the client's own to make.
    #[must_use]
    pub fn is_told_in_words(self) -> bool {
        matches!(self, Self::Approval | Self::AskUser | Self::ToolPending)
    }

    /// The status of a run that stopped for this reason.
    #[must_use]
    pub fn status(self) -> RunStatus {
        match self {
            Self::Done | Self::NoReply | Self::Length => RunStatus::Completed,
            Self::ContentFilter
            | Self::Guardrail
            | Self::MaxIterations
            | Self::MaxToolCalls
            | Self::LoopGuard
            | Self::TokenBudget
            | Self::CostBudget
            | Self::Timeout => RunStatus::Incomplete,
            Self::ClientTools | Self::OutcomeAsked | Self::AskUser | Self::Approval | Self::ToolPending => {
                RunStatus::RequiresAction
            }
            Self::Cancelled | Self::Abandoned => RunStatus::Cancelled,
            Self::ProviderError
            | Self::ContextLimit
            | Self::EmptyResponse
            | Self::OutcomeUnknown
            | Self::ToolError
            | Self::CrashLoop
            | Self::StoreLostState
            | Self::InternalError => RunStatus::Failed,
        }
    }

    /// The sentence that says which limit ended a run.
    #[must_use]
    pub fn limit_sentence(self) -> Option<&'static str> {
        match self {
            Self::MaxIterations => Some("The run stopped at its limit of model calls before the answer was complete."),
            Self::MaxToolCalls => Some("The run stopped at its limit of tool calls before the answer was complete."),
            Self::LoopGuard => {
                Some("The run stopped because its model repeated tool calls again and again that brought nothing new.")
            }
            Self::TokenBudget => Some("The run stopped because a token budget has no room for another model call."),
            Self::CostBudget => Some("The run stopped because a cost budget has no room for another model call."),
            Self::Timeout => Some("The run stopped at its time limit before the answer was complete."),
            Self::Guardrail => Some("A guardrail stopped the run."),
            Self::ContentFilter => Some("The upstream's content filter held the answer back."),
            Self::Done
            | Self::NoReply
            | Self::Length
            | Self::ClientTools
            | Self::OutcomeAsked
            | Self::AskUser
            | Self::Approval
            | Self::ToolPending
            | Self::Cancelled
            | Self::Abandoned
            | Self::ProviderError
            | Self::ContextLimit
            | Self::EmptyResponse
            | Self::OutcomeUnknown
            | Self::ToolError
            | Self::CrashLoop
            | Self::StoreLostState
            | Self::InternalError => None,
        }
    }

    /// The error of a run that failed for this reason without one that says more.
    #[must_use]
    pub fn default_error(self) -> Option<RunError> {
        let (kind, message) = match self {
            Self::ContextLimit => (ErrorKind::ContextLength, "The conversation has grown beyond what the model takes."),
            Self::EmptyResponse => (ErrorKind::EmptyResponse, "The model gave an empty answer, twice."),
            Self::OutcomeUnknown => {
                (ErrorKind::OutcomeUnknown, "Whether the call of a tool with side effects took effect is unknown.")
            }
            Self::ToolError => (ErrorKind::ToolFailed, "A tool call failed, and the run was to end then."),
            Self::CrashLoop => (ErrorKind::CrashLoop, "The run was interrupted too often without progress."),
            Self::StoreLostState => (
                ErrorKind::StoreLostState,
                "Part of what the run needs is no longer in the store or the configuration.",
            ),
            Self::ProviderError => (ErrorKind::UpstreamUnavailable, "The upstream failed."),
            Self::InternalError => (ErrorKind::Internal, "The server failed."),
            Self::Done
            | Self::NoReply
            | Self::Length
            | Self::Guardrail
            | Self::ContentFilter
            | Self::MaxIterations
            | Self::MaxToolCalls
            | Self::LoopGuard
            | Self::TokenBudget
            | Self::CostBudget
            | Self::Timeout
            | Self::ClientTools
            | Self::OutcomeAsked
            | Self::AskUser
            | Self::Approval
            | Self::ToolPending
            | Self::Cancelled
            | Self::Abandoned => return None,
        };
        Some(RunError::new(kind, message))
    }
}
