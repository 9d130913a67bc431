//! Plans how much a model call may use: pure arithmetic over limits, prices and usage.
//!
//! A call is planned with its estimated input and a margin, and with as much output as the request wants and the
//! budgets leave. The output limit is sent to the upstream. So a budget can be exceeded only by the error of the
//! input estimate.

use crate::types::event::Reservation;
use crate::types::fallback::CallTerms;
use crate::types::shortfall::BudgetKind;
use crate::types::{Limits, Micros, Price, Shortfall, StopReason, Usage, Used};

/// Below this many output tokens a call is not worth making, unless its request wants even fewer.
const OUTPUT_FLOOR: u64 = 256;
/// Beside its input, a closing answer gets at most this much.
const CLOSING_OUTPUT: u64 = 1024;
/// A budget is warned about once four fifths of it are used.
const WARN_RATIO: (u64, u64) = (4, 5);
/// Of what is left of a budget, a run keeps one of so many parts for its closing answer from the runs below it.
const KEPT_PART: u64 = 4;

/// Which call is planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// An ordinary step. With a reserve, room for a closing answer is left.
    Step {
        /// Whether to leave that room.
        keep_reserve: bool,
    },
    /// The closing answer after a limit.
    Closing,
}

/// Plans a call whose input is estimated at `context_tokens`, or says which budget forbids it.
pub fn plan(
    limits: &Limits,
    terms: &CallTerms,
    used: Used,
    context_tokens: u64,
    purpose: Purpose,
) -> Result<Reservation, StopReason> {
    let input = with_margin(context_tokens);
    let wanted = match purpose {
        Purpose::Step { .. } => terms.max_output_tokens,
        Purpose::Closing => terms.max_output_tokens.min(CLOSING_OUTPUT),
    };
    // An input that was estimated too high leaves room all the same.
    let wanted = wanted.min(terms.context_window.saturating_sub(input).max(OUTPUT_FLOOR));
    let floor = wanted.min(OUTPUT_FLOOR);
    let held_back = match purpose {
        Purpose::Step { keep_reserve: true } => input.saturating_add(CLOSING_OUTPUT),
        Purpose::Step { keep_reserve: false } | Purpose::Closing => 0,
    };
    let mut output = wanted;
    if let Some(budget) = limits.token_budget {
        let left = budget.saturating_sub(used.tokens).saturating_sub(held_back);
        output = output.min(left.saturating_sub(input));
        if output < floor {
            return Err(StopReason::TokenBudget);
        }
    }
    if let Some(budget) = limits.cost_budget {
        let reserve = cost(&terms.price, held_back.saturating_sub(CLOSING_OUTPUT), held_back.min(CLOSING_OUTPUT));
        let left = budget.saturating_sub(used.cost).saturating_sub(reserve);
        output = output.min(terms.price.affordable_output(left, input).unwrap_or(u64::MAX));
        if output < floor {
            return Err(StopReason::CostBudget);
        }
    }
    Ok(Reservation { input_tokens: input, output_tokens: output, cost: cost(&terms.price, input, output) })
}

/// Plans a call beside one that is under way, for which `first` is reserved, with as much output as that one; `None` if the
/// budgets have no room for both.
pub fn plan_beside(
    limits: &Limits,
    terms: &CallTerms,
    (used, first): (Used, Reservation),
    context_tokens: u64,
    purpose: Purpose,
) -> Option<Reservation> {
    let unbounded = Limits { token_budget: None, cost_budget: None, ..*limits };
    let wanted = plan(&unbounded, terms, used, context_tokens, purpose).ok()?;
    let output = wanted.output_tokens.min(first.output_tokens);
    let planned = plan(limits, terms, used + first.whole(), context_tokens, purpose).ok()?;
    (planned.output_tokens >= output).then(|| with_output(&terms.price, planned, output))
}

/// What a run keeps of its budgets for its closing answer while runs below it take from them: what that call takes at most, and no
/// more than a quarter of what is left.
pub fn kept_for_closing(limits: &Limits, terms: &CallTerms, used: Used, context_tokens: u64) -> Used {
    let unbounded = Limits { token_budget: None, cost_budget: None, ..*limits };
    let Ok(closing) = plan(&unbounded, terms, used, context_tokens, Purpose::Closing) else { return Used::default() };
    let part = |budget: Option<u64>, used: u64, closing: u64| {
        budget.map_or(0, |budget| closing.min(budget.saturating_sub(used) / KEPT_PART))
    };
    Used {
        tokens: part(limits.token_budget, used.tokens, closing.tokens()),
        cost: Micros(part(limits.cost_budget.map(|money| money.0), used.cost.0, closing.cost.0)),
    }
}

/// The least that is worth asking for in place of a planned call.
pub fn least(terms: &CallTerms, planned: Reservation) -> Reservation {
    with_output(&terms.price, planned, floor(terms).min(planned.output_tokens))
}

/// The same call with less output, so that it fits what a budget has left; `None` if that is below what is worth
/// asking for. While calls of other runs are under way, it takes half of what is left, so that those find room too.
pub fn shrink(terms: &CallTerms, planned: Reservation, short: &Shortfall) -> Option<Reservation> {
    let price = &terms.price;
    let room = match short.kind {
        BudgetKind::Tokens => short.left().saturating_sub(planned.input_tokens),
        BudgetKind::Cost => price.affordable_output(Micros(short.left()), planned.input_tokens).unwrap_or(u64::MAX),
    };
    let (floor, most) = (floor(terms), planned.output_tokens.min(room));
    let output = if short.set_aside > 0 { (most / 2).max(floor) } else { most };
    (most >= floor).then(|| with_output(price, planned, output))
}

/// The least that the first call of a run takes.
pub fn least_of(terms: &CallTerms, context_tokens: u64) -> Reservation {
    let input_tokens = with_margin(context_tokens);
    with_output(&terms.price, Reservation { input_tokens, ..Reservation::default() }, floor(terms))
}

/// What is kept for a closing answer while such a step is planned.
pub fn closing_of(terms: &CallTerms, context_tokens: u64) -> Reservation {
    let input_tokens = with_margin(context_tokens);
    with_output(&terms.price, Reservation { input_tokens, ..Reservation::default() }, CLOSING_OUTPUT)
}

/// Input by estimate, with what the estimate may lack.
fn with_margin(context_tokens: u64) -> u64 {
    context_tokens.saturating_add(context_tokens / 10)
}

fn with_output(price: &Price, planned: Reservation, output_tokens: u64) -> Reservation {
    Reservation { output_tokens, cost: cost(price, planned.input_tokens, output_tokens), ..planned }
}

/// The fewest output tokens that are worth asking for.
fn floor(terms: &CallTerms) -> u64 {
    terms.max_output_tokens.min(OUTPUT_FLOOR)
}

/// The budgets that passed their warning mark and were not warned about.
pub fn due_warning(limits: &Limits, used: Used, warned: &[BudgetKind]) -> Option<(BudgetKind, u64, u64)> {
    let budgets = [
        (BudgetKind::Tokens, used.tokens, limits.token_budget),
        (BudgetKind::Cost, used.cost.0, limits.cost_budget.map(|money| money.0)),
    ];
    budgets.into_iter().find_map(|(kind, used, limit)| {
        let limit = limit?;
        (is_mostly_used(used, limit) && !warned.contains(&kind)).then_some((kind, used, limit))
    })
}

/// Whether so much of a budget is used that a warning is due.
pub fn is_mostly_used(used: u64, limit: u64) -> bool {
    used > 0 && u128::from(used) * u128::from(WARN_RATIO.1) >= u128::from(limit) * u128::from(WARN_RATIO.0)
}

fn cost(price: &Price, input: u64, output: u64) -> Micros {
    price.at_most().cost(&Usage { prompt_tokens: input, completion_tokens: output, ..Usage::default() })
}

/// The tokens of `text`, by four bytes a token.
pub fn estimate(text_bytes: usize) -> u64 {
    (text_bytes as u64).div_ceil(4)
}

/// What a call whose answer has so many bytes can have taken of this: `None` if it is more than `most` tokens, or if its
/// input or an answer that was given is nothing, as servers report that do not count. What was cached is at most the input,
/// and reasoning at most the output.
pub fn believable(usage: &Usage, most: u64, output_bytes: usize) -> Option<Usage> {
    let (input, output) = (usage.prompt_tokens, usage.completion_tokens);
    let can_be = usage.total() <= most && input > 0 && (output > 0 || output_bytes == 0);
    can_be.then(|| Usage {
        cached_tokens: usage.cached_tokens.min(input),
        cache_write_tokens: usage.cache_write_tokens.min(input.saturating_sub(usage.cached_tokens)),
        reasoning_tokens: usage.reasoning_tokens.min(output),
        ..*usage
    })
}

/// What a call took by estimate: its planned input and an output of so many bytes.
pub fn estimated_usage(reserve: Reservation, output_bytes: usize) -> Usage {
    Usage {
        prompt_tokens: reserve.input_tokens,
        completion_tokens: estimate(output_bytes).min(reserve.output_tokens),
        estimated: true,
        ..Usage::default()
    }
}

/// The charge of a call that was cut off after so many bytes of its answer. Its usage is unknown, so the charge is all
/// that was reserved for it, or what arrived if that is more.
pub fn whole_usage(reserve: Reservation, bound: Option<u64>, output_bytes: usize) -> Usage {
    let arrived = arrived_usage(reserve, bound, output_bytes);
    Usage { completion_tokens: arrived.completion_tokens.max(reserve.output_tokens), ..arrived }
}

/// What arrived of an answer, by estimate. An upstream that is told no bound on its output is not bound by what was
/// reserved for it either.
pub fn arrived_usage(reserve: Reservation, bound: Option<u64>, output_bytes: usize) -> Usage {
    estimated_usage(Reservation { output_tokens: bound.unwrap_or(u64::MAX), ..reserve }, output_bytes)
}

/// The same for a run that may ask again: the run is charged for what arrived, and the rest of the reservation is
/// returned beside that.
pub fn partial_usage(reserve: Reservation, bound: Option<u64>, price: &Price, output_bytes: usize) -> (Usage, Used) {
    let usage = arrived_usage(reserve, bound, output_bytes);
    (usage, reserve.whole().saturating_sub(price.used(&usage)))
}

/// An amount as a counter takes it.
pub fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::machine::tests::spec;
    use crate::types::BudgetOwner;

    const STEP: Purpose = Purpose::Step { keep_reserve: false };

    #[test]
    fn what_arrived_is_charged_unless_the_upstream_was_told_a_bound() {
        let reserve = Reservation { input_tokens: 10, output_tokens: 50, ..Reservation::default() };
        for (bound, arrived) in [(None, 1_000), (Some(50), 50)] {
            let (usage, unconfirmed) = partial_usage(reserve, bound, &Price::default(), 4_000);
            assert_eq!((usage.prompt_tokens, usage.completion_tokens, unconfirmed.tokens), (10, arrived, 0));
            assert_eq!(whole_usage(reserve, bound, 4_000).completion_tokens, arrived);
        }
        assert_eq!(whole_usage(reserve, None, 4).completion_tokens, 50, "it may have thought without showing it");
    }

    #[test]
    fn output_is_clamped_to_what_is_left() {
        let mut spec = spec();
        spec.limits.token_budget = Some(2_000);
        let plan =
            |used, context| plan(&spec.limits, &spec.terms(), Used { tokens: used, ..Used::default() }, context, STEP);
        let whole = plan(0, 100).unwrap();
        assert_eq!((whole.input_tokens, whole.output_tokens), (110, 1_890));
        assert_eq!(plan(1_500, 100).unwrap().output_tokens, 390);
        assert_eq!(plan(1_700, 100), Err(StopReason::TokenBudget), "less than the floor is left");
        assert_eq!(plan(5_000, 100), Err(StopReason::TokenBudget), "an overshot budget is simply empty");
    }

    #[test]
    fn output_is_fitted_to_the_window_that_is_left() {
        let mut spec = spec();
        spec.context_window = 4_096;
        let output = |context| plan(&spec.limits, &spec.terms(), Used::default(), context, STEP).unwrap().output_tokens;
        assert_eq!((output(100), output(3_600), output(9_000)), (3_986, OUTPUT_FLOOR, OUTPUT_FLOOR));
    }

    #[test]
    fn a_cost_budget_clamps_output_except_of_free_models() {
        let mut spec = spec();
        let price = Price::from_usd(1.0, 1.0, 10.0);
        spec.limits.cost_budget = Some(Micros(10_000));
        let planned = plan(&spec.limits, &CallTerms { price, ..spec.terms() }, Used::default(), 1_000, STEP).unwrap();
        assert_eq!(planned.output_tokens, (10_000 - 1_100) / 10);
        assert!(planned.cost <= Micros(10_000));
        let used = Used { cost: Micros(9_000), ..Used::default() };
        assert_eq!(
            plan(&spec.limits, &CallTerms { price, ..spec.terms() }, used, 1_000, STEP),
            Err(StopReason::CostBudget)
        );
        assert_eq!(plan(&spec.limits, &spec.terms(), used, 1_000, STEP).unwrap().output_tokens, spec.max_output_tokens);
    }

    #[test]
    fn a_reserve_leaves_room_for_a_closing_answer() {
        let mut spec = spec();
        spec.limits.token_budget = Some(4_000);
        let planned =
            plan(&spec.limits, &spec.terms(), Used::default(), 100, Purpose::Step { keep_reserve: true }).unwrap();
        let used = Used { tokens: planned.tokens(), ..Used::default() };
        assert!(plan(&spec.limits, &spec.terms(), used, 100, Purpose::Closing).is_ok());
        assert!(plan(&spec.limits, &spec.terms(), used, 100, STEP).is_ok_and(|p| p.output_tokens <= 1_024));
    }

    #[test]
    fn what_is_kept_from_runs_below_is_a_closing_answer_and_a_quarter_of_what_is_left_at_most() {
        let mut spec = spec();
        let kept = |limits: &Limits, used| {
            kept_for_closing(limits, &spec.terms(), Used { tokens: used, cost: Micros(used) }, 1_000)
        };
        assert_eq!(kept(&spec.limits, 0), Used::default(), "nothing bounds those");
        let limits = Limits { token_budget: Some(100_000), ..spec.limits };
        assert_eq!(kept(&limits, 0).tokens, 1_100 + CLOSING_OUTPUT);
        assert_eq!((kept(&limits, 96_000).tokens, kept(&limits, 200_000).tokens), (1_000, 0));
        spec.price = Price::from_usd(1.0, 1.0, 10.0);
        let limits = Limits { cost_budget: Some(Micros(4_000)), ..spec.limits };
        assert_eq!(kept_for_closing(&limits, &spec.terms(), Used::default(), 1_000).cost, Micros(1_000));
    }

    #[test]
    fn a_call_that_does_not_fit_takes_what_is_left_or_half_of_it_where_others_are_under_way() {
        let price = Price::from_usd(1.0, 1.0, 10.0);
        let terms = CallTerms { price, ..spec().terms() };
        let planned = with_output(&price, Reservation { input_tokens: 100, ..Reservation::default() }, 8_192);
        let short = |kind, taken, set_aside| Shortfall {
            owner: BudgetOwner::Key,
            kind,
            limit: 10_000,
            taken,
            set_aside,
            needed: 356,
            renews_in_s: None,
        };
        let output = |short: Shortfall| shrink(&terms, planned, &short).map(|smaller| smaller.output_tokens);
        assert_eq!(output(short(BudgetKind::Tokens, 8_300, 0)), Some(1_600));
        assert_eq!(output(short(BudgetKind::Tokens, 8_300, 1)), Some(800));
        assert_eq!(output(short(BudgetKind::Tokens, 9_600, 1)), Some(256), "half would not be worth asking for");
        assert_eq!(output(short(BudgetKind::Tokens, 9_700, 0)), None);
        assert_eq!(output(short(BudgetKind::Cost, 1_900, 1)), Some(400));
        assert_eq!(least(&terms, planned).tokens(), 356);
    }

    #[test]
    fn an_answer_is_not_believed_to_have_taken_nothing() {
        let usage = |prompt_tokens, completion_tokens| Usage { prompt_tokens, completion_tokens, ..Usage::default() };
        let can_be = |usage: &Usage, output_bytes| believable(usage, 15, output_bytes).is_some();
        assert!(can_be(&usage(10, 5), 20) && can_be(&usage(10, 0), 0));
        assert!(!can_be(&usage(10, 6), 20), "more than the model takes");
        assert!(!can_be(&usage(10, 0), 1) && !can_be(&usage(0, 5), 1));
    }

    #[test]
    fn each_budget_is_warned_about_once_at_four_fifths() {
        let mut limits = spec().limits;
        limits.token_budget = Some(100);
        let used = |tokens| Used { tokens, ..Used::default() };
        assert_eq!(due_warning(&limits, used(79), &[]), None);
        assert_eq!(due_warning(&limits, used(80), &[]), Some((BudgetKind::Tokens, 80, 100)));
        assert_eq!(due_warning(&limits, used(99), &[BudgetKind::Tokens]), None);
        limits.token_budget = Some(1);
        assert_eq!(due_warning(&limits, used(0), &[]), None, "nothing is used of a budget of one");
    }
}
