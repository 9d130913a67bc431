//! What named events are called.

use crate::api::wire::agent::events::NativeEvent;

impl NativeEvent<'_> {
    /// Its type, which is the event's name on the stream.
    pub fn name(&self) -> &'static str {
        match self {
            Self::RunQueued { .. } => "run.queued",
            Self::RunStarted { .. } => "run.started",
            Self::RunResumed { .. } => "run.resumed",
            Self::StepStarted { .. } => "step.started",
            Self::ThinkingDelta { .. } => "thinking.delta",
            Self::ToolCallDelta { .. } => "tool.call.delta",
            Self::ProviderRetry { .. } => "provider.retry",
            Self::ProviderFallback { .. } => "provider.fallback",
            Self::ProviderHedge { .. } => "provider.hedge",
            Self::ProviderHedgeEnded { .. } => "provider.hedge.ended",
            Self::StepDiscarded { .. } => "step.discarded",
            Self::GuardrailTriggered(_) => "guardrail.triggered",
            Self::GuardrailJudged(_) => "guardrail.judged",
            Self::InputFlagged(_) => "input.flagged",
            Self::InputTruncated(_) => "input.truncated",
            Self::ContextPruned(_) => "context.pruned",
            Self::CompactionStarted(_) => "compaction.started",
            Self::ContextCompacted(_) => "context.compacted",
            Self::CompactionFailed(_) => "compaction.failed",
            Self::FlushStarted(_) => "flush.started",
            Self::FlushCompleted(_) => "flush.completed",
            Self::FlushFailed(_) => "flush.failed",
            Self::BudgetWarning { .. } => "budget.warning",
            Self::LoopGuardTriggered { .. } => "loop_guard.triggered",
            Self::PlanCreated { .. } => "plan.created",
            Self::ReflectionStarted { .. } => "reflection.started",
            Self::ApprovalRequired(_) => "approval.required",
            Self::ApprovalResolved(_) => "approval.resolved",
            Self::ToolCall { .. } => "tool.call",
            Self::ToolPending(_) => "tool.pending",
            Self::DelegateStarted(_) => "delegate.started",
            Self::DelegateCompleted(_) => "delegate.completed",
            Self::Handoff { .. } => "handoff",
            Self::ToolProgress(_) => "tool.progress",
            Self::QuestionAsked(_) => "question.asked",
            Self::QuestionResolved(_) => "question.resolved",
            Self::ToolResult { .. } => "tool.result",
            Self::HookRan(_) => "hook.ran",
            Self::StepCompleted { .. } => "step.completed",
            Self::RunCompleted(_) => "run.completed",
            Self::RunIncomplete(_) => "run.incomplete",
            Self::RunRequiresAction(_) => "run.requires_action",
            Self::RunCancelled(_) => "run.cancelled",
            Self::RunFailed(_) => "run.failed",
        }
    }
}
