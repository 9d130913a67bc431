//! What a run can come to at most: by its calls, its models' windows and prices, and its own budgets. Pure.

use crate::types::fallback::{CallTerms, Fallback};
use crate::types::run::OnLimit;
use crate::types::{Micros, RunSpec, Usage, Used};

/// What a run can come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ceiling {
    /// Most calls of its own models, those included that are made again or beside others.
    pub calls: u64,
    /// Most that all of them take.
    pub used: Used,
}

/// The most that a run can take for the calls of its steps and its closing answer. Summaries, guardrails that ask models, calls that
/// failed and were made again, also of another model, and those that a crash interrupted come on top, unless a budget bounds all
/// of it.
#[must_use]
pub fn ceiling(spec: &RunSpec) -> Ceiling {
    let closing = u64::from(spec.on_limit == OnLimit::Synthesize);
    let steps = u64::from(spec.limits.max_iterations) + u64::from(spec.options.max_discards) + closing;
    let calls = if spec.hedge_after_ms.is_some() { steps * 2 } else { steps };
    let all = spec.fallbacks.iter().map(Fallback::terms).chain([spec.terms()]);
    let dearest = all.map(|terms| whole(&terms)).fold(Used::default(), |most, call| Used {
        tokens: most.tokens.max(call.tokens),
        cost: most.cost.max(call.cost),
    });
    let used =
        Used { tokens: dearest.tokens.saturating_mul(calls), cost: Micros(dearest.cost.0.saturating_mul(calls)) };
    let tokens = spec.limits.token_budget.map_or(used.tokens, |budget| used.tokens.min(budget));
    let cost = spec.limits.cost_budget.map_or(used.cost, |budget| used.cost.min(budget));
    Ceiling { calls, used: Used { tokens, cost } }
}

/// A call that fills its model's window, and answers as much as it may.
fn whole(terms: &CallTerms) -> Used {
    let usage =
        Usage { prompt_tokens: terms.context_window, completion_tokens: terms.max_output_tokens, ..Usage::default() };
    terms.price.at_most().used(&usage)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::machine::tests::spec;
    use crate::types::Price;

    #[test]
    fn a_run_comes_to_no_more_than_its_calls_and_its_budgets() {
        let mut spec = spec();
        (spec.limits.max_iterations, spec.options.max_discards) = (3, 1);
        (spec.context_window, spec.max_output_tokens) = (10_000, 1_000);
        spec.price = Price::from_usd(1.0, 0.1, 10.0);
        let most = ceiling(&spec);
        assert_eq!((most.calls, most.used.tokens, most.used.cost), (4, 44_000, Micros(4 * 20_000)));
        spec.on_limit = OnLimit::Synthesize;
        assert_eq!(ceiling(&spec).calls, 5, "the closing answer is one more");
        spec.on_limit = OnLimit::Stop;
        spec.hedge_after_ms = Some(1);
        assert_eq!(ceiling(&spec).calls, 8);
        spec.limits.cost_budget = Some(Micros(7_000));
        spec.limits.token_budget = Some(9_000);
        assert_eq!(ceiling(&spec).used, Used { tokens: 9_000, cost: Micros(7_000) });
    }
}
