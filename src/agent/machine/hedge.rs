//! Two calls of one step: which model the second one asks, what both may take, and what the call costs that is dropped.
//!
//! A model call has no effect beside what it costs: tools run once a turn is recorded, and of two calls one turn is. So any
//! step may have two calls, as long as nothing of it was said.

use std::sync::Arc;

use super::beside::Beside;
use super::budget::{self, Purpose};
use super::{Lack, Run, Unasked};
use crate::types::event::Reservation;
use crate::types::hedge::{HedgeEnded, HedgeStarted, KeptCall};
use crate::types::price::StepModel;
use crate::types::run::OnLimit;
use crate::types::{ErrorKind, Usage, Used};

/// Where a second call may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HedgeTarget {
    /// To the present model, at another server or with another key.
    Elsewhere,
    /// To the model that the run would fall back to.
    Fallback,
}

/// A second call that may be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HedgePlan {
    /// The model that it asks.
    pub to: Arc<StepModel>,
    /// What it may take.
    pub reserved: Reservation,
}

impl Run {
    /// The second call that may be made in the present step; `None` if there is no model for it, or if the run's budgets have
    /// no room for both calls. `refusal` says why a model is not asked for now.
    #[must_use]
    pub fn plan_hedge(
        &self,
        target: HedgeTarget,
        refusal: impl Fn(&StepModel) -> Option<Unasked>,
    ) -> Option<HedgePlan> {
        let (to, terms) = match target {
            HedgeTarget::Elsewhere => (self.model.clone(), self.terms()),
            HedgeTarget::Fallback => {
                let to = self.next_model(Lack::Answer, refusal).model?;
                self.at(self.place_of(&to))
            }
        };
        let keep_reserve = self.spec.on_limit == OnLimit::Synthesize;
        let (spent, tokens) = ((self.used, self.reserved), self.next_input());
        let reserved = budget::plan_beside(&self.spec.limits, &terms, spent, tokens, Purpose::Step { keep_reserve })?;
        Some(HedgePlan { to, reserved })
    }

    /// That the step goes on with one of its two calls; `None` if it has only one. Of the call that is dropped, `charged` says by
    /// what was reserved for it and by its model what the run is charged and what it may have taken beyond that, and `failed`
    /// how it failed, if it did.
    #[must_use]
    pub fn hedge_ended(
        &self,
        kept: KeptCall,
        charged: impl FnOnce(Reservation, &StepModel) -> (Usage, Used),
        failed: Option<(ErrorKind, String)>,
    ) -> Option<HedgeEnded> {
        let asked = self.beside.asked.clone()?;
        let is_other = asked.full_name() != self.model.full_name();
        let (reserved, to, dropped) = match kept {
            KeptCall::First => (self.beside.reserved, None, asked),
            KeptCall::Second => (self.reserved, is_other.then_some(asked), self.model.clone()),
        };
        let (usage, unconfirmed) = charged(reserved, &dropped);
        Some(HedgeEnded { step: self.step, kept, to, dropped, usage, unconfirmed, failed })
    }

    /// What is set aside for the present step's other calls, whether they are under way or are over, and for a summary.
    #[must_use]
    pub fn reserved_beside(&self) -> Reservation {
        self.beside.reserved.and(self.reserved_for_judges()).and(self.fitting.reserved())
    }

    /// What the run was charged for the present step's other calls, and what these may have taken beyond it.
    #[must_use]
    pub fn used_beside(&self) -> (Used, Used) {
        let (used, unconfirmed) = self.used_by_judges();
        (self.beside.used + used, self.beside.unconfirmed + unconfirmed)
    }

    pub(super) fn begin_hedge(&mut self, started: &HedgeStarted) {
        self.beside = Beside { reserved: started.reserved, asked: Some(started.to.clone()), ..Beside::default() };
    }

    pub(super) fn end_hedge(&mut self, ended: &HedgeEnded) {
        let HedgeEnded { kept, to, dropped, usage, unconfirmed, failed, .. } = ended;
        self.unconfirmed += *unconfirmed;
        let used = self.charge(dropped, self.place_of(dropped), *usage);
        (self.beside.asked, self.beside.used, self.beside.unconfirmed) = (None, used, *unconfirmed);
        if *kept == KeptCall::Second {
            std::mem::swap(&mut self.reserved, &mut self.beside.reserved);
        }
        let Some(to) = to else { return };
        if failed.is_some() {
            self.left |= 1 << self.place;
        }
        self.place = self.place_of(to);
        self.model = to.clone();
        self.failures = 0;
    }
}
