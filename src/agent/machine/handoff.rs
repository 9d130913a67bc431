//! How a run comes to go on as another agent, as its records tell. Pure.
//!
//! A handoff is recorded with what the run is to be, while the other calls of the turn are still answered by what it is. Once they are
//! answered, and before the model is called, the run becomes what was recorded.

use std::sync::Arc;

use super::fitted::ContextEstimate;
use super::handed::Handoffs;
use super::{Phase, Run};
use crate::types::fallback::FallbackUsage;
use crate::types::price::StepModel;
use crate::types::succession::Handoff;
use crate::types::{Limits, RunSpec};

impl Run {
    /// The handoff that takes effect once the calls of the step are answered.
    #[must_use]
    pub fn pending_handoff(&self) -> Option<&Handoff> {
        self.handoffs()?.pending.as_deref()
    }

    /// What it was when it began. Its records follow from that.
    #[must_use]
    pub fn first_spec(&self) -> &Arc<RunSpec> {
        self.handoffs().and_then(|handoffs| handoffs.first.as_ref()).unwrap_or(&self.spec)
    }

    /// Its bounds once it goes on as an agent with these. What it began with is never widened, and what the agent allows its runs
    /// counts from here on.
    #[must_use]
    pub fn limits_under(&self, agents: &Limits) -> Limits {
        let (own, used) = (&self.spec.limits, self.used);
        let least = |own: Option<u64>, next: Option<u64>| own.into_iter().chain(next).min();
        let cost = agents.cost_budget.map(|budget| budget + used.cost);
        let calls = agents.max_tool_calls.map(|most| most.saturating_add(self.calls_made));
        Limits {
            max_iterations: own.max_iterations.min(self.iterations.saturating_add(agents.max_iterations)),
            max_tool_calls: own.max_tool_calls.into_iter().chain(calls).min(),
            timeout_ms: own.timeout_ms.min(self.elapsed.ms().saturating_add(agents.timeout_ms)),
            tool_timeout_ms: own.tool_timeout_ms.min(agents.tool_timeout_ms),
            token_budget: least(own.token_budget, agents.token_budget.map(|budget| budget.saturating_add(used.tokens))),
            cost_budget: own.cost_budget.into_iter().chain(cost).min(),
        }
    }

    /// How many calls of the server's tools it has made, or is to make.
    #[must_use]
    pub fn calls_made(&self) -> u32 {
        self.calls_made
    }

    fn handoffs(&self) -> Option<&Handoffs> {
        self.from_tools.rare.as_ref()?.handoffs.as_ref()
    }

    /// The model that its next step calls, unless the log names it already.
    #[must_use]
    pub fn unnamed_model(&self) -> Option<&Arc<StepModel>> {
        let is_new = self.step == 0 || self.handoffs().is_some_and(|handoffs| handoffs.is_unnamed);
        is_new.then_some(&self.model)
    }

    /// It is handed to another agent. Of several calls in a turn the first counts.
    pub(super) fn take_handoff(&mut self, handoff: &Handoff) {
        let handoffs = self.from_tools.rare().handoffs.get_or_insert_default();
        handoffs.pending.get_or_insert_with(|| Box::new(handoff.clone()));
    }

    /// What is to be done with a run between two steps, whatever has happened.
    pub(super) fn settle_between_steps(&mut self) {
        self.stop_between_steps();
        self.steer();
        if self.from_tools.rare.is_some() && self.phase == Phase::Ready {
            self.succeed();
        }
    }

    /// Becomes what it is to be, once nothing of the step before is left to do.
    fn succeed(&mut self) {
        let handoffs = self.from_tools.rare.as_mut().and_then(|rare| rare.handoffs.as_mut());
        let Some(handoff) = handoffs.and_then(|handoffs| handoffs.pending.take()) else { return };
        self.tell_models_apart(&handoff.spec);
        let next = Arc::new(self.spec.succeeded_by(&handoff.spec));
        let before = std::mem::replace(&mut self.spec, next);
        let handoffs = self.from_tools.rare().handoffs.get_or_insert_default();
        handoffs.first.get_or_insert(before);
        handoffs.is_unnamed = true;
        self.model = Arc::new(self.spec.step_model());
        (self.place, self.left, self.failures, self.unanswered) = (0, 0, 0, 0);
        self.warnings.extend(self.spec.warnings.iter().cloned());
        self.warned.clear();
        // What was found are tools of the agent before, and repetition is of one agent.
        self.from_tools.found.clear();
        self.loop_guard = None;
        let counted = self.context.tokens().saturating_add_signed(handoff.heavier);
        self.context = ContextEstimate { counted, bytes_since: 0 };
        self.fitting.begin_anew(handoff.shown_from);
    }

    /// What it took of its own model is told as that of another model from here on, and what it took of the next one as that of its own.
    fn tell_models_apart(&mut self, next: &RunSpec) {
        let (own, next) = (self.spec.step_model(), next.step_model().full_name());
        if own.full_name() == next {
            return;
        }
        let mut of_own = FallbackUsage { model: own.full_name(), usage: self.usage, cost: self.used.cost };
        for known in &self.of_fallbacks {
            of_own.usage = of_own.usage.without(&known.usage);
            of_own.cost = of_own.cost.saturating_sub(known.cost);
        }
        self.of_fallbacks.retain(|known| known.model != next);
        if of_own.usage.total() > 0 {
            self.count_of_fallback(&own, of_own.usage, of_own.cost);
        }
    }
}
