//! The runs that a run's calls have begun.

use super::calls::{Executor, OpenCall};
use super::children::Children;
use super::{Run, budget};
use crate::types::delegate::{CompletedChild, DELEGATE, Delegated, StartedChild};
use crate::types::run::OnLimit;
use crate::types::taken::Taken;
use crate::types::{CallId, StopReason, Usage, Used};

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

    /// What is used of its budgets, as far as it knows: by itself, and by the runs below it that have ended.
    pub(super) fn used_of_budgets(&self) -> Used {
        let below = self.known_children().map(|children| children.ended).unwrap_or_default();
        self.used + Used { tokens: below.usage.total(), cost: below.cost }
    }

    /// What of its budgets is kept from the runs that it begins now, so that there is room for its closing answer once these have
    /// taken all else.
    #[must_use]
    pub fn kept_for_closing(&self) -> Used {
        if self.spec.on_limit != OnLimit::Synthesize || self.limit.is_some() {
            return Used::default();
        }
        // Characters of up to three bytes, as those of most languages are.
        let answers = 3 * u64::from(self.calls_of_step()) * u64::from(self.spec.rules.delegation.max_output_chars);
        let tokens = self.context.tokens() + budget::estimate(usize::try_from(answers).unwrap_or(usize::MAX));
        budget::kept_for_closing(&self.spec.limits, &self.terms(), self.used_of_budgets(), tokens)
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
