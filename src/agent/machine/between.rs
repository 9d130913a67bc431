//! What ends a run, or joins its conversation, between two of its steps.

use super::{Phase, Run, Stop, UNANSWERED};
use crate::types::{Message, StopReason};

impl Run {
    /// Whether it will stop once the present step is done.
    #[must_use]
    pub fn stops_after_step(&self) -> bool {
        self.stops_after_step
    }

    /// How many commands of its inbox it has applied.
    #[must_use]
    pub fn commands_applied(&self) -> u64 {
        self.commands_applied
    }

    /// Whether the replica that drove it last left it by order, so that the next one takes nothing for lost.
    #[must_use]
    pub fn was_handed_off(&self) -> bool {
        self.handed_off
    }

    /// Takes in what came into its inbox.
    pub(super) fn take_commands(&mut self, upto: u64, messages: &[Message]) {
        self.commands_applied = upto;
        self.steering.extend(messages.iter().cloned());
    }

    /// Takes in a reason to stop.
    pub(super) fn stop_for(&mut self, stop: Stop) {
        match &self.stop {
            // A second reason to stop leaves no room for a closing answer after the first.
            Some(first) => self.limit = self.limit.or(Some(first.reason)),
            None => self.stop = Some(Box::new(stop)),
        }
    }

    /// Stops a run that was to stop after its step, once no step is under way, and where the step could not go on without
    /// an approval or the answer of a service. One whose model has answered ends as it would have ended.
    pub(super) fn stop_between_steps(&mut self) {
        if !self.stops_after_step || self.stop.is_some() {
            return;
        }
        let is_between = matches!(self.phase, Phase::Ready | Phase::HandedOver { waits: false });
        if is_between || self.needs_approvals() || self.needs_services() {
            self.stop = Some(Box::new(Stop { reason: StopReason::Cancelled, error: None, short: None }));
        }
        if is_between {
            self.close_calls(UNANSWERED);
            self.phase = Phase::Ready;
        }
    }

    /// Lets what the caller said meanwhile join the conversation where a message of its own may stand:
    /// before the next model call, which there is one more of if the run was about to end.
    pub(super) fn steer(&mut self) {
        let may_go_on = self.stop.is_none() && self.limit.is_none() && !self.stops_after_step;
        let answered = self.phase == Phase::Answered && may_go_on;
        if !self.steering.is_empty() && (answered || self.phase == Phase::Ready) {
            self.phase = Phase::Ready;
            // The model has something else to go by now.
            self.loop_guard = None;
            for message in std::mem::take(&mut self.steering) {
                self.push(message);
            }
        }
    }
}
