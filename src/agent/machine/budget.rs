//! What a model call may take: pure arithmetic over limits, prices and what was used.
//!
//! A call is planned as its estimated input with a margin, and as much output as the request wants and
//! the budgets leave. The output limit goes upstream, so a budget can be overshot by no more than the
//! error of the input estimate.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::config::Period;
use crate::types::event::{BudgetKind, Reservation};
use crate::types::run::RunSpec;
use crate::types::{Event, Limits, Micros, Price, Record, StopReason, Usage};

/// Below this many output tokens a call is not worth making, unless its request wants even fewer.
const OUTPUT_FLOOR: u64 = 256;
/// Beside its input, a closing answer gets at most this much.
const CLOSING_OUTPUT: u64 = 1024;
/// A budget is warned about once four fifths of it are used.
const WARN_RATIO: (u64, u64) = (4, 5);

/// What a run used of its budgets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    /// Input and output of all model calls.
    pub tokens: u64,
    /// Their cost.
    pub cost: Micros,
}

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
pub fn plan(spec: &RunSpec, used: Used, context_tokens: u64, purpose: Purpose) -> Result<Reservation, StopReason> {
    let input = context_tokens.saturating_add(context_tokens / 10);
    let wanted = match purpose {
        Purpose::Step { .. } => spec.max_output_tokens,
        Purpose::Closing => spec.max_output_tokens.min(CLOSING_OUTPUT),
    };
    let floor = wanted.min(OUTPUT_FLOOR);
    let held_back = match purpose {
        Purpose::Step { keep_reserve: true } => input.saturating_add(CLOSING_OUTPUT),
        Purpose::Step { keep_reserve: false } | Purpose::Closing => 0,
    };
    let mut output = wanted;
    if let Some(budget) = spec.limits.token_budget {
        let left = budget.saturating_sub(used.tokens).saturating_sub(held_back);
        output = output.min(left.saturating_sub(input));
        if output < floor {
            return Err(StopReason::TokenBudget);
        }
    }
    if let Some(budget) = spec.limits.cost_budget {
        let reserve = cost(spec, held_back.saturating_sub(CLOSING_OUTPUT), held_back.min(CLOSING_OUTPUT));
        let left = budget.saturating_sub(used.cost).saturating_sub(reserve);
        output = output.min(spec.price.affordable_output(left, input).unwrap_or(u64::MAX));
        if output < floor {
            return Err(StopReason::CostBudget);
        }
    }
    Ok(Reservation { input_tokens: input, output_tokens: output, cost: cost(spec, input, output) })
}

/// The same call with less output, so that it takes no more than `tokens` and `money`; `None` if that
/// is below what is worth asking for.
pub fn shrink(spec: &RunSpec, planned: Reservation, tokens: u64, money: Micros) -> Option<Reservation> {
    let floor = spec.max_output_tokens.min(OUTPUT_FLOOR);
    let affordable = spec.price.affordable_output(money, planned.input_tokens).unwrap_or(u64::MAX);
    let output = planned.output_tokens.min(tokens.saturating_sub(planned.input_tokens)).min(affordable);
    (output >= floor).then(|| Reservation {
        output_tokens: output,
        cost: cost(spec, planned.input_tokens, output),
        ..planned
    })
}

/// The budgets that passed their warning mark and were not warned about.
pub fn due_warning(limits: &Limits, used: Used, warned: &[BudgetKind]) -> Option<(BudgetKind, u64, u64)> {
    let budgets = [
        (BudgetKind::Tokens, used.tokens, limits.token_budget),
        (BudgetKind::Cost, used.cost.0, limits.cost_budget.map(|money| money.0)),
    ];
    budgets.into_iter().find_map(|(kind, used, limit)| {
        let limit = limit?;
        let passed = u128::from(used) * u128::from(WARN_RATIO.1) >= u128::from(limit) * u128::from(WARN_RATIO.0);
        (passed && used > 0 && !warned.contains(&kind)).then_some((kind, used, limit))
    })
}

/// What a step is to be charged, as far as a log tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charge {
    /// Nothing: it did not begin.
    Nothing,
    /// This much: its model call ended.
    Used(Used),
    /// All that was reserved: its model call began and was interrupted, so nobody knows what it took.
    Everything,
}

/// What the step of this number is to be charged by a run's records.
pub fn charge(records: &[Record], price: &Price, step: u32) -> Charge {
    let mut charge = Charge::Nothing;
    let with = |before: Charge, usage: &Usage| {
        let before = if let Charge::Used(used) = before { used } else { Used::default() };
        let tokens = before.tokens.saturating_add(usage.total());
        Charge::Used(Used { tokens, cost: before.cost + price.cost(usage) })
    };
    for record in records {
        match &record.event {
            Event::StepStarted { step: started, .. } if *started == step => charge = Charge::Everything,
            Event::TurnFinished { step: finished, turn } if *finished == step => charge = with(charge, &turn.usage),
            Event::StepDiscarded { step: discarded, usage, .. } if *discarded == step => charge = with(charge, usage),
            Event::RunQueued
            | Event::RunStarted
            | Event::RunResumed { .. }
            | Event::StepStarted { .. }
            | Event::ThinkingDelta { .. }
            | Event::TextDelta { .. }
            | Event::ToolArgumentsDelta { .. }
            | Event::ProviderRetry { .. }
            | Event::TurnFinished { .. }
            | Event::StepDiscarded { .. }
            | Event::BudgetWarning { .. }
            | Event::ToolStarted { .. }
            | Event::ToolFinished { .. }
            | Event::StepCompleted { .. }
            | Event::StopRequested { .. }
            | Event::MailRead { .. }
            | Event::RunFinished(_) => {}
        }
    }
    charge
}

/// The name of the period in which a moment in Unix milliseconds lies: `2026-11-22`, `2026-11` or
/// `ever`.
pub fn period_name(per: Option<Period>, at_ms: u64) -> String {
    let format = match per {
        None => return "ever".to_owned(),
        Some(Period::Day) => "%Y-%m-%d",
        Some(Period::Month) => "%Y-%m",
    };
    let at = i64::try_from(at_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    at.unwrap_or(Timestamp::MAX).to_zoned(TimeZone::UTC).strftime(format).to_string()
}

fn cost(spec: &RunSpec, input: u64, output: u64) -> Micros {
    spec.price.cost(&Usage { prompt_tokens: input, completion_tokens: output, ..Usage::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::machine::tests::spec;
    use crate::types::event::{DiscardReason, Turn};

    const STEP: Purpose = Purpose::Step { keep_reserve: false };

    #[test]
    fn output_is_clamped_to_what_is_left() {
        let mut spec = spec();
        spec.limits.token_budget = Some(2_000);
        let plan = |used, context| plan(&spec, Used { tokens: used, ..Used::default() }, context, STEP);
        let whole = plan(0, 100).unwrap();
        assert_eq!((whole.input_tokens, whole.output_tokens), (110, 1_890));
        assert_eq!(plan(1_500, 100).unwrap().output_tokens, 390);
        assert_eq!(plan(1_700, 100), Err(StopReason::TokenBudget), "less than the floor is left");
        assert_eq!(plan(5_000, 100), Err(StopReason::TokenBudget), "an overshot budget is simply empty");
    }

    #[test]
    fn money_clamps_too_and_free_models_never_do() {
        let mut spec = spec();
        spec.price = Price::from_usd(1.0, 1.0, 10.0);
        spec.limits.cost_budget = Some(Micros(10_000));
        let planned = plan(&spec, Used::default(), 1_000, STEP).unwrap();
        assert_eq!(planned.output_tokens, (10_000 - 1_100) / 10);
        assert!(planned.cost <= Micros(10_000));
        let used = Used { cost: Micros(9_000), ..Used::default() };
        assert_eq!(plan(&spec, used, 1_000, STEP), Err(StopReason::CostBudget));
        spec.price = Price::default();
        assert_eq!(plan(&spec, used, 1_000, STEP).unwrap().output_tokens, spec.max_output_tokens);
    }

    #[test]
    fn a_reserve_leaves_room_for_a_closing_answer() {
        let mut spec = spec();
        spec.limits.token_budget = Some(4_000);
        let planned = plan(&spec, Used::default(), 100, Purpose::Step { keep_reserve: true }).unwrap();
        let used = Used { tokens: planned.tokens(), ..Used::default() };
        assert!(plan(&spec, used, 100, Purpose::Closing).is_ok());
        assert!(plan(&spec, used, 100, STEP).is_ok_and(|p| p.output_tokens <= 1_024));
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

    #[test]
    fn periods_begin_with_days_and_months_of_utc() {
        let at = |text: &str| u64::try_from(text.parse::<Timestamp>().unwrap().as_millisecond()).unwrap();
        let names = |text| [Some(Period::Day), Some(Period::Month), None].map(|per| period_name(per, at(text)));
        assert_eq!(names("2026-11-30T23:59:59.999Z"), ["2026-11-30", "2026-11", "ever"]);
        assert_eq!(names("2026-12-01T00:00:00Z"), ["2026-12-01", "2026-12", "ever"]);
        assert_eq!(names("2028-02-29T00:00:00Z"), ["2028-02-29", "2028-02", "ever"]);
        assert_eq!(names("2026-12-31T23:30:00-01:00"), ["2027-01-01", "2027-01", "ever"]);
        assert_eq!(period_name(Some(Period::Month), 0), "1970-01");
        assert_eq!(period_name(Some(Period::Month), u64::MAX), "9999-12", "no clock makes it panic");
    }

    #[test]
    fn a_log_tells_what_a_step_is_to_be_charged() {
        let price = Price::from_usd(1.0, 1.0, 10.0);
        let usage = Usage { prompt_tokens: 100, completion_tokens: 10, ..Usage::default() };
        let started = |step| Event::StepStarted { step, reserved: Reservation::default(), closing: None };
        let discarded = |step, usage| Event::StepDiscarded { step, reason: DiscardReason::EmptyResponse, usage };
        let finished = |step| Event::TurnFinished { step, turn: Box::new(Turn { usage, ..Turn::default() }) };
        let log = [
            Event::RunStarted,
            started(1),
            finished(1),
            discarded(1, Usage::default()),
            started(2),
            discarded(2, usage),
            started(3),
        ];
        let log: Vec<_> = log.into_iter().map(|event| Record { seq: 1, at_ms: 1, event }).collect();
        let used = Charge::Used(Used { tokens: 110, cost: Micros(200) });
        let charges: Vec<_> = (1..=4).map(|step| charge(&log, &price, step)).collect();
        assert_eq!(charges, [used, used, Charge::Everything, Charge::Nothing]);
        assert_eq!(charge(&log[..2], &price, 1), Charge::Everything);
        assert_eq!(charge(&log[..3], &price, 1), used);
    }
}
