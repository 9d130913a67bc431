//! The runs that a run's calls have begun.

use super::Run;
use super::calls::{Executor, OpenCall};
use super::children::Children;
use crate::types::delegate::{CompletedChild, DELEGATE, Delegated, StartedChild};
use crate::types::taken::Taken;
use crate::types::{CallId, StopReason, Usage};

impl Run {
    /// Takes in what happened to a run that it began.
    pub(super) fn take_delegated(&mut self, delegated: &Delegated) {
        let keeps_reasons = self.spec.rules.composite.is_some();
        let children = self.from_tools.rare().children.get_or_insert_default();
        children.apply(delegated);
        if let Delegated::Completed(CompletedChild { call_id, reason: Some(reason), .. }) = delegated
            && keeps_reasons
        {
            children.reasons.push((call_id.clone(), *reason));
        }
    }

    fn known_children(&self) -> Option<&Children> {
        self.from_tools.rare.as_ref()?.children.as_ref()
    }

    /// The runs that it has begun, or is about to begin, and that have not ended.
    pub fn children(&self) -> impl Iterator<Item = &StartedChild> {
        self.known_children().into_iter().flat_map(|children| &children.live)
    }

    /// The run that this call has begun, or is about to begin, and that has not ended.
    #[must_use]
    pub fn child_of(&self, call: &CallId) -> Option<&StartedChild> {
        self.children().find(|child| child.call_id == *call)
    }

    /// Why the run ended that this call of a composite agent began.
    pub(super) fn reason_of(&self, call: &CallId) -> Option<StopReason> {
        let reasons = &self.known_children()?.reasons;
        reasons.iter().find_map(|(of, reason)| (of == call).then_some(*reason))
    }

    /// The tokens that its responses show, where these are not all that it took itself: those of its last request, or of all runs
    /// below it where all that it does is done there.
    pub(super) fn shown_usage(&self) -> Option<Usage> {
        match (&self.spec.rules.composite, self.known_children()) {
            (Some(_), Some(children)) => Some(children.ended.usage),
            _ => (self.leg > 0).then_some(self.leg_usage),
        }
    }

    /// What the runs took that it has begun, and all runs below them; `None` if it began none.
    pub(super) fn delegated(&self) -> Option<Box<Taken>> {
        let ended = self.known_children()?.ended;
        Some(Box::new(ended))
    }

    /// How many calls of the present step are the server's to answer, and are not cut.
    #[must_use]
    pub fn calls_of_step(&self) -> u32 {
        let made = self.calls.iter().filter(|open| !open.executor.is_outside() && !open.is_cut).count();
        u32::try_from(made).unwrap_or(u32::MAX)
    }

    /// Whether a call is to begin a run, and as many are under way as may be at once.
    pub(super) fn must_wait(&self, open: &OpenCall) -> bool {
        let begins = open.executor == Executor::Run && open.call.name == DELEGATE;
        if !begins || open.started().is_some() || open.decided_answer().is_some() {
            return false;
        }
        let under_way =
            self.calls.iter().filter(|open| open.is_open() && self.child_of(&open.call.id).is_some()).count();
        let most = if self.spec.options.parallel_tool_calls { self.spec.rules.delegation.max_concurrent } else { 1 };
        under_way >= most.max(1) as usize
    }
}
