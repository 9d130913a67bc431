//! Which model a run goes on with when its own fails or cannot take its conversation. Pure.
//!
//! A run stays with the model that it fell back to. When that one fails as well, those are asked that follow it in the
//! run's order, then those before it. Each is left once at most until a model answers.

use std::sync::Arc;

use super::Run;
use super::budget::{self, Purpose};
use crate::types::event::Reservation;
use crate::types::fallback::{CallTerms, FallbackUsage};
use crate::types::price::StepModel;
use crate::types::run::OnLimit;
use crate::types::shortfall::BudgetKind;
use crate::types::{BudgetOwner, Micros, Shortfall, StopReason, Usage, Used};

/// What another model must be fit for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// Nothing beyond what every call needs.
    Answer,
    /// A larger context window than that of the present model.
    Window,
    /// A call that fits a budget which has no room for one of the present model.
    Room(Shortfall),
}

/// Why a model is not asked: a clause that follows its name.
pub type Unasked = String;

/// What comes of looking for another model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NextModel {
    /// The model; `None` if there is none.
    pub model: Option<Arc<StepModel>>,
    /// Those before it that are not asked, each with the reason.
    pub skipped: Vec<String>,
}

impl Run {
    /// What the plan of the next call depends on of the model that is called.
    #[must_use]
    pub fn terms(&self) -> CallTerms {
        let terms = match self.place.checked_sub(1).and_then(|at| self.spec.fallbacks.get(at)) {
            Some(fallback) => fallback.terms(),
            // What was called is what a step named, which need not be a model of the run's specification.
            None => CallTerms { price: self.model.price, ..self.spec.terms() },
        };
        match self.learned_window(&self.model) {
            Some(window) => CallTerms { context_window: terms.context_window.min(window), ..terms },
            None => terms,
        }
    }

    /// Whether there is a model that takes more than the present one, and the conversation as it is.
    pub(super) fn has_larger_model(&self) -> bool {
        self.has_fallback() && self.next_model(Lack::Window, |_| None).model.is_some()
    }

    /// Whether a model is left that it could go on with.
    #[must_use]
    pub fn has_fallback(&self) -> bool {
        self.others().next().is_some()
    }

    /// How many models it has left since one answered.
    #[must_use]
    pub fn models_left(&self) -> u32 {
        self.left.count_ones()
    }

    /// How many calls of its present model failed in a row, beside those that cost nothing.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// The model that it is to go on with in place of the present one. `refusal` says why a model is not asked for now.
    #[must_use]
    pub fn next_model(&self, lack: Lack, refusal: impl Fn(&StepModel) -> Option<Unasked>) -> NextModel {
        self.next_model_after(Usage::default(), lack, refusal)
    }

    /// The same once so much is charged for a call of the present model.
    #[must_use]
    pub fn next_model_after(
        &self,
        taken: Usage,
        lack: Lack,
        refusal: impl Fn(&StepModel) -> Option<Unasked>,
    ) -> NextModel {
        // As the next step is planned.
        let keeps = self.spec.on_limit == OnLimit::Synthesize;
        let mut used = if keeps { self.used_of_budgets() } else { self.used };
        used += self.model.price.used(&taken);
        let mut skipped = Vec::new();
        for place in self.others() {
            let (model, terms) = self.at(place);
            let refused = self.misfit(used, lack, &terms).or_else(|| refusal(&model));
            let Some(reason) = refused else { return NextModel { model: Some(model), skipped } };
            skipped.push(format!("{}/{}: {reason}", model.upstream, model.model));
        }
        NextModel { model: None, skipped }
    }

    /// Calls this model from now on.
    pub(super) fn fall_back(&mut self, to: &Arc<StepModel>) {
        self.left |= 1 << self.place;
        self.place = self.place_of(to);
        self.model = to.clone();
        (self.failures, self.unanswered) = (0, 0);
    }

    /// Counts what it took of a model that is not its own.
    pub(super) fn count_of_fallback(&mut self, model: &StepModel, usage: Usage, cost: Micros) {
        let model = model.full_name();
        if let Some(known) = self.of_fallbacks.iter_mut().find(|known| known.model == model) {
            known.usage += usage;
            known.cost += cost;
        } else {
            self.of_fallbacks.push(FallbackUsage { model, usage, cost });
        }
    }

    /// The places of the models that it has not left, from the one after the present model on.
    fn others(&self) -> impl Iterator<Item = usize> {
        let (count, place, left) = (self.spec.fallbacks.len() + 1, self.place, self.left);
        (1..count).map(move |step| (place + step) % count).filter(move |at| left & (1 << at) == 0)
    }

    /// The place of this model among those that it may call; 0 is its own.
    pub(super) fn place_of(&self, model: &StepModel) -> usize {
        let is_it = |other: &StepModel| other.upstream == model.upstream && other.model == model.model;
        self.spec.fallbacks.iter().position(|fallback| is_it(&fallback.model)).map_or(0, |at| at + 1)
    }

    pub(super) fn at(&self, place: usize) -> (Arc<StepModel>, CallTerms) {
        match place.checked_sub(1).and_then(|at| self.spec.fallbacks.get(at)) {
            Some(fallback) => (fallback.model.clone(), fallback.terms()),
            None => (Arc::new(self.spec.step_model()), self.spec.terms()),
        }
    }

    /// Why a model on these terms cannot take the next call.
    fn misfit(&self, used: Used, lack: Lack, terms: &CallTerms) -> Option<Unasked> {
        let tokens = self.context.tokens();
        if tokens > terms.context_window {
            return Some(format!("the conversation has about {tokens} tokens, and it takes {}", terms.context_window));
        }
        if lack == Lack::Window && terms.context_window <= self.terms().context_window {
            return Some("its context window is no larger".to_owned());
        }
        let keep_reserve = self.spec.on_limit == OnLimit::Synthesize && self.limit.is_none() && self.iterations > 0;
        let no_room = |owner, kind| {
            let kind = if kind == BudgetKind::Cost { "cost" } else { "token" };
            Some(format!("the {owner}'s {kind} budget has no room for it"))
        };
        match (budget::plan(&self.spec.limits, terms, used, self.next_input(), Purpose::Step { keep_reserve }), lack) {
            (Err(StopReason::CostBudget), _) => no_room(BudgetOwner::Run, BudgetKind::Cost),
            (Err(_), _) => no_room(BudgetOwner::Run, BudgetKind::Tokens),
            (Ok(planned), Lack::Room(short)) if !has_room(budget::least(terms, planned), &short) => {
                no_room(short.owner, short.kind)
            }
            (Ok(_), _) => None,
        }
    }
}

/// Whether a budget that is short has room for so much.
fn has_room(least: Reservation, short: &Shortfall) -> bool {
    match short.kind {
        BudgetKind::Tokens => least.input_tokens.saturating_add(least.output_tokens) <= short.left(),
        BudgetKind::Cost => least.cost.0 <= short.left(),
    }
}
