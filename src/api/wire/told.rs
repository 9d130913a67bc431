//! What of a run is told by APIs that know texts, calls and an end, and nothing else of a loop.

use crate::types::event::{DiscardReason, Reservation};
use crate::types::{CallId, Event, Outcome, ToolCall, ToolOutcome};

/// What a record tells.
#[derive(Debug)]
pub enum Told<'a> {
    /// A model call begins, with what is set aside for it.
    Step(u32, &'a Reservation),
    /// A piece of what the model thinks.
    Thinking(u32, &'a str),
    /// A piece of what it says.
    Text(u32, &'a str),
    /// A piece of why it declines.
    Refusal(u32, &'a str),
    /// What was said in a step is void.
    Void(u32, DiscardReason),
    /// A tool of the server is called.
    Call(&'a ToolCall),
    /// Its answer.
    Answer(&'a CallId, &'a ToolOutcome),
    /// The end, or that the run waits for its client.
    End(&'a Outcome),
}

impl<'a> Told<'a> {
    /// What an event tells; `None` for what such clients need not know.
    pub fn of(event: &'a Event) -> Option<Self> {
        Some(match event {
            Event::StepStarted { step, reserved, .. } => Self::Step(*step, reserved),
            Event::ThinkingDelta { step, text } => Self::Thinking(*step, text),
            Event::TextDelta { step, text } => Self::Text(*step, text),
            Event::RefusalDelta { step, text } => Self::Refusal(*step, text),
            Event::StepDiscarded { step, reason, .. } => Self::Void(*step, *reason),
            Event::ToolStarted { call, .. } => Self::Call(call),
            Event::ToolFinished { call_id, outcome, .. } => Self::Answer(call_id, outcome),
            Event::RunFinished(outcome) if !outcome.stays_open => Self::End(outcome),
            Event::RunFinished(_)
            | Event::RunQueued
            | Event::RunStarted
            | Event::RunResumed { .. }
            | Event::ToolArgumentsDelta { .. }
            | Event::ProviderRetry { .. }
            | Event::ProviderFallback(_)
            | Event::HedgeStarted(_)
            | Event::HedgeEnded(_)
            | Event::TurnFinished { .. }
            | Event::Guarded(_)
            | Event::Context(_)
            | Event::Delegated(_)
            | Event::Handoff(_)
            | Event::BudgetWarning { .. }
            | Event::CallAllowed { .. }
            | Event::ApprovalRequired(_)
            | Event::ApprovalResolved(_)
            | Event::LoopGuardTriggered(_)
            | Event::PlanCreated { .. }
            | Event::ReflectionStarted { .. }
            | Event::ToolPending(_)
            | Event::ToolProgress { .. }
            | Event::QuestionAsked(_)
            | Event::QuestionResolved(_)
            | Event::ToolAnswered { .. }
            | Event::HookRan(_)
            | Event::StartHooked
            | Event::StepCompleted { .. }
            | Event::StopRequested { .. }
            | Event::StopAfterStep
            | Event::CommandsApplied { .. }
            | Event::HandedOff => return None,
        })
    }
}
