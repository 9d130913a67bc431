use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use proptest::prelude::*;
use tokio::time::Instant;

use super::world::{Member, POLICY, Shared, down, pass, pass_a_bit};
use crate::llm::health::UpstreamHealth;
use crate::llm::health::breaker::Standing;
use crate::llm::{ModelError, ModelErrorKind};
use crate::store::faulty::Fate;

const SECOND: Duration = Duration::from_secs(1);
/// The first cooldown, and a bit more: the clocks of the store and of a replica differ by less than that.
const COOLDOWN: Duration = Duration::from_millis(POLICY.cooldown_ms + 100);

#[tokio::test(start_paused = true)]
async fn what_could_not_be_stored_is_not_undone_and_reaches_the_others_once_it_can_be() {
    let shared = Shared::new(false);
    let (one, other) = (Member::join(&shared, "one"), Member::join(&shared, "other"));
    for fate in [Fate::Fails, Fate::FailsAfterwards] {
        one.store.follow(move |_| fate);
        one.fail(5).await;
        pass(SECOND * 9 / 10).await;
        assert_eq!(one.standing(), Standing::Open);
        one.store.follow(|_| Fate::Happens);
        pass(SECOND * 3 / 2).await;
        assert_eq!((one.standing(), other.standing()), (Standing::HalfOpen, Standing::HalfOpen));
        // So is the news that it is well.
        let mut probe = one.upstream.admit("m", false).await.unwrap();
        one.store.follow(move |_| fate);
        probe.note_end(false);
        pass(SECOND).await;
        assert_eq!(one.standing(), Standing::Closed, "{fate:?}");
        one.store.follow(|_| Fate::Happens);
        pass(2 * SECOND).await;
        assert_eq!((one.standing(), other.standing()), (Standing::Closed, Standing::Closed), "{fate:?}");
        pass(10 * SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_probe_keeps_others_away_for_as_long_as_it_takes_and_a_dead_replica_for_ten_seconds() {
    let shared = Shared::new(false);
    let (one, other) = (Member::join(&shared, "one"), Member::join(&shared, "other"));
    one.fail(5).await;
    pass(COOLDOWN).await;
    let mut probe = one.upstream.admit("m", false).await.unwrap();
    for _ in 0..90 {
        pass(SECOND).await;
        assert!(one.upstream.admit("m", false).await.is_err() && other.upstream.admit("m", false).await.is_err());
    }
    probe.note_word();
    pass(SECOND / 2).await;
    assert_eq!((one.standing(), other.standing()), (Standing::Closed, Standing::Closed));
    drop(probe);
    pass(11 * SECOND).await;
    one.fail(5).await;
    pass(COOLDOWN).await;
    let probe = one.upstream.admit("m", false).await.unwrap();
    one.die();
    pass(9 * SECOND).await;
    assert!(other.upstream.admit("m", false).await.is_err(), "it may live");
    pass(2 * SECOND).await;
    let mut second = other.upstream.admit("m", false).await.expect("its claim is over");
    second.note_word();
    assert_eq!(other.standing(), Standing::Closed);
    drop(probe);
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_is_configured_as_before_again_goes_on_learning() {
    let shared = Shared::new(false);
    let (one, other) = (Member::join(&shared, "one"), Member::join(&shared, "other"));
    // A run still holds the first while the configuration changes and changes back.
    let _changed = one.health.of_upstream("u", "changed", POLICY);
    let again = one.health.of_upstream("u", "", POLICY);
    one.fail(5).await;
    assert!(again.refusal("m").is_some(), "it is the same upstream");
    pass(COOLDOWN).await;
    let mut probe = other.upstream.admit("m", false).await.unwrap();
    probe.note_word();
    pass(SECOND).await;
    assert_eq!((again.refusal("m"), one.standing()), (None, Standing::Closed));
}

/// Callers may name any model.
#[tokio::test(start_paused = true)]
async fn names_that_callers_invent_neither_fill_the_table_nor_hide_what_others_know() {
    let shared = Shared::new(false);
    let (one, other) = (Member::join(&shared, "one"), Member::join(&shared, "other"));
    let missing = ModelError { status: Some(404), kind: ModelErrorKind::Rejected, ..down() };
    for number in 0..3_000 {
        let mut call = one.upstream.admit(&format!("invented {number}"), false).await.unwrap();
        call.note_failure(&missing);
    }
    pass(SECOND).await;
    assert_eq!(one.health.standings(), []);
    // Also if the upstream fails for each.
    for number in 0..1_500 {
        for _ in 0..5 {
            let mut call = one.upstream.admit(&format!("invented {number}"), false).await.unwrap();
            call.note_failure(&down());
        }
    }
    one.fail(5).await;
    assert!(one.upstream.refusal("m").is_some());
    pass(SECOND / 2).await;
    assert!(other.upstream.refusal("m").is_some());
    pass(6 * SECOND).await;
    assert_eq!(one.health.standings().len(), 1_000);
}

/// All of them are read, whatever else there is.
#[tokio::test(start_paused = true)]
async fn what_other_upstreams_lack_hides_nothing() {
    let shared = Shared::new(false);
    let (one, other) = (Member::join(&shared, "one"), Member::join(&shared, "other"));
    for name in ["x", "y"] {
        let upstream = one.health.of_upstream(name, "", POLICY);
        for call in 0..900 * POLICY.failures {
            let model = format!("model {}", call / POLICY.failures);
            upstream.admit(&model, false).await.unwrap().note_failure(&down());
        }
        pass(SECOND / 5).await;
    }
    let models: Vec<_> = (0..20).map(|number| format!("m{number}")).collect();
    for model in &models {
        for _ in 0..POLICY.failures {
            one.upstream.admit(model, false).await.unwrap().note_failure(&down());
        }
    }
    pass(SECOND / 5).await;
    for upstream in [&one.upstream, &other.upstream] {
        assert!(models.iter().all(|model| upstream.refusal(model).is_some()));
    }
}

/// How the model is for a while.
#[derive(Debug, Clone, Copy)]
enum Phase {
    Well,
    Down,
    /// One of five calls of a replica fails.
    MostlyWell,
}

/// What happens in a world.
#[derive(Debug, Clone)]
struct Plan {
    /// Each of 45 seconds, after one in which it is well.
    phases: Vec<Phase>,
    loses_nudges: bool,
    /// How late the model speaks, and how late it fails.
    speaks_ms: u64,
    fails_ms: u64,
    /// When the commits of a replica fail for a while, by seconds from the start.
    outages: Vec<(usize, u64)>,
    /// When the last replica dies.
    dies_s: u64,
}

const PHASE_S: u64 = 45;
const OUTAGE_S: u64 = 3;

fn plan() -> impl Strategy<Value = Plan> {
    let phase = prop_oneof![Just(Phase::Down), Just(Phase::MostlyWell), Just(Phase::Well)];
    let outages = proptest::collection::vec((0..3_usize, 0..150_u64), 0..4);
    (proptest::collection::vec(phase, 1..4), any::<bool>(), 0..4_000_u64, 0..3_000_u64, outages, 0..150_u64).prop_map(
        |(phases, loses_nudges, speaks_ms, fails_ms, outages, dies_s)| Plan {
            phases,
            loses_nudges,
            speaks_ms,
            fails_ms,
            outages,
            dies_s,
        },
    )
}

/// What the model does, and what was asked of it.
#[derive(Debug, Default)]
struct Seen {
    asked: Mutex<Vec<Instant>>,
    /// When it first answered since it is well.
    answered: Mutex<Option<Instant>>,
    calls: [AtomicU64; 3],
}

/// Makes a call of the replica of this number, whose model is so now.
async fn call(upstream: Arc<UpstreamHealth>, number: usize, phase: Phase, plan: Plan, seen: Arc<Seen>) {
    let Ok(mut call) = upstream.admit("m", false).await else { return };
    let now = Instant::now();
    seen.asked.lock().push(now);
    let calls = seen.calls[number].fetch_add(1, Relaxed);
    let fails = match phase {
        Phase::Well => false,
        Phase::Down => true,
        Phase::MostlyWell => calls.is_multiple_of(5),
    };
    if fails {
        tokio::time::sleep(Duration::from_millis(plan.fails_ms)).await;
        call.note_failure(&down());
        return;
    }
    tokio::time::sleep(Duration::from_millis(plan.speaks_ms)).await;
    call.note_word();
    seen.answered.lock().get_or_insert(Instant::now());
    tokio::time::sleep(Duration::from_millis(500)).await;
    call.note_end(false);
}

/// Lives through a plan. Returns the first promise that was broken.
async fn live(plan: Plan) -> Result<(), String> {
    let shared = Shared::new(plan.loses_nudges);
    let members = [Member::join(&shared, "a"), Member::join(&shared, "b"), Member::join(&shared, "c")];
    let (mut calls, start) = (tokio::task::JoinSet::new(), Instant::now());
    let is_away = |member: usize, at: Duration| {
        plan.outages.iter().any(|(of, from)| *of == member && (*from..*from + OUTAGE_S).contains(&at.as_secs()))
    };
    let phases: Vec<_> = std::iter::once(Phase::Well).chain(plan.phases.clone()).chain([Phase::Well]).collect();
    let mut was_settled = true;
    for (number, phase) in phases.into_iter().enumerate() {
        let seen = Arc::new(Seen::default());
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(PHASE_S) {
            let at = start.elapsed();
            let lives = |member: usize| member < 2 || at < Duration::from_secs(plan.dies_s);
            for (place, member) in members.iter().enumerate() {
                if !lives(place) {
                    member.die();
                    continue;
                }
                let fate = if is_away(place, at) { Fate::Fails } else { Fate::Happens };
                member.store.follow(move |_| fate);
                let of = (member.upstream.clone(), place, phase, plan.clone(), seen.clone());
                calls.spawn(call(of.0, of.1, of.2, of.3, of.4));
            }
            for _ in 0..4 {
                pass_a_bit().await;
                let live = || members.iter().enumerate().filter(|(place, _)| lives(*place)).map(|(_, member)| member);
                let probes = live().filter(|member| !member.health.probed().is_empty()).count();
                if probes > 1 {
                    return Err(format!("{probes} probes at once after {at:?}"));
                }
                let open = live().filter(|member| member.standing() != Standing::Closed).count();
                // A replica that is cut off, then tries again, reads five seconds later and finds the answer.
                let late = Duration::from_secs(OUTAGE_S + 2 + 5) + Duration::from_millis(plan.fails_ms);
                let answered = seen.answered.lock().is_some_and(|answered| answered.elapsed() > late);
                match phase {
                    Phase::Well if answered && open > 0 => {
                        return Err(format!("a well model is left alone after {at:?}"));
                    }
                    Phase::MostlyWell if was_settled && open > 0 => {
                        return Err(format!("phase {number} opens at {at:?}"));
                    }
                    Phase::Well | Phase::MostlyWell | Phase::Down => {}
                }
            }
        }
        let asked = seen.asked.lock().clone();
        match phase {
            Phase::Down => check_cooldowns(&asked, began, plan.fails_ms)?,
            Phase::Well if seen.answered.lock().is_none() => return Err(format!("phase {number} is never asked")),
            Phase::Well | Phase::MostlyWell => {}
        }
        was_settled = matches!(phase, Phase::Well) || (was_settled && matches!(phase, Phase::MostlyWell));
    }
    Ok(())
}

/// Once all know that it is down, it is asked once in a cooldown.
fn check_cooldowns(asked: &[Instant], began: Instant, fails_ms: u64) -> Result<(), String> {
    let since = began + Duration::from_secs(OUTAGE_S + 12);
    let asked: Vec<_> = asked.iter().filter(|asked| **asked > since).map(|asked| asked.duration_since(began)).collect();
    let least = Duration::from_millis(POLICY.cooldown_ms + fails_ms);
    match asked.windows(2).find(|pair| pair[1] + super::world::BIT < pair[0] + least) {
        Some(pair) => Err(format!("it is asked {pair:?} though it is down")),
        None if asked.is_empty() => Err("it is not probed".to_owned()),
        None => Ok(()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    /// Whatever is lost or late, and whichever replica dies: at most one call of all replicas probes, a model that is well is
    /// asked by all of them soon after its first answer, one that is mostly well always, and one that is down once in a
    /// cooldown.
    #[test]
    fn replicas_leave_a_model_alone_while_it_fails_and_no_longer(plan in plan()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let broken = runtime.block_on(live(plan));
        prop_assert_eq!(broken, Ok(()));
    }
}
