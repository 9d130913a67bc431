use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const POLICY: BreakerPolicy = BreakerPolicy {
    failures: 3,
    window_ms: 10_000,
    cooldown_ms: 1_000,
    most_cooldown_ms: 8_000,
    probe_ms: 5_000,
    retry_percent: 10,
};
const DOWN: CallOutcome = CallOutcome::Failed(ErrorClass::Overloaded, None);

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

/// One that three failures have opened at 0.
fn opened() -> Breaker {
    let mut breaker = Breaker::new(POLICY);
    let tickets: Vec<_> = (0..3).map(|_| pass(&mut breaker, 0)).collect();
    let changes: Vec<_> = tickets.into_iter().filter_map(|ticket| breaker.settle(0, ticket, DOWN)).collect();
    assert_eq!(changes.len(), 1, "{changes:?}");
    breaker
}

#[test]
fn enough_failures_within_the_window_open_it_if_they_are_half_of_the_calls() {
    let mut breaker = Breaker::new(POLICY);
    for (at_ms, outcome) in [(0, DOWN), (1, DOWN), (10_001, DOWN), (10_002, DOWN)] {
        let ticket = pass(&mut breaker, at_ms);
        assert_eq!(breaker.settle(at_ms, ticket, outcome), None, "the first two are forgotten");
    }
    for _ in 0..4 {
        let ticket = pass(&mut breaker, 10_003);
        breaker.settle(10_003, ticket, CallOutcome::Answered);
    }
    let ticket = pass(&mut breaker, 10_004);
    assert_eq!(breaker.settle(10_004, ticket, DOWN), None, "three of seven");
    let ticket = pass(&mut breaker, 10_005);
    let Some(Change::Opened(opening)) = breaker.settle(10_005, ticket, DOWN) else { panic!("four of eight") };
    assert_eq!((opening.streak, opening.until_ms), (1, 11_005));
}

#[test]
fn a_probe_that_fails_doubles_the_cooldown_up_to_the_longest_and_one_that_is_answered_closes_it() {
    let (mut breaker, mut now_ms) = (opened(), 0);
    for cooldown_ms in [1_000, 2_000, 4_000, 8_000, 8_000] {
        assert_eq!(breaker.standing(now_ms), Standing::Open);
        now_ms += cooldown_ms;
        assert!(matches!(breaker.admit(now_ms - 1, false), Admission::Refuse(opening) if opening.until_ms == now_ms));
        let ticket = probe(&mut breaker, now_ms);
        assert!(matches!(breaker.admit(now_ms, false), Admission::Refuse(_)), "one probe at a time");
        assert!(matches!(breaker.settle(now_ms, ticket, DOWN), Some(Change::Opened(_))));
    }
    let ticket = probe(&mut breaker, now_ms + 8_000);
    assert_eq!(breaker.settle(now_ms + 8_000, ticket, CallOutcome::Answered), Some(Change::Closed));
    pass(&mut breaker, now_ms + 8_000);
}

/// Makes a call, and settles it.
fn call(breaker: &mut Breaker, outcome: CallOutcome) -> Option<Change> {
    let ticket = pass(breaker, 0);
    breaker.settle(0, ticket, outcome)
}

/// Until when a breaker is open that so many calls in a row, and no fewer, have opened.
fn open_until(calls: u32, class: ErrorClass, retry_after_ms: Option<u64>) -> Option<u64> {
    let mut breaker = Breaker::new(POLICY);
    for _ in 1..calls {
        assert_eq!(call(&mut breaker, CallOutcome::Failed(class, retry_after_ms)), None, "{class:?}");
    }
    match call(&mut breaker, CallOutcome::Failed(class, retry_after_ms)) {
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
    let after = |class, retry_after_ms| open_until(1, class, retry_after_ms);
    for class in [ErrorClass::InvalidRequest, ErrorClass::ContextLength, ErrorClass::NotTaken] {
        assert_eq!(after(class, None), None, "{class:?}");
    }
    let off = BreakerPolicy { failures: 0, ..POLICY };
    let mut off = Breaker::new(off);
    let ticket = pass(&mut off, 0);
    assert_eq!(off.settle(0, ticket, CallOutcome::Failed(ErrorClass::Denied, None)), None);
}

#[test]
fn what_may_be_about_one_request_opens_it_only_if_others_fail_as_well() {
    for class in [ErrorClass::Forbidden, ErrorClass::NotFound, ErrorClass::Misconfigured] {
        assert_eq!(open_until(POLICY.failures, class, None), Some(POLICY.cooldown_ms), "{class:?}");
    }
    let mut breaker = Breaker::new(POLICY);
    let large = CallOutcome::Failed(ErrorClass::RateLimited, Some(60_000));
    for outcome in [large, CallOutcome::Answered, large] {
        assert_eq!(call(&mut breaker, outcome), None, "smaller ones are answered");
    }
}

#[test]
fn what_a_person_must_mend_is_asked_for_where_there_is_no_other_model() {
    let mut breaker = Breaker::new(POLICY);
    let ticket = pass(&mut breaker, 0);
    breaker.settle(0, ticket, CallOutcome::Failed(ErrorClass::Denied, None));
    assert!(matches!(breaker.admit(1, false), Admission::Refuse(_)));
    let Admission::Pass(ticket) = breaker.admit(1, true) else { panic!("nothing else can be asked") };
    assert_eq!(breaker.settle(1, ticket, CallOutcome::Failed(ErrorClass::Denied, None)), None);
    let Admission::Pass(ticket) = breaker.admit(2, true) else { panic!("nothing else can be asked") };
    assert_eq!(breaker.settle(2, ticket, CallOutcome::Answered), Some(Change::Closed));
    assert!(matches!(opened().admit(1, true), Admission::Refuse(_)), "one that is down is left alone");
}

#[test]
fn what_others_know_opens_and_closes_it() {
    let opening = Opening { class: ErrorClass::TimedOut, streak: 2, until_ms: 5_000 };
    let mut breaker = Breaker::new(POLICY);
    let early = pass(&mut breaker, 0);
    breaker.learn(Some(opening));
    assert_eq!(breaker.refusal(4_999), Some(opening));
    assert_eq!(breaker.settle(1, early, CallOutcome::Answered), None, "it was made before");
    breaker.learn(None);
    pass(&mut breaker, 1);
    let mut own = opened();
    own.learn(None);
    assert!(own.refusal(1).is_some(), "nobody else can know of it yet");
    own.note_shared();
    own.learn(None);
    assert_eq!(own.refusal(1), None);
    let mut probing = opened();
    let ticket = probe(&mut probing, 1_000);
    probing.learn(None);
    probing.forgo(ticket, 3_000);
    assert_eq!(probing.refusal(1_000).map(|opening| opening.until_ms), Some(3_000));
}

#[derive(Debug, Clone)]
enum Act {
    Ask { alone: bool },
    Settle { which: usize, outcome: CallOutcome },
    Learn(Option<u64>),
}

fn act() -> impl Strategy<Value = Act> {
    let class = prop_oneof![
        Just(ErrorClass::Overloaded),
        Just(ErrorClass::TimedOut),
        Just(ErrorClass::RateLimited),
        Just(ErrorClass::Denied),
        Just(ErrorClass::InvalidRequest),
    ];
    let failed =
        (class, proptest::option::of(0..20_000_u64)).prop_map(|(class, wait)| CallOutcome::Failed(class, wait));
    let outcome = prop_oneof![Just(CallOutcome::Answered), Just(CallOutcome::Dropped), failed];
    prop_oneof![
        4 => any::<bool>().prop_map(|alone| Act::Ask { alone }),
        4 => (any::<usize>(), outcome).prop_map(|(which, outcome)| Act::Settle { which, outcome }),
        1 => proptest::option::of(0..30_000_u64).prop_map(Act::Learn),
    ]
}

proptest! {
    /// Whatever happens: while it is open no call goes through but a lenient one, and one probe at a time is under way.
    #[test]
    fn an_open_breaker_lets_nothing_through_but_one_probe_at_a_time(acts in vec((0..3_000_u64, act()), 1..200)) {
        let (mut breaker, mut now_ms) = (Breaker::new(POLICY), 0);
        let (mut open, mut probing): (Vec<Ticket>, Option<u64>) = (Vec::new(), None);
        for (later, act) in acts {
            now_ms += later;
            match act {
                Act::Ask { alone } => {
                    let refusal = breaker.refusal(now_ms);
                    match breaker.admit(now_ms, alone) {
                        Admission::Pass(ticket) => {
                            let is_lenient = refusal.is_none_or(|opening| alone && is_lenient(opening.class));
                            prop_assert!(is_lenient, "{refusal:?}");
                            open.push(ticket);
                        }
                        Admission::Probe(ticket) => {
                            prop_assert_eq!(refusal, None);
                            let is_over = probing.is_none_or(|since| now_ms >= since + POLICY.probe_ms);
                            prop_assert!(is_over, "two probes at once");
                            probing = Some(now_ms);
                            open.push(ticket);
                        }
                        Admission::Refuse(opening) => {
                            prop_assert!(refusal.is_some());
                            prop_assert!(opening.until_ms > now_ms);
                        }
                    }
                }
                Act::Settle { which, outcome } if !open.is_empty() => {
                    let ticket = open.swap_remove(which % open.len());
                    let is_stale = ticket != breaker.ticket();
                    let before = breaker.clone();
                    let change = breaker.settle(now_ms, ticket, outcome);
                    probing = probing.filter(|_| change.is_none());
                    if is_stale {
                        prop_assert_eq!(&before, &breaker, "an old call changes nothing");
                        prop_assert_eq!(change, None);
                    }
                    if let Some(Change::Opened(opening)) = change {
                        let lasts = opening.until_ms - now_ms;
                        prop_assert!((POLICY.cooldown_ms..=MOST_RETRY_AFTER_MS).contains(&lasts), "{lasts}");
                        prop_assert!(breaker.refusal(now_ms).is_some());
                    }
                    if change == Some(Change::Closed) {
                        prop_assert_eq!(breaker.standing(now_ms), Standing::Closed);
                    }
                }
                Act::Settle { .. } => {}
                Act::Learn(known) => {
                    let known = known.map(|in_ms| Opening { class: ErrorClass::Overloaded, streak: 1, until_ms: now_ms + in_ms });
                    breaker.learn(known);
                }
            }
        }
        // However it stands, it lets a call through again once nothing has happened for long enough.
        let later = now_ms + MOST_RETRY_AFTER_MS + POLICY.probe_ms + 30_000;
        prop_assert!(!matches!(breaker.admit(later, false), Admission::Refuse(_)));
    }
}
