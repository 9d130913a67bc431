//! The status of a run, and how it ended.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::types::ToolCall;
use crate::types::error::{ErrorKind, RunError};
use crate::types::fallback::FallbackUsage;
use crate::types::json::is_default;
use crate::types::report::Report;
use crate::types::shortfall::Shortfall;
use crate::types::usage::{BudgetStatus, Micros, Usage};

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
        matches!(self, Self::Approval | Self::AskUser)
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
            Self::ClientTools | Self::OutcomeAsked | Self::AskUser | Self::Approval => RunStatus::RequiresAction,
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
            | Self::Cancelled
            | Self::Abandoned => return None,
        };
        Some(RunError::new(kind, message))
    }
}

/// How a run ended, or why it waits. Everything that its last event says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Why it stopped; decides the status.
    pub reason: StopReason,
    /// The final text.
    pub output_text: String,
    /// The words in which the model declined to answer.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub refusal: String,
    /// Reasoning text of the last step.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reasoning: String,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RunError>,
    /// The calls that its caller is to answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required_calls: Vec<RequiredCall>,
    /// Whether the responses of those who wait for it go on once it is resumed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub stays_open: bool,
    /// Tokens of all steps.
    pub usage: Usage,
    /// Tokens since the request came that the run was on when it ended; `None` if that is the request that started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leg_usage: Option<Usage>,
    /// Cost of all steps.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cost: Micros,
    /// The part of both that it took of models that it fell back to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub of_fallbacks: Vec<FallbackUsage>,
    /// Where its budgets stand.
    pub budget: BudgetStatus,
    /// The budget that has no room for another model call, if that is why it stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short: Option<Shortfall>,
    /// Model calls that counted.
    pub iterations: u32,
    /// Tool calls that were answered.
    pub tool_calls: u32,
    /// Things the caller should know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// What happened, step by step.
    pub report: Report,
}

/// The sentence that says which limit ended a run, and how much a budget lacked.
#[must_use]
pub fn limit_message(reason: StopReason, short: Option<&Shortfall>) -> Option<Cow<'static, str>> {
    let sentence = reason.limit_sentence()?;
    let Some(short) = short else { return Some(sentence.into()) };
    let (budget, state) = (short.budget(), short.state());
    Some(Cow::Owned(if reason == StopReason::Timeout {
        format!("The run stopped at its time limit, while it waited for room in the {budget}: {state}.")
    } else {
        format!("The run stopped because the {budget} has no room for another model call: {state}.")
    }))
}

/// A call that the caller is to answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequiredCall {
    /// The call.
    pub call: ToolCall,
    /// What became of it at the server, or why it needs an approval; `None` for one of the client's own tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Until when it can be approved, Unix milliseconds; `None` if it needs no approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<u64>,
}

impl Outcome {
    /// The end of a run whose progress is unknown.
    #[must_use]
    pub fn unknown(reason: StopReason) -> Self {
        Self {
            reason,
            output_text: String::new(),
            refusal: String::new(),
            reasoning: String::new(),
            error: reason.default_error(),
            required_calls: Vec::new(),
            stays_open: false,
            usage: Usage::default(),
            leg_usage: None,
            cost: Micros::default(),
            of_fallbacks: Vec::new(),
            budget: BudgetStatus::default(),
            short: None,
            iterations: 0,
            tool_calls: 0,
            warnings: vec!["the usage of the run is unknown: its events were lost".to_owned()],
            report: Report::default(),
        }
    }

    /// Tokens since the request came that the run was on when it ended.
    #[must_use]
    pub fn leg_usage(&self) -> &Usage {
        self.leg_usage.as_ref().unwrap_or(&self.usage)
    }

    /// Which limit ended the run, in a sentence.
    #[must_use]
    pub fn message(&self) -> Option<Cow<'static, str>> {
        limit_message(self.reason, self.short.as_ref())
    }

    /// The run's status: that of its reason, unless it was asked to fail at its limits.
    #[must_use]
    pub fn status(&self) -> RunStatus {
        if self.error.is_some() { RunStatus::Failed } else { self.reason.status() }
    }

    /// Whether the same request may be made again: it came to nothing, for a reason that may have gone,
    /// and no tool was called that would be called once more.
    #[must_use]
    pub fn may_be_repeated(&self) -> bool {
        let failed_for_now = self.error.as_ref().is_some_and(|error| error.kind.is_retryable());
        let is_limit = self.reason.status() == RunStatus::Incomplete;
        self.tool_calls == 0 && !is_limit && (failed_for_now || self.reason.status() == RunStatus::Cancelled)
    }

    /// Whether the run was cancelled because its readers had left, before it called a tool that a new run would
    /// call once more.
    #[must_use]
    pub fn was_abandoned_idle(&self) -> bool {
        self.tool_calls == 0 && self.reason == StopReason::Abandoned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_run_that_did_nothing_before_it_was_abandoned_may_be_begun_anew() {
        let ended = |reason, tool_calls| Outcome { tool_calls, ..Outcome::unknown(reason) }.was_abandoned_idle();
        assert!(ended(StopReason::Abandoned, 0));
        assert!(!ended(StopReason::Abandoned, 1), "its call would be made again");
        assert!(!ended(StopReason::Cancelled, 0), "somebody cancelled it");
    }
}
