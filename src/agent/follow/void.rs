//! Which steps of a run were discarded after they had text.
//!
//! A dialect that cannot take text back leaves out the text of such a step if its reader has seen none of it.

use std::pin::pin;

use futures_util::TryStreamExt;

use crate::agent::follow::{FollowError, Follower};
use crate::agent::ledger::log::decode;
use crate::store::pages::log_pages;
use crate::types::Event;

/// Entries read from the store at a time.
const PAGE: usize = 256;

/// A step that spoke and became void.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VoidStep {
    /// Its number in the run.
    pub step: u32,
    /// The number of the event with its first text.
    first_text: u64,
    /// The number of the event that made it void.
    discarded: u64,
}

impl VoidStep {
    /// Whether a reader that has the events up to `after` has none of the step's text, or knows that it is void.
    #[must_use]
    pub fn may_be_left_out(&self, after: u64) -> bool {
        after < self.first_text || after >= self.discarded
    }
}

impl Follower {
    /// The void steps that the run's log tells of by now.
    pub async fn void_steps(&self) -> Result<Vec<VoidStep>, FollowError> {
        let mut pages = pin!(log_pages(&*self.store, &self.partition, self.log.clone(), 0..u64::MAX, PAGE));
        let (mut spoken, mut found) = (None, Vec::new());
        while let Some(page) = pages.try_next().await? {
            for entry in &page {
                let record = decode(entry).map_err(|error| FollowError::Damaged(error.to_string()))?;
                match record.event {
                    Event::StepStarted { .. } => spoken = None,
                    Event::TextDelta { .. } | Event::RefusalDelta { .. } => spoken = spoken.or(Some(record.seq)),
                    Event::StepDiscarded { step, .. } => {
                        let void = |first_text| VoidStep { step, first_text, discarded: record.seq };
                        found.extend(spoken.take().map(void));
                    }
                    Event::RunQueued
                    | Event::RunStarted
                    | Event::RunResumed { .. }
                    | Event::ThinkingDelta { .. }
                    | Event::ToolArgumentsDelta { .. }
                    | Event::ProviderRetry { .. }
                    | Event::ProviderFallback(_)
                    | Event::HedgeStarted(_)
                    | Event::HedgeEnded(_)
                    | Event::TurnFinished { .. }
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
                    | Event::HandedOff
                    | Event::RunFinished(_) => {}
                }
            }
        }
        Ok(found)
    }
}
