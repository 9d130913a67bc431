use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::support::{Say, TestAgent, outcome, request, watch};
use crate::agent::error::StartError;
use crate::agent::ledger::document::encode;
use crate::agent::ledger::keys;
use crate::agent::limits::charge::period_name;
use crate::agent::limits::holds::Hold;
use crate::agent::limits::quota::Refusal;
use crate::agent::ownership::retry::RetryWhileLeased;
use crate::agent::session::NewSession;
use crate::agent::{LimitsPatch, NewRun, Quotas, Started};
use crate::config::{Allotment, KeyConfig, Period, QuotaConfig, Scopes, ShareConfig};
use crate::store::faulty::{Fate, Faulty};
use crate::store::memory::MemoryStore;
use crate::store::{Key, Order, Partition, Scan, Store, Tx, Write};
use crate::types::clock::now_ms;
use crate::types::event::Reservation;
use crate::types::shortfall::BudgetKind;
use crate::types::{BudgetOwner, Event, Micros, Outcome, RunId, SessionId, StopReason, Tenant, Used};

const KEY: &str = "web";

pub(super) fn quotas(quota: QuotaConfig) -> Quotas {
    quotas_with(quota, ShareConfig::default())
}

/// The same, with what each user of the key may take.
pub(super) fn quotas_with(quota: QuotaConfig, per_user: ShareConfig) -> Quotas {
    let (name, tenant) = (KEY.to_owned(), Tenant::default_tenant());
    Quotas::new(&[KeyConfig {
        name,
        tenant,
        hash: [0; 32],
        agents: None,
        scopes: Scopes::all(),
        requests_per_minute: None,
        request_mcp: false,
        quota,
        per_user,
        policy: std::sync::Arc::default(),
        layers: [].into(),
    }])
}

pub(super) fn tokens(limit: u64) -> QuotaConfig {
    QuotaConfig { token_budget: Some(Allotment { limit, per: None }), ..QuotaConfig::default() }
}

pub(super) fn runs(most: u32) -> QuotaConfig {
    QuotaConfig { max_concurrent_runs: Some(most), ..QuotaConfig::default() }
}

/// A request with the key, for steps of few tokens.
pub(super) fn keyed() -> NewRun {
    NewRun { key_name: Some(KEY.to_owned()), max_output_tokens: Some(300), ..request() }
}

pub(super) fn partition() -> Partition {
    keys::budget_partition(&Tenant::default_tenant(), KEY)
}

pub(super) fn counter(kind: BudgetKind) -> Key {
    keys::budget_counter(kind, "ever")
}

pub(super) async fn count(store: &Arc<dyn Store>, key: &Key) -> u64 {
    u64::try_from(store.counter(&partition(), key).await.unwrap()).expect("it never falls below nothing")
}

/// The keys of reservations and slots that stand.
pub(super) async fn standing(store: &Arc<dyn Store>) -> Vec<String> {
    let scan = Scan { prefix: String::new(), after: None, limit: 1_000, order: Order::Ascending };
    store.scan(&partition(), scan).await.unwrap().into_iter().map(|(key, _)| key).collect()
}

pub(super) fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::default())
}

/// Calls a tool, then answers.
pub(super) fn two_steps() -> Vec<Say> {
    vec![Say::Calls("look", vec![("echo", r#"{"n":1}"#)]), Say::Text(&["he", "llo"])]
}

/// The highest values of the key's counters that were seen, just before each commit of any replica.
#[derive(Debug, Clone, Default)]
struct Peaks(Arc<[AtomicI64; 2]>);

impl Peaks {
    fn over(&self, store: &Arc<dyn Store>) -> Arc<dyn Store> {
        let (peaks, seen) = (self.clone(), store.clone());
        Faulty::new(store.clone(), move |_| {
            for (peak, kind) in peaks.0.iter().zip([BudgetKind::Tokens, BudgetKind::Cost]) {
                let value = futures_util::FutureExt::now_or_never(seen.counter(&partition(), &counter(kind)));
                peak.fetch_max(value.unwrap().unwrap(), Ordering::SeqCst);
            }
            Fate::Happens
        })
    }

    fn get(&self) -> [u64; 2] {
        [0, 1].map(|index| u64::try_from(self.0[index].load(Ordering::SeqCst)).unwrap())
    }
}

/// Starts 64 runs at once on four replicas over one store; returns how those ended that were taken.
async fn parallel(store: &Arc<dyn Store>, quota: QuotaConfig) -> (Vec<Outcome>, [u64; 2]) {
    let peaks = Peaks::default();
    let replicas: Vec<TestAgent> = (0..4)
        .map(|_| TestAgent::builder().store(peaks.over(store)).turns(two_steps()).quotas(quotas(quota)).build())
        .collect();
    let mut tasks = JoinSet::new();
    for number in 0..64 {
        let agent = replicas[number % 4].clone();
        tasks.spawn(async move {
            match agent.start(keyed(), None).await {
                Ok(started) => Some(outcome(&watch(started).await)),
                Err(StartError::BudgetExceeded { .. }) => None,
                Err(error) => panic!("{error}"),
            }
        });
    }
    let ended = tasks.join_all().await.into_iter().flatten().collect();
    assert_eq!(standing(store).await, Vec::<String>::new(), "all is settled");
    (ended, peaks.get())
}

#[tokio::test(start_paused = true)]
async fn runs_on_many_replicas_never_exceed_their_keys_token_budget() {
    let (store, limit) = (memory(), 3_000);
    let (ended, [peak, _]) = parallel(&store, tokens(limit)).await;
    assert!(peak <= limit && peak > limit / 2, "used and reserved came to {peak}");
    let used: u64 = ended.iter().map(|outcome| outcome.usage.total()).sum();
    assert_eq!(count(&store, &counter(BudgetKind::Tokens)).await, used);
    assert_eq!(ended.len(), 64, "what others have only reserved refuses nobody");
    assert!(ended.iter().all(|outcome| outcome.reason == StopReason::Done), "nor does it end a run");
}

#[tokio::test(start_paused = true)]
async fn runs_on_many_replicas_never_exceed_their_keys_cost_budget() {
    let (store, limit) = (memory(), Micros(30_000));
    let quota = QuotaConfig { cost_budget: Some(Allotment { limit, per: None }), ..QuotaConfig::default() };
    let (ended, [_, peak]) = parallel(&store, quota).await;
    assert!(peak <= limit.0 && peak > limit.0 / 2, "used and reserved came to {peak}");
    let used: u64 = ended.iter().map(|outcome| outcome.cost.0).sum();
    assert_eq!(count(&store, &counter(BudgetKind::Cost)).await, used);
    assert_eq!(ended.len(), 64, "what others have only reserved refuses nobody");
    assert!(ended.iter().all(|outcome| outcome.reason == StopReason::Done), "nor does it end a run");
}

#[tokio::test(start_paused = true)]
async fn a_sessions_budget_and_its_keys_hold_together_on_all_replicas() {
    let store = memory();
    let replicas: Vec<TestAgent> = (0..4)
        .map(|_| TestAgent::builder().store(store.clone()).turns(two_steps()).quotas(quotas(tokens(100_000))).build())
        .collect();
    let (tenant, id) = (Tenant::default_tenant(), SessionId::parse("s").unwrap());
    let new = NewSession { id: Some(id.clone()), token_budget: Some(1_100), ..NewSession::default() };
    replicas[0].sessions().create(&tenant, new).await.unwrap();
    let (mut used, mut number) = (0, 0);
    loop {
        number += 1;
        let new = NewRun { session: Some(id.clone()), ..keyed() };
        match replicas[number % 4].start(new, None).await {
            Ok(started) => used += outcome(&watch(started).await).usage.total(),
            Err(error) => {
                assert!(
                    matches!(error, StartError::BudgetExceeded { short, .. } if short.owner == BudgetOwner::Session),
                    "{error}"
                );
                break;
            }
        }
        let session = store.counter(&keys::session_partition(&tenant, &id), &keys::session_tokens()).await.unwrap();
        assert_eq!(u64::try_from(session).unwrap(), used);
        assert_eq!(count(&store, &counter(BudgetKind::Tokens)).await, used, "what the session refused is given back");
        assert_eq!(standing(&store).await, Vec::<String>::new());
    }
    assert!(used > 0 && used <= 1_100);
}

/// A run that calls a tool in a session with a budget of 2000 tokens, and the session's partition.
async fn calling_a_tool_in_a_session(agent: &TestAgent) -> (Started, Partition) {
    let (tenant, id) = (Tenant::default_tenant(), SessionId::parse("s").unwrap());
    let new = NewSession { id: Some(id.clone()), token_budget: Some(2_000), ..NewSession::default() };
    agent.sessions().create(&tenant, new).await.unwrap();
    let mut started = agent.start(NewRun { session: Some(id.clone()), ..keyed() }, None).await.unwrap();
    let mut calls = 0;
    while calls == 0 {
        let page = started.follower.next().await.unwrap().unwrap();
        calls += page.iter().filter(|record| matches!(record.event, Event::ToolStarted { .. })).count();
    }
    (started, keys::session_partition(&tenant, &id))
}

#[tokio::test(start_paused = true)]
async fn a_reservation_that_the_session_refuses_is_returned_to_the_key() {
    let store = memory();
    let turns = vec![Say::Calls("", vec![("hang", "{}")])];
    let agent = TestAgent::builder().store(store.clone()).turns(turns).quotas(quotas(tokens(100_000))).build();
    let (started, place) = calling_a_tool_in_a_session(&agent).await;
    // What others in the session took meanwhile: the key has room for the next step, the session has not.
    let take = Write::Add { counter: keys::session_tokens(), delta: 1_980, ceiling: None };
    store.commit(Tx::new(place).write(take)).await.unwrap();
    let outcome = outcome(&watch(started).await);
    assert_eq!((outcome.reason, outcome.iterations), (StopReason::TokenBudget, 1));
    assert_eq!(count(&store, &counter(BudgetKind::Tokens)).await, outcome.usage.total());
    assert_eq!(standing(&store).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_nearly_spent_key_budget_shortens_the_answer_and_a_spent_one_refuses_it() {
    let store = memory();
    let agent =
        TestAgent::builder().store(store.clone()).turns(vec![Say::Text(&["hi"])]).quotas(quotas(tokens(700))).build();
    let mut asked = Vec::new();
    let refused = loop {
        let new = NewRun { max_output_tokens: Some(600), ..keyed() };
        match agent.start(new, None).await {
            Ok(started) => assert_eq!(outcome(&watch(started).await).reason, StopReason::Done),
            Err(error) => break error,
        }
        asked.push(agent.model.requests.lock().last().unwrap().max_tokens.unwrap());
    };
    let StartError::BudgetExceeded { short, .. } = refused else { panic!("{refused}") };
    assert_eq!((short.owner, short.may_pass()), (BudgetOwner::Key, false), "{short}");
    assert!(asked.windows(2).all(|pair| pair[1] < pair[0]) && asked.len() > 3, "{asked:?}");
    assert!(*asked.last().unwrap() >= 256);
}

/// Wherever a process dies, another one ends its run, and the key is charged what the run says it used.
#[tokio::test(start_paused = true)]
async fn a_crash_at_any_commit_loses_nothing_and_settles_nothing_twice() {
    let quota = QuotaConfig {
        token_budget: Some(Allotment { limit: 50_000, per: None }),
        cost_budget: Some(Allotment { limit: Micros(1_000_000), per: None }),
        max_concurrent_runs: Some(3),
    };
    let (mut deaths, mut unborn, mut in_full) = (0, 0, 0);
    for last_wish in [Fate::DiesBefore, Fate::DiesAfter] {
        for nth in 0.. {
            let store = memory();
            let commits = AtomicUsize::new(0);
            let mortal = Faulty::new(store.clone(), move |_: &Tx| {
                if commits.fetch_add(1, Ordering::SeqCst) == nth { last_wish } else { Fate::Happens }
            });
            let first = TestAgent::builder().store(mortal.clone()).turns(two_steps()).quotas(quotas(quota)).build();
            let new = keyed();
            let (tenant, run) = (new.tenant.clone(), new.id.clone());
            let mut tasks = JoinSet::new();
            let agent = first.clone();
            tasks.spawn(async move { watch(agent.start(new, None).await.unwrap()).await.len() });
            for _ in 0..2_000 {
                tokio::task::yield_now().await;
            }
            let died = mortal.is_dead();
            mortal.die();
            let second = TestAgent::builder().store(store.clone()).turns(two_steps()).quotas(quotas(quota)).begin();
            // Longer than a lease, and than what nobody's slots are watched for.
            tokio::time::sleep(Duration::from_secs(300)).await;
            let used = if let Ok(view) = second.runs().get(&tenant, &run).await {
                let outcome = view.outcome.unwrap_or_else(|| panic!("{last_wish:?} {nth}: it has not ended"));
                assert_eq!((outcome.reason, outcome.output_text.as_str()), (StopReason::Done, "hello"));
                in_full += usize::from(outcome.usage.estimated);
                let used = outcome.budget.used + outcome.budget.unconfirmed;
                (used.tokens, used.cost.0)
            } else {
                unborn += 1;
                (0, 0)
            };
            let charged =
                (count(&store, &counter(BudgetKind::Tokens)).await, count(&store, &counter(BudgetKind::Cost)).await);
            assert_eq!(charged, used, "{last_wish:?} commit {nth}");
            assert_eq!(standing(&store).await, Vec::<String>::new(), "{last_wish:?} commit {nth}");
            assert_eq!(count(&store, &keys::slots_taken()).await, 0, "{last_wish:?} commit {nth}");
            second.close().await;
            if !died {
                break;
            }
            deaths += 1;
        }
    }
    assert!(deaths > 30 && unborn >= 4 && in_full >= 4, "{deaths} deaths, {unborn} unborn, {in_full} charged in full");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_failed_instead_of_resumed_settles_its_reservation() {
    // The process dies between the reservation and the step; then someone cancels the run.
    let store = memory();
    let mortal =
        Faulty::new(store.clone(), |tx: &Tx| if tx.partition == partition() { Fate::DiesAfter } else { Fate::Happens });
    let first = TestAgent::builder().store(mortal.clone()).turns(two_steps()).quotas(quotas(tokens(50_000))).build();
    let new = keyed();
    let (tenant, run) = (new.tenant.clone(), new.id.clone());
    let started = first.start(new, None).await.unwrap();
    while !mortal.is_dead() {
        tokio::task::yield_now().await;
    }
    assert_eq!(standing(&store).await.len(), 1);
    assert!(count(&store, &counter(BudgetKind::Tokens)).await > 300);
    let second = TestAgent::builder().store(store.clone()).turns(two_steps()).quotas(quotas(tokens(50_000))).build();
    tokio::time::sleep(Duration::from_secs(11)).await;
    second.runs().cancel(&tenant, &run).await.unwrap();
    assert_eq!((standing(&store).await.len(), count(&store, &counter(BudgetKind::Tokens)).await), (0, 0));
    drop(started);
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_reservation_stays_charged_in_full() {
    let store = memory();
    let agent = TestAgent::builder().store(store.clone()).turns(two_steps()).quotas(quotas(tokens(1_000))).build();
    let mut spec = crate::agent::machine::tests::spec();
    spec.key_name = Some(KEY.to_owned());
    let lease = agent.rooms.ownership.leases.acquire(&spec).await.unwrap().unwrap();
    let retry = || RetryWhileLeased::new(&lease.validity());
    let mut account = agent.rooms.limits.account(&spec, &agent.generation().quotas).unwrap();
    let reservation = |output_tokens| Reservation { input_tokens: 100, output_tokens, cost: Micros(0) };
    let least = reservation(256);
    account.reserve(1, reservation(500), least, Duration::from_secs(60), retry()).await.unwrap();
    let refused = account.reserve(2, reservation(950), least, Duration::from_secs(60), retry()).await;
    assert!(matches!(refused, Err(Refusal::Short(short)) if matches!(short.left(), 400 | 1_000)), "{refused:?}");
    let mut other = agent.rooms.limits.account(&spec, &agent.generation().quotas).unwrap();
    other.reserve(1, reservation(400), least, Duration::from_secs(60), retry()).await.unwrap();
    assert_eq!(count(&store, &counter(BudgetKind::Tokens)).await, 500, "the same step is not counted twice");
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(standing(&store).await, Vec::<String>::new());
    other.settle(Used::default(), retry()).await.unwrap();
    account.settle(Used::default(), retry()).await.unwrap();
    assert_eq!(count(&store, &counter(BudgetKind::Tokens)).await, 500);
}

#[tokio::test(start_paused = true)]
async fn usage_is_counted_in_its_own_period() {
    let store = memory();
    let per = |per| Some(Allotment { limit: 50_000, per: Some(per) });
    let quota = QuotaConfig { token_budget: per(Period::Day), ..QuotaConfig::default() };
    let agent = TestAgent::builder().store(store.clone()).turns(two_steps()).quotas(quotas(quota)).build();
    let day = |at| keys::budget_counter(BudgetKind::Tokens, &period_name(Some(Period::Day), at));
    let before = day(now_ms());
    let used = outcome(&watch(agent.start(keyed(), None).await.unwrap()).await).usage.total();
    let after = day(now_ms());
    // Midnight may pass meanwhile.
    let days = if before == after { vec![before] } else { vec![before, after] };
    let mut counted = 0;
    for day in &days {
        counted += count(&store, day).await;
    }
    assert_eq!((counted, count(&store, &counter(BudgetKind::Tokens)).await), (used, 0));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_lacks_only_what_others_have_reserved_waits_until_its_time_is_up() {
    let store = memory();
    let turns = vec![Say::Silent];
    let agent = TestAgent::builder().store(store.clone()).turns(turns).quotas(quotas(tokens(700))).begin();
    let mut first = agent.start(keyed(), None).await.unwrap();
    while count(&store, &counter(BudgetKind::Tokens)).await == 0 {
        first.follower.next().await.unwrap();
    }
    let began = Instant::now();
    let limits = LimitsPatch { timeout_ms: Some(3_000), ..LimitsPatch::default() };
    let refused = agent.start(NewRun { limits, ..keyed() }, None).await.err().unwrap();
    assert!((3..5).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    let StartError::BudgetExceeded { short, .. } = refused else { panic!("{refused}") };
    assert!(short.may_pass() && short.used() == 0 && short.set_aside > 300, "{short:?}");
    assert!(short.to_string().contains("0 of 700 tokens used"), "{short}");
    assert_eq!(standing(&store).await.len(), 1, "one that waits holds nothing");
}

#[tokio::test(start_paused = true)]
async fn a_run_in_the_middle_of_its_work_waits_for_what_others_in_its_session_have_reserved() {
    let store = memory();
    let turns = vec![Say::Calls("", vec![("hang", "{}")]), Say::Text(&["done"])];
    let agent = TestAgent::builder().store(store.clone()).turns(turns).begin();
    let (started, place) = calling_a_tool_in_a_session(&agent).await;
    // Another run's model call sets nearly everything aside, for longer than the tool takes.
    let other = RunId::mint();
    let hold = Hold { kind: BudgetKind::Tokens, counter: keys::session_tokens(), amount: 1_980 };
    let add = |delta| Write::Add { counter: keys::session_tokens(), delta, ceiling: None };
    let put = Write::Put { key: keys::session_hold(&other), value: encode(&vec![hold]), ttl: None };
    store.commit(Tx::new(place.clone()).write(add(1_980)).write(put)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(agent.model.requests.lock().len(), 1, "it waits");
    let delete = Write::Delete { key: keys::session_hold(&other) };
    store.commit(Tx::new(place).write(add(-1_980)).write(delete)).await.unwrap();
    let outcome = outcome(&watch(started).await);
    assert_eq!((outcome.reason, outcome.iterations), (StopReason::Done, 2));
}
