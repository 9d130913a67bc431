//! What a key is charged for a run's step, and in which period.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::config::Period;
use crate::types::context::ContextEvent;
use crate::types::guard::{Guarded, Judged};
use crate::types::hedge::HedgeEnded;
use crate::types::{Event, Price, Record, Usage, Used};

/// What a step is to be charged, as far as a log tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charge {
    /// Nothing: it did not begin.
    Nothing,
    /// What its model call used: the call ended.
    Used(Used),
    /// All that was reserved: its model call began and was interrupted, so its usage is unknown.
    Everything,
}

/// What each step of a run is to be charged: the fold of the run's records.
#[derive(Debug, Default)]
pub struct Charges {
    steps: BTreeMap<u32, (Price, Charge)>,
    /// Of the model that the newest step calls.
    price: Price,
    /// What the newest step took of a call that was dropped for another.
    dropped: Used,
}

impl Charges {
    /// What the step of this number is to be charged.
    pub fn of(&self, step: u32) -> Charge {
        self.steps.get(&step).map_or(Charge::Nothing, |(_, charge)| *charge)
    }

    /// Takes in the next record.
    pub fn apply(&mut self, record: &Record) {
        match &record.event {
            Event::StepStarted { step, model, .. } => {
                self.price = model.as_ref().map_or(self.price, |model| model.price);
                self.steps.insert(*step, (self.price, Charge::Everything));
                self.dropped = Used::default();
            }
            Event::ProviderFallback(fell_back) => self.price = fell_back.to.price,
            Event::HedgeEnded(ended) => self.drop_one_of_two(ended),
            Event::Guarded(guarded) => self.judge(guarded),
            Event::Context(event) => self.summarise(event),
            Event::TurnFinished { step, turn } => self.add(*step, &turn.usage, Used::default()),
            Event::StepDiscarded { step, usage, unconfirmed, .. } => self.add(*step, usage, *unconfirmed),
            Event::RunQueued
            | Event::RunStarted
            | Event::RunResumed { .. }
            | Event::ThinkingDelta { .. }
            | Event::TextDelta { .. }
            | Event::RefusalDelta { .. }
            | Event::ToolArgumentsDelta { .. }
            | Event::ProviderRetry { .. }
            | Event::HedgeStarted(_)
            | Event::BudgetWarning { .. }
            | Event::CallAllowed { .. }
            | Event::ApprovalRequired(_)
            | Event::ApprovalResolved(_)
            | Event::LoopGuardTriggered(_)
            | Event::PlanCreated { .. }
            | Event::ReflectionStarted { .. }
            | Event::ToolStarted { .. }
            | Event::ToolPending(_)
            | Event::Delegated(_)
            | Event::Handoff(_)
            | Event::QuestionAsked(_)
            | Event::QuestionResolved(_)
            | Event::ToolProgress { .. }
            | Event::ToolAnswered { .. }
            | Event::HookRan(_)
            | Event::StartHooked
            | Event::ToolFinished { .. }
            | Event::StepCompleted { .. }
            | Event::StopRequested { .. }
            | Event::StopAfterStep
            | Event::CommandsApplied { .. }
            | Event::HandedOff
            | Event::RunFinished(_) => {}
        }
    }

    /// One of the two calls of a step is dropped. All that was reserved stays charged until the other one has ended.
    fn drop_one_of_two(&mut self, ended: &HedgeEnded) {
        self.dropped += ended.dropped.price.used(&ended.usage) + ended.unconfirmed;
        if let Some(to) = &ended.to {
            self.price = to.price;
            self.steps.entry(ended.step).and_modify(|(price, _)| *price = to.price);
        }
    }

    /// A guardrail asks a model, or has asked it. Between two steps that is reserved under the number of the next.
    fn judge(&mut self, guarded: &Guarded) {
        match guarded {
            Guarded::Judging(judging) if !judging.in_step => {
                self.steps.insert(judging.asked.next_step(), (judging.model.price, Charge::Everything));
            }
            Guarded::Judged(Judged { asked, call: Some(call), .. }) => {
                let used = call.model.price.used(&call.usage) + call.unconfirmed;
                if call.in_step {
                    self.dropped += used;
                } else {
                    self.steps.insert(asked.next_step(), (self.price, Charge::Used(used)));
                }
            }
            Guarded::InputFlagged { .. }
            | Guarded::InputTruncated { .. }
            | Guarded::Triggered(_)
            | Guarded::Judging(_)
            | Guarded::Judged(_) => {}
        }
    }

    /// A model is asked for a summary or for what it writes down, or was. That is reserved under the number of the step that is to begin.
    fn summarise(&mut self, event: &ContextEvent) {
        if let Some((step, model, _)) = event.asked() {
            self.steps.insert(step, (model.price, Charge::Everything));
        } else if let Some((step, call)) = event.call() {
            let used = call.model.price.used(&call.usage) + call.unconfirmed;
            self.steps.insert(step, (self.price, Charge::Used(used)));
        }
    }

    fn add(&mut self, step: u32, usage: &Usage, unconfirmed: Used) {
        let (price, charge) = self.steps.entry(step).or_insert((Price::default(), Charge::Nothing));
        let before = if let Charge::Used(used) = *charge { used } else { Used::default() };
        *charge = Charge::Used(before + price.used(usage) + unconfirmed + std::mem::take(&mut self.dropped));
    }
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

/// In how many seconds the period ends in which a moment in Unix milliseconds lies.
pub fn period_left_s(per: Option<Period>, at_ms: u64) -> Option<u64> {
    let at = i64::try_from(at_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok())?.to_zoned(TimeZone::UTC);
    let next = match per? {
        Period::Day => at.tomorrow().ok()?.start_of_day().ok()?,
        Period::Month => at.last_of_month().ok()?.tomorrow().ok()?.start_of_day().ok()?,
    };
    let left_ms = next.timestamp().as_millisecond() - at.timestamp().as_millisecond();
    u64::try_from(left_ms).ok().map(|ms| ms.div_ceil(1_000))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::types::Micros;
    use crate::types::event::{DiscardReason, Reservation, Turn};
    use crate::types::hedge::KeptCall;
    use crate::types::price::StepModel;

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
    fn a_period_says_when_the_next_one_begins() {
        let at = u64::try_from("2026-11-29T23:00:00.5Z".parse::<Timestamp>().unwrap().as_millisecond()).unwrap();
        let left = [Some(Period::Day), Some(Period::Month), None].map(|per| period_left_s(per, at));
        assert_eq!(left, [Some(3_600), Some(3_600 + 86_400), None]);
        assert_eq!(period_left_s(Some(Period::Day), u64::MAX), None, "no clock makes it panic");
    }

    #[test]
    fn the_charge_of_a_step_follows_from_its_log() {
        let usage = Usage { prompt_tokens: 100, completion_tokens: 10, ..Usage::default() };
        let model = Arc::new(StepModel { price: Price::from_usd(1.0, 1.0, 10.0), ..StepModel::default() });
        // The steps after the first call the same model, which is not named again.
        let started = |step| {
            let model = (step == 1).then(|| model.clone());
            Event::StepStarted { step, reserved: Reservation::default(), model, closing: None }
        };
        let discarded = |step, usage, unconfirmed| {
            let reason = DiscardReason::EmptyResponse;
            Event::StepDiscarded { step, reason, usage, unconfirmed }
        };
        let doubt = Used { tokens: 7, cost: Micros(3) };
        let finished = |step| Event::TurnFinished { step, turn: Box::new(Turn { usage, ..Turn::default() }) };
        let log = [
            Event::RunStarted,
            started(1),
            finished(1),
            discarded(1, Usage::default(), Used::default()),
            started(2),
            discarded(2, usage, doubt),
            started(3),
        ];
        let log: Vec<_> = log.into_iter().map(|event| Record { seq: 1, at_ms: 1, event }).collect();
        let taken = Used { tokens: 110, cost: Micros(200) };
        let (used, doubted) = (Charge::Used(taken), Charge::Used(taken + doubt));
        let charge = |records: &[Record], step| {
            let mut charges = Charges::default();
            for record in records {
                charges.apply(record);
            }
            charges.of(step)
        };
        let charges: Vec<_> = (1..=4).map(|step| charge(&log, step)).collect();
        assert_eq!(charges, [used, doubted, Charge::Everything, Charge::Nothing]);
        assert_eq!(charge(&log[..2], 1), Charge::Everything);
        assert_eq!(charge(&log[..3], 1), used);
    }

    /// A call that was dropped is charged with its step, at the price of its own model.
    #[test]
    fn the_charge_of_a_step_with_two_calls_is_that_of_both_once_it_has_ended() {
        let usage = Usage { prompt_tokens: 100, completion_tokens: 10, ..Usage::default() };
        let at = |usd| Arc::new(StepModel { price: Price::from_usd(usd, usd, usd), ..StepModel::default() });
        let doubt = Used { tokens: 7, cost: Micros(3) };
        for (kept, to, dropped, cost) in
            [(KeptCall::Second, Some(at(2.0)), at(1.0), 110 + 220), (KeptCall::First, None, at(2.0), 220 + 110)]
        {
            let reserved = Reservation::default();
            let ended = HedgeEnded { step: 1, kept, to, dropped, usage, unconfirmed: doubt, failed: None };
            let log = [
                Event::StepStarted { step: 1, reserved, model: Some(at(1.0)), closing: None },
                Event::HedgeEnded(Box::new(ended)),
                Event::TurnFinished { step: 1, turn: Box::new(Turn { usage, ..Turn::default() }) },
                Event::StepStarted { step: 2, reserved, model: None, closing: None },
                Event::TurnFinished { step: 2, turn: Box::new(Turn { usage, ..Turn::default() }) },
            ];
            let mut charges = Charges::default();
            let mut charge = |event, step| {
                charges.apply(&Record { seq: 1, at_ms: 1, event });
                charges.of(step)
            };
            let [began, ended, finished, next, last] = log;
            charge(began, 1);
            assert_eq!(charge(ended, 1), Charge::Everything, "the call that was kept is under way");
            let both = Used { tokens: 220, cost: Micros(cost) } + doubt;
            assert_eq!(charge(finished, 1), Charge::Used(both), "{kept:?}");
            charge(next, 2);
            let kept_price = if kept == KeptCall::Second { 2 } else { 1 };
            assert_eq!(charge(last, 2), Charge::Used(Used { tokens: 110, cost: Micros(110 * kept_price) }), "{kept:?}");
        }
    }
}
