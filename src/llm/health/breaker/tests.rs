use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::llm::health::policy::MOST_RETRY_AFTER_MS;

const POLICY: BreakerPolicy =
    BreakerPolicy { failures: 3, window_ms: 10_000, cooldown_ms: 1_000, most_cooldown_ms: 8_000, retry_percent: 10 };
const DOWN: Heard = failed(ErrorClass::Overloaded, None);

const fn failed(class: ErrorClass, retry_after_ms: Option<u64>) -> Heard {
    Heard::Failed(Failure { class, retry_after_ms })
}

fn pass(breaker: &mut Breaker, now_ms: u64) -> Ticket {
    match breaker.admit(now_ms, false) {
        Admission::Pass(ticket) => ticket,
        other @ (Admission::Probe(_) | Admission::Refuse(_)) => panic!("{other:?}"),
    }
}

fn probe(breaker: &mut Breaker, now_ms: u64) -> Ticket {
    match breaker.admit(now_ms, false) {
        Admission::Probe(ticket) => ticket,
        other @ (Admission::Pass(_) | Admission::Refuse(_)) => panic!("{other:?}"),
    }
}

/// One that failures of this class have opened at 0.
fn opened_by(class: ErrorClass) -> Breaker {
    let mut breaker = Breaker::new(POLICY);
    let tickets: Vec<_> = (0..3).map(|_| pass(&mut breaker, 0)).collect();
    let changes = tickets.into_iter().filter_map(|mut ticket| breaker.hear(0, &mut ticket, failed(class, None)));
    assert_eq!(changes.count(), 1);
    breaker
}

fn opened() -> Breaker {
    opened_by(ErrorClass::Overloaded)
}

#[test]
fn enough_failures_within_the_window_open_it_if_they_are_half_of_the_calls() {
    let mut breaker = Breaker::new(POLICY);
    for (at_ms, heard) in [(0, DOWN), (1, DOWN), (10_001, DOWN), (10_002, DOWN)] {
        let mut ticket = pass(&mut breaker, at_ms);
        assert_eq!(breaker.hear(at_ms, &mut ticket, heard), None, "the first two are forgotten");
    }
    for _ in 0..4 {
        let mut ticket = pass(&mut breaker, 10_003);
        breaker.hear(10_003, &mut ticket, Heard::End);
    }
    let mut ticket = pass(&mut breaker, 10_004);
    assert_eq!(breaker.hear(10_004, &mut ticket, DOWN), None, "three of seven");
    let mut ticket = pass(&mut breaker, 10_005);
    let Some(Change::Opened(opening)) = breaker.hear(10_005, &mut ticket, DOWN) else { panic!("four of eight") };
    assert_eq!((opening.streak, opening.until_ms), (1, 11_005));
}

#[test]
fn a_probe_that_fails_doubles_the_cooldown_up_to_the_longest_and_one_that_is_answered_closes_it() {
    let (mut breaker, mut now_ms) = (opened(), 0);
    for cooldown_ms in [1_000, 2_000, 4_000, 8_000, 8_000] {
        assert_eq!(breaker.standing(now_ms), Standing::Open);
        now_ms += cooldown_ms;
        assert!(matches!(breaker.admit(now_ms - 1, false), Admission::Refuse(opening) if opening.until_ms == now_ms));
        let mut ticket = probe(&mut breaker, now_ms);
        assert!(matches!(breaker.admit(now_ms, false), Admission::Refuse(_)), "one probe at a time");
        assert!(matches!(breaker.hear(now_ms, &mut ticket, DOWN), Some(Change::Reopened(_))));
    }
    let mut ticket = probe(&mut breaker, now_ms + 8_000);
    assert_eq!(breaker.hear(now_ms + 8_000, &mut ticket, Heard::Word), Some(Change::Closed));
    pass(&mut breaker, now_ms + 8_000);
}

/// However long it takes.
#[test]
fn a_probe_whose_answer_is_late_closes_it() {
    let mut breaker = opened();
    let mut slow = probe(&mut breaker, 1_000);
    for now_ms in (1_000..600_000).step_by(1_000) {
        assert_eq!(breaker.hear(now_ms, &mut slow, Heard::Begun), None);
        assert!(matches!(breaker.admit(now_ms, false), Admission::Refuse(_)), "it is under way");
    }
    assert_eq!(breaker.hear(600_000, &mut slow, Heard::Word), Some(Change::Closed));
    let mut breaker = opened();
    let mut first = probe(&mut breaker, 1_000);
    // Its claim was lost, and the probe of another process has failed.
    breaker.learn(
        60_000,
        Some(Known { opening: Opening { until_ms: 90_000, ..breaker.opening().unwrap() }, probed_until_ms: None }),
    );
    assert_eq!(breaker.hear(61_000, &mut first, Heard::Word), Some(Change::Closed));
}

/// Where calls failed because their answers broke off, the first word says nothing.
#[test]
fn a_probe_must_get_as_far_as_calls_did_that_broke_off() {
    let mut breaker = opened_by(ErrorClass::Broken);
    let mut ticket = probe(&mut breaker, 1_000);
    assert_eq!(breaker.hear(1_500, &mut ticket, Heard::Word), None);
    let broke = breaker.hear(2_000, &mut ticket, failed(ErrorClass::Broken, None));
    assert!(matches!(broke, Some(Change::Reopened(opening)) if opening.streak == 2), "{broke:?}");
    let mut ticket = probe(&mut breaker, 4_000);
    breaker.hear(4_500, &mut ticket, Heard::Word);
    assert_eq!(breaker.hear(5_000, &mut ticket, Heard::End), Some(Change::Closed));
}

#[test]
fn one_that_opens_again_soon_after_it_closed_goes_on_with_its_cooldowns() {
    for (later_ms, streak) in [(0, 2), (9_999, 2), (10_000, 1)] {
        let mut breaker = opened();
        let mut ticket = probe(&mut breaker, 1_000);
        breaker.hear(1_000, &mut ticket, Heard::Word);
        let now_ms = 1_000 + later_ms;
        let changes: Vec<_> = (0..3).filter_map(|_| call(&mut breaker, now_ms, DOWN)).collect();
        assert!(matches!(changes[..], [Change::Opened(opening)] if opening.streak == streak), "{changes:?}");
    }
}

/// Makes a call, and hears of it.
fn call(breaker: &mut Breaker, now_ms: u64, heard: Heard) -> Option<Change> {
    let mut ticket = pass(breaker, now_ms);
    breaker.hear(now_ms, &mut ticket, heard)
}

/// Until when a breaker is open that so many calls in a row, and no fewer, have opened.
fn open_until(calls: u32, class: ErrorClass, retry_after_ms: Option<u64>) -> Option<u64> {
    let mut breaker = Breaker::new(POLICY);
    for _ in 1..calls {
        assert_eq!(call(&mut breaker, 0, failed(class, retry_after_ms)), None, "{class:?}");
    }
    match call(&mut breaker, 0, failed(class, retry_after_ms)) {
        Some(Change::Opened(opening)) => Some(opening.until_ms),
        _ => None,
    }
}

#[test]
fn a_wait_that_the_upstream_names_is_kept_and_refusals_last_longer() {
    assert_eq!(open_until(2, ErrorClass::RateLimited, Some(30_000)), Some(30_000));
    assert_eq!(open_until(2, ErrorClass::RateLimited, Some(u64::MAX)), Some(MOST_RETRY_AFTER_MS));
    assert_eq!(open_until(9, ErrorClass::RateLimited, Some(200)), None);
    assert_eq!(open_until(3, ErrorClass::RateLimited, None), Some(1_000), "it counts");
    for class in [ErrorClass::Denied, ErrorClass::Unpaid] {
        assert_eq!(open_until(1, class, None), Some(60_000), "{class:?}");
    }
    for class in [ErrorClass::InvalidRequest, ErrorClass::ContextLength, ErrorClass::NotTaken, ErrorClass::NotFound] {
        assert_eq!(open_until(9, class, None), None, "{class:?}");
    }
    let mut off = Breaker::new(BreakerPolicy { failures: 0, ..POLICY });
    assert_eq!(call(&mut off, 0, failed(ErrorClass::Denied, None)), None);
}

#[test]
fn what_may_be_about_one_request_opens_it_only_if_others_fail_as_well() {
    for class in [ErrorClass::Forbidden, ErrorClass::Misconfigured] {
        assert_eq!(open_until(POLICY.failures, class, None), Some(POLICY.cooldown_ms), "{class:?}");
    }
    let mut breaker = Breaker::new(POLICY);
    let large = failed(ErrorClass::RateLimited, Some(60_000));
    for heard in [large, Heard::Word, large] {
        assert_eq!(call(&mut breaker, 0, heard), None, "smaller ones are answered");
    }
}

#[test]
fn what_a_person_must_mend_is_asked_for_where_there_is_no_other_model() {
    let denied = failed(ErrorClass::Denied, None);
    let mut breaker = Breaker::new(POLICY);
    call(&mut breaker, 0, denied);
    assert!(matches!(breaker.admit(1, false), Admission::Refuse(_)));
    let Admission::Pass(mut ticket) = breaker.admit(1, true) else { panic!("nothing else can be asked") };
    assert_eq!(breaker.hear(1, &mut ticket, denied), None);
    let Admission::Pass(mut ticket) = breaker.admit(2, true) else { panic!("nothing else can be asked") };
    // What others know is read again meanwhile, by a clock that is not quite the same.
    let opening = breaker.opening().map(|opening| Opening { until_ms: opening.until_ms + 1, ..opening }).unwrap();
    breaker.learn(2, Some(Known { opening, probed_until_ms: None }));
    assert_eq!(breaker.hear(2, &mut ticket, Heard::Word), Some(Change::Closed));
    assert!(matches!(opened().admit(1, true), Admission::Refuse(_)), "one that is down is left alone");
    // While a call probes, another one that is lenient neither takes its place nor ends it.
    let mut breaker = opened_by(ErrorClass::Forbidden);
    let mut first = probe(&mut breaker, 1_000);
    for heard in [Heard::Dropped, failed(ErrorClass::Forbidden, None)] {
        let Admission::Pass(mut beside) = breaker.admit(1_001, true) else { panic!("nothing else can be asked") };
        assert_eq!(breaker.hear(1_002, &mut beside, heard), None);
        assert!(matches!(breaker.admit(1_003, false), Admission::Refuse(_)), "one probe at a time");
    }
    assert_eq!(breaker.hear(1_004, &mut first, Heard::Word), Some(Change::Closed));
}

#[test]
fn what_others_know_opens_and_closes_it() {
    let opening = Opening { class: ErrorClass::TimedOut, streak: 2, until_ms: 5_000 };
    let mut breaker = Breaker::new(POLICY);
    let mut early = pass(&mut breaker, 0);
    breaker.learn(0, Some(Known { opening, probed_until_ms: None }));
    assert_eq!(breaker.refusal(4_999), Some(opening));
    assert_eq!(breaker.hear(1, &mut early, Heard::Word), None, "it was made before");
    breaker.learn(0, Some(Known { opening, probed_until_ms: Some(9_000) }));
    assert_eq!(breaker.refusal(5_000).map(|opening| opening.until_ms), Some(7_000), "to be asked again soon");
    assert_eq!(breaker.refusal(9_000), None);
    breaker.learn(1, None);
    pass(&mut breaker, 1);
    let mut probing = opened();
    let ticket = probe(&mut probing, 1_000);
    probing.forgo(ticket, 3_000);
    assert_eq!(probing.refusal(1_000).map(|opening| opening.until_ms), Some(3_000));
}

/// What each of the calls of a model does that begin one after the other.
#[derive(Debug, Clone, Copy)]
struct Habit {
    /// A call begins so often.
    every_ms: u64,
    /// The model speaks so late, where it does.
    speaks_ms: u64,
    /// One of so many calls fails, so late after it began; `is_late` if the model has spoken before.
    one_of: u64,
    fails_ms: u64,
    is_late: bool,
}

/// What is heard of a call at a time, and what so much later.
type Event = (Ticket, Heard, Option<(u64, Heard)>);

/// What happens to such calls until then. Returns how often the breaker opened.
fn live(habit: Habit, until_ms: u64) -> usize {
    let Habit { every_ms, speaks_ms, one_of, fails_ms, is_late } = habit;
    let mut breaker = Breaker::new(BreakerPolicy { failures: 5, window_ms: 30_000, ..POLICY });
    let mut events: BTreeMap<(u64, u64), Event> = BTreeMap::new();
    let (mut next_ms, mut order, mut calls, mut opened) = (0, 0, 0, 0);
    let failure = failed(ErrorClass::Broken, None);
    while next_ms < until_ms {
        order += 1;
        if let Some(first) = events.first_entry().filter(|first| first.key().0 <= next_ms) {
            let ((now_ms, _), (mut ticket, heard, then)) = first.remove_entry();
            opened += usize::from(matches!(breaker.hear(now_ms, &mut ticket, heard), Some(Change::Opened(_))));
            if let Some((later_ms, heard)) = then {
                events.insert((now_ms + later_ms, order), (ticket, heard, None));
            }
            continue;
        }
        if let Admission::Pass(ticket) | Admission::Probe(ticket) = breaker.admit(next_ms, false) {
            let (after_ms, heard, then) = match (calls % one_of == one_of / 2, is_late) {
                (false, _) => (speaks_ms, Heard::Word, None),
                (true, true) => (speaks_ms, Heard::Word, Some((fails_ms, failure))),
                (true, false) => (fails_ms, failure, None),
            };
            events.insert((next_ms + after_ms, order), (ticket, heard, then));
            calls += 1;
        }
        next_ms += every_ms;
    }
    opened
}

proptest! {
    /// However early failures are told and however late answers are.
    #[test]
    fn a_model_that_is_mostly_well_stays_closed(
        every_ms in 10..2_000_u64, speaks_ms in 0..20_000_u64, one_of in 5..20_u64, fails_ms in 0..30_000_u64, is_late: bool,
    ) {
        let habit = Habit { every_ms, speaks_ms, one_of, fails_ms, is_late };
        prop_assert_eq!(live(habit, 120_000), 0);
    }

    /// At least one of two fails.
    #[test]
    fn a_model_that_mostly_fails_opens(
        every_ms in 10..2_000_u64, speaks_ms in 0..20_000_u64, fails_ms in 0..30_000_u64, is_late: bool,
    ) {
        let habit = Habit { every_ms, speaks_ms, one_of: 1, fails_ms, is_late };
        prop_assert!(live(habit, 120_000) > 0);
    }
}

#[test]
fn one_that_breaks_off_nine_of_ten_answers_opens() {
    let mut breaker = Breaker::new(POLICY);
    let mut opened = false;
    for call in 0..40_u64 {
        let Admission::Pass(mut ticket) = breaker.admit(call * 100, false) else { break };
        breaker.hear(call * 100 + 10, &mut ticket, Heard::Word);
        let end = if call % 10 == 0 { Heard::End } else { failed(ErrorClass::Broken, None) };
        opened |= breaker.hear(call * 100 + 50, &mut ticket, end).is_some();
    }
    assert!(opened);
}
