//! With which event a reader has seen all that there is for now.

use crate::types::{Event, RunStatus};

/// Whether nothing follows this event: the run ended, or waits for its client.
pub(super) fn ends(event: &Event) -> bool {
    match event {
        Event::RunFinished(outcome) if outcome.status() == RunStatus::RequiresAction => !outcome.stays_open,
        Event::RunFinished(outcome) => outcome.status().is_final(),
        Event::RunQueued
        | Event::RunStarted
        | Event::RunResumed { .. }
        | Event::StepStarted { .. }
        | Event::ThinkingDelta { .. }
        | Event::TextDelta { .. }
        | Event::RefusalDelta { .. }
        | Event::ToolArgumentsDelta { .. }
        | Event::ProviderRetry { .. }
        | Event::ProviderFallback(_)
        | Event::HedgeStarted(_)
        | Event::HedgeEnded(_)
        | Event::TurnFinished { .. }
        | Event::StepDiscarded { .. }
        | Event::Guarded(_)
        | Event::Context(_)
        | Event::BudgetWarning { .. }
        | Event::CallAllowed { .. }
        | Event::ApprovalRequired(_)
        | Event::ApprovalResolved(_)
        | Event::LoopGuardTriggered(_)
        | Event::PlanCreated { .. }
        | Event::ReflectionStarted { .. }
        | Event::ToolStarted { .. }
        | Event::ToolPending(_)
        | Event::Delegated(_)
        | Event::Handoff(_)
        | Event::QuestionAsked(_)
        | Event::QuestionResolved(_)
        | Event::ToolProgress { .. }
        | Event::ToolAnswered { .. }
        | Event::HookRan(_)
        | Event::StartHooked
        | Event::ToolFinished { .. }
        | Event::StepCompleted { .. }
        | Event::StopRequested { .. }
        | Event::StopAfterStep
        | Event::CommandsApplied { .. }
        | Event::HandedOff => false,
    }
}
