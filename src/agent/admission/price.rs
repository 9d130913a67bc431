//! What the cost of a run cannot be counted by: models without a known price, and what upstreams charge beside tokens.

use std::sync::Arc;

use crate::agent::catalog::Called;
use crate::agent::error::{Field, StartError};
use crate::agent::quotas::Quotas;
use crate::llm::pricing::Terms;
use crate::types::price::{PriceOrigin, StepModel};
use crate::types::run::RunOptions;
use crate::types::session::Session;
use crate::types::{BudgetOwner, Price, RunSpec};

/// The tiers of upstreams that cost no more than the price of the tokens.
const ORDINARY_TIERS: &[&str] = &["auto", "default", "flex", "on_demand", "standard", "standard_only"];
/// What upstreams charge for beside tokens.
const UNCOUNTED: &str = "web_search_options";

/// What a run is counted with.
pub(super) struct Counted {
    /// The options of its request, without a tier whose price is not known.
    pub(super) options: RunOptions,
    /// What its tokens cost in the tier that it asks for.
    pub(super) price: Price,
    /// What the caller should know of what is not counted.
    pub(super) warnings: Vec<String>,
}

/// The options of a request, and the price of the tier that it asks for. A dearer tier whose price is not known is left out,
/// unless the upstream's terms allow it.
pub(super) fn counted(asked: &RunOptions, called: &Called) -> Counted {
    let Called { terms, upstream, facts, .. } = called;
    let mut counted = Counted { options: asked.clone(), price: facts.price, warnings: Vec::new() };
    let costs = facts.price != Price::default();
    if let Some(tier) = dear_tier(asked) {
        if let Some(permille) = multiple(tier, called) {
            counted.price = facts.price.times(permille);
        } else if terms.allows_uncounted {
            counted.warnings.extend(costs.then(|| {
                "the cost is counted at the model's price, not at that of the service_tier that was asked for"
                    .to_owned()
            }));
        } else {
            let tier: String = tier.chars().take(50).collect();
            counted.warnings.push(format!(
                "service_tier {tier:?} was not passed on, because it may cost more than is counted; the operator can \
                 allow it for the upstream {upstream}"
            ));
            Arc::make_mut(&mut counted.options.sampling).service_tier = None;
        }
    }
    if costs && asks_for_uncounted(asked) {
        counted.warnings.push(format!("the cost lacks what the upstream charges for {UNCOUNTED}"));
    }
    counted
}

/// Counts a fallback at the price of the tier that it is asked in. Returns whether that is known, or allowed not to be.
pub(super) fn count_fallback(asked: &RunOptions, fallback: &mut Called) -> bool {
    let Some(tier) = dear_tier(asked) else { return true };
    let Some(permille) = multiple(tier, fallback) else { return fallback.terms.allows_uncounted };
    fallback.facts.price = fallback.facts.price.times(permille);
    true
}

/// The tier that is asked for, if it may cost more than the ordinary one.
fn dear_tier(asked: &RunOptions) -> Option<&str> {
    asked.sampling.service_tier.as_deref().filter(|tier| !ORDINARY_TIERS.contains(tier))
}

/// What a tier costs, in thousandths of the ordinary price, if that is known. Never less than the ordinary price, which
/// upstreams charge that do not have the tier.
fn multiple(tier: &str, called: &Called) -> Option<u32> {
    let known = called.tiers.iter().flat_map(|tiers| tiers.iter()).find(|known| *known.name == *tier)?;
    Some(known.permille.max(1000))
}

/// Refuses a run under a cost budget whose cost cannot be counted if it calls this model: the budget would not hold.
pub(super) fn check(
    spec: &RunSpec,
    called: &StepModel,
    terms: &Terms,
    session: Option<&Session>,
    quotas: &Quotas,
) -> Result<(), StartError> {
    let Some(owner) = cost_budget(spec, session, quotas) else { return Ok(()) };
    let StepModel { upstream, model, price_origin, .. } = called;
    if *price_origin == PriceOrigin::Guessed {
        return Err(StartError::PriceUnknown(format!(
            "the {owner} has a cost budget, and no price is known for the model {model}; the operator can declare one \
             under [models.\"{upstream}/{model}\".price]"
        )));
    }
    if asks_for_uncounted(&spec.options) && !terms.allows_uncounted {
        let message = format!(
            "the {owner} has a cost budget, which cannot count what the upstream charges for {UNCOUNTED}; leave it out, or \
             ask the operator to allow it for the upstream {upstream}"
        );
        return Err(StartError::Invalid { field: Field::Member(UNCOUNTED), message });
    }
    Ok(())
}

/// Whether the request asks for what is charged beside tokens.
fn asks_for_uncounted(options: &RunOptions) -> bool {
    options.sampling.extra.has(UNCOUNTED)
}

/// Whose cost budget the run takes from, if there is one.
fn cost_budget(spec: &RunSpec, session: Option<&Session>, quotas: &Quotas) -> Option<BudgetOwner> {
    let quota = spec.key_name.as_ref().and_then(|name| quotas.of(name));
    let budgets = [
        (BudgetOwner::Run, spec.limits.cost_budget.is_some()),
        (BudgetOwner::Session, session.is_some_and(|session| session.cost_budget.is_some())),
        (BudgetOwner::Tree, spec.tree.as_ref().is_some_and(|tree| tree.has_cost_budget())),
        (BudgetOwner::Key, quota.is_some_and(|quota| quota.cost_budget.is_some())),
    ];
    budgets.into_iter().find_map(|(owner, has_one)| has_one.then_some(owner))
}
