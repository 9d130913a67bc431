//! Why a message ends, in this dialect's words.

use crate::types::{Outcome, StopReason};

/// The dialect's word for how a run ended or why it waits; `None` where a failure is told instead.
pub fn stop_reason(outcome: &Outcome) -> Option<&'static str> {
    if outcome.error.is_some() {
        return None;
    }
    match outcome.reason {
        StopReason::Done if !outcome.refusal.is_empty() => Some("refusal"),
        StopReason::Done
        | StopReason::NoReply
        | StopReason::OutcomeAsked
        | StopReason::AskUser
        | StopReason::ToolPending
        | StopReason::Cancelled
        | StopReason::Abandoned => Some("end_turn"),
        StopReason::Length
        | StopReason::MaxIterations
        | StopReason::MaxToolCalls
        | StopReason::LoopGuard
        | StopReason::TokenBudget
        | StopReason::CostBudget
        | StopReason::Timeout => Some("max_tokens"),
        StopReason::ClientTools => Some("tool_use"),
        StopReason::Approval => Some("pause_turn"),
        StopReason::Guardrail | StopReason::ContentFilter => Some("refusal"),
        StopReason::ProviderError
        | StopReason::ContextLimit
        | StopReason::EmptyResponse
        | StopReason::OutcomeUnknown
        | StopReason::ToolError
        | StopReason::CrashLoop
        | StopReason::StoreLostState
        | StopReason::InternalError => None,
    }
}
