//! What hooks said in a run, so that a run that is resumed asks none of them twice.

use super::Run;
use crate::types::hook::{HookPoint, HookRan};
use crate::types::{CallId, ToolCall, ToolOutcome};

impl Run {
    /// Whether the hooks at its start are still to be asked and told.
    pub(super) fn is_start_unhooked(&self) -> bool {
        self.step == 0 && !self.start_hooked && self.spec.hooks_at(HookPoint::RunStart, None).next().is_some()
    }

    /// What hooks said of it before its first step.
    #[must_use]
    pub fn hooks_at_start(&self) -> &[HookRan] {
        &self.hooked
    }

    /// What hooks said of this call.
    #[must_use]
    pub fn hooks_of(&self, call: &CallId) -> &[HookRan] {
        self.calls.iter().find(|open| open.call.id == *call).map_or(&[], |open| &open.hooked)
    }

    /// How often this call was made before its caller asked for it once more.
    #[must_use]
    pub fn dispatched_before(&self, call: &CallId) -> u32 {
        self.calls.iter().find(|open| open.call.id == *call).map_or(0, |open| open.dispatched_before)
    }

    /// The arguments of a call of this turn, as they are now.
    #[must_use]
    pub fn arguments(&self, call: &CallId) -> Option<&str> {
        if let Some(open) = self.calls.iter().find(|open| open.call.id == *call) {
            return Some(&open.call.arguments);
        }
        let reported = self.report.steps.last()?.tool_calls.iter().find(|report| report.call_id == *call)?;
        Some(&reported.arguments)
    }

    /// The first call whose tool has answered, and whose answer is still to be looked at.
    pub(super) fn unsettled(&self) -> Option<(ToolCall, ToolOutcome)> {
        let (open, answer) = self.calls.iter().find_map(|open| open.answer().map(|answer| (open, answer)))?;
        Some((open.call.clone(), answer.clone()))
    }

    /// Whether the answer of this call's tool is stored, and still to be looked at.
    #[must_use]
    pub fn has_answered(&self, call: &CallId) -> bool {
        self.calls.iter().any(|open| open.call.id == *call && open.answer().is_some())
    }

    /// Keeps what a hook said, and changes the call as it said.
    pub(super) fn hook_ran(&mut self, ran: &HookRan) {
        let Some(id) = &ran.call_id else {
            let mut hooked = std::mem::take(&mut self.hooked).into_vec();
            hooked.push(ran.clone());
            self.hooked = hooked.into_boxed_slice();
            return;
        };
        let Some(open) = self.calls.iter_mut().find(|open| open.call.id == *id) else { return };
        if let Some(arguments) = &ran.reply.arguments {
            open.call.arguments.clone_from(arguments);
            open.is_changed = true;
        }
        open.hooked.push(ran.clone());
    }
}
