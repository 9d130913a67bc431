//! What runs took, as their tenant's usage has it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;

use super::support::{RETENTION, Say, TestAgent, client_tool, outcome, request, watch};
use crate::agent::ledger::head::Head;
use crate::agent::ledger::keys;
use crate::agent::usage::CountedRun;
use crate::agent::usage::report::{Group, GroupBy, UsageQuery};
use crate::agent::usage::row::{Day, OTHER, Totals};
use crate::agent::{NewRun, Requester, Retention};
use crate::store::embedded::EmbeddedStore;
use crate::store::faulty::{Fate, Faulty};
use crate::store::memory::MemoryStore;
use crate::store::redis::RedisStore;
use crate::store::redis::tests::servers::RedisServer;
use crate::store::{Store, Tx, Write};
use crate::types::clock::now_ms;
use crate::types::{Message, Outcome, RunId, SessionId, StopReason, Tenant};

fn tenant() -> Tenant {
    Tenant::default_tenant()
}

fn today() -> Day {
    Day::of(now_ms())
}

fn query(group_by: &[GroupBy]) -> UsageQuery {
    let group_by = group_by.to_vec();
    UsageQuery { from: today().before(1), to: today(), group_by, only: Vec::new(), after: None, limit: 100 }
}

async fn report(agent: &TestAgent, query: &UsageQuery) -> Vec<(Group, Totals)> {
    let tenant = tenant();
    agent.usage().report(Requester::from(&tenant), query).await.unwrap().groups
}

/// All that the tenant used.
async fn all(agent: &TestAgent) -> Totals {
    report(agent, &query(&[])).await.first().map(|(_, totals)| *totals).unwrap_or_default()
}

fn sum<'a>(outcomes: impl IntoIterator<Item = &'a Outcome>) -> Totals {
    let mut sum = Totals::default();
    for outcome in outcomes {
        sum += Totals::of_run(&outcome.usage, outcome.cost);
    }
    sum
}

fn of_user(user: &str, key: Option<&str>) -> NewRun {
    let mut new = NewRun { key_name: key.map(str::to_owned), ..request() };
    let sampling = crate::types::sampling::Sampling { user: Some(user.to_owned()), ..(*new.options.sampling).clone() };
    new.options.sampling = Arc::new(sampling);
    new
}

/// Runs until the run ends or waits, and its driver has left it.
async fn run(agent: &TestAgent, new: NewRun) -> Outcome {
    let outcome = outcome(&watch(agent.start(new, None).await.unwrap()).await);
    agent.idle(Duration::from_secs(5)).await;
    outcome
}

fn counts(tx: &Tx) -> bool {
    tx.writes.iter().any(|write| matches!(write, Write::Put { key, .. } if key.starts_with("counted/")))
}

/// Whether a commit unregisters runs.
fn unregisters(tx: &Tx) -> bool {
    let removes = |write: &Write| matches!(write, Write::Delete { key } if key.starts_with("run/"));
    tx.partition == keys::live_partition() && tx.writes.iter().any(removes)
}

/// What every backend must do.
async fn usage_is_the_sum_over_the_runs(store: Arc<dyn Store>) {
    let asks = || Say::Calls("", vec![("ask", "{}")]);
    let turns = vec![Say::Calls("", vec![("echo", r#"{"n":1}"#)]), Say::Text(&["hello"])];
    let other = TestAgent::builder().store(store.clone()).turns(turns).build();
    let agent = TestAgent::builder().store(store).turns(vec![asks(), asks(), Say::Text(&["hello"])]).build();
    let mut outcomes = vec![run(&other, of_user("ann", Some("one"))).await, run(&other, of_user("bob", None)).await];
    let tools = || vec![client_tool("ask")];
    let mut waiting = run(&agent, NewRun { client_tools: tools(), ..of_user("ann", Some("one")) }).await;
    for _ in 0..2 {
        assert_eq!(waiting.reason, StopReason::ClientTools);
        // A run that waits is counted as far as it came.
        assert_eq!(all(&agent).await, sum(outcomes.iter().chain([&waiting])));
        let call = waiting.required_calls[0].call.id.clone();
        let messages = vec![Message::tool(&call, "yes")];
        waiting = run(&agent, NewRun { answered: vec![call], messages, client_tools: tools(), ..request() }).await;
    }
    assert_eq!(waiting.reason, StopReason::Done);
    outcomes.push(waiting);
    assert_eq!(all(&agent).await, sum(&outcomes));

    let group = |user: &str| vec![Some(today().to_string()), Some(user.to_owned())];
    let by_user = report(&agent, &query(&[GroupBy::Day, GroupBy::User])).await;
    let of_ann = sum([&outcomes[0], &outcomes[2]]);
    assert_eq!(by_user, [(group("ann"), of_ann), (group("bob"), sum([&outcomes[1]]))]);
    let by_key = report(&agent, &query(&[GroupBy::Key, GroupBy::Agent, GroupBy::Model])).await;
    let of_key = |key: Option<&str>| vec![key.map(str::to_owned), Some("default".into()), Some("scripted/m".into())];
    assert_eq!(by_key, [(of_key(None), sum([&outcomes[1]])), (of_key(Some("one")), of_ann)]);
    let only = |by, value: &str| UsageQuery { only: vec![(by, value.to_owned())], ..query(&[]) };
    assert_eq!(report(&agent, &only(GroupBy::Key, "one")).await, [(vec![], of_ann)]);
    assert_eq!(report(&agent, &only(GroupBy::Key, "")).await, [(vec![], sum([&outcomes[1]]))], "runs without a key");
    assert_eq!(report(&agent, &only(GroupBy::Agent, "none")).await, []);
    let past = UsageQuery { from: today().before(3), to: today().before(2), ..query(&[]) };
    assert_eq!(report(&agent, &past).await, []);
    let (other, default) = (Tenant::parse("other").unwrap(), tenant());
    let of_others = agent.usage().report(Requester::from(&other), &query(&[])).await.unwrap();
    assert_eq!(of_others.groups, [], "another tenant used nothing");
    let bound = Requester { tenant: &default, agents: Some(&[]) };
    assert_eq!(agent.usage().report(bound, &query(&[])).await.unwrap().groups, [], "its key may use no agent");
}

#[tokio::test(start_paused = true)]
async fn memory_keeps_usage() {
    usage_is_the_sum_over_the_runs(Arc::new(MemoryStore::default())).await;
}

#[tokio::test]
async fn a_file_keeps_usage() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(EmbeddedStore::open(directory.path()).await.unwrap());
    usage_is_the_sum_over_the_runs(store.clone()).await;
    store.close().await;
}

#[tokio::test]
async fn redis_keeps_usage() {
    let server = RedisServer::start().await;
    let store = RedisStore::open(&server.url().parse().unwrap()).await.unwrap();
    usage_is_the_sum_over_the_runs(Arc::new(store)).await;
}

/// Waits until another replica has counted what a dead one did not, and returns what is counted a while later.
async fn counted_by_another(store: &Arc<dyn Store>) -> Totals {
    let other = TestAgent::builder().store(store.clone()).begin();
    for _ in 0..120 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if all(&other).await.runs > 0 {
            break;
        }
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    all(&other).await
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_replica_dies_around_its_counting_is_counted_once() {
    for fate in [Fate::DiesBefore, Fate::DiesAfter] {
        for asks in [false, true] {
            let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
            let link = Faulty::new(store.clone(), |_| Fate::Happens);
            let turns = if asks { vec![Say::Calls("", vec![("ask", "{}")])] } else { vec![Say::Text(&["hello"])] };
            let agent = TestAgent::builder().store(link.clone()).turns(turns).begin();
            link.next(counts, fate);
            let new = NewRun { client_tools: vec![client_tool("ask")], ..request() };
            let ended = outcome(&watch(agent.start(new, None).await.unwrap()).await);
            assert_eq!(ended.reason == StopReason::ClientTools, asks);
            link.reached().await;
            assert_eq!(counted_by_another(&store).await, sum([&ended]), "{fate:?}, it waits: {asks}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_counting_or_unregistration_fails_or_is_not_confirmed_is_counted_once() {
    for (fate, at) in [Fate::Fails, Fate::FailsAfterwards].into_iter().flat_map(|fate| [(fate, false), (fate, true)]) {
        let store = Faulty::memory();
        let agent = TestAgent::builder().store(store.clone()).turns(vec![Say::Text(&["hello"]); 3]).begin();
        let mut outcomes = vec![run(&agent, request()).await];
        store.next(if at { unregisters } else { counts }, fate);
        outcomes.push(run(&agent, request()).await);
        outcomes.push(run(&agent, request()).await);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(store.has_struck());
        assert_eq!(all(&agent).await, sum(&outcomes), "{fate:?} {at}");
        assert_eq!(agent.replica().own_entries().await.unwrap().len(), 0, "{fate:?} {at}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_deleted_before_it_is_counted_is_counted() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let link = Faulty::new(store.clone(), |_| Fate::Happens);
    let agent = TestAgent::builder().store(link.clone()).turns(vec![Say::Text(&["hello"])]).begin();
    link.next(counts, Fate::DiesBefore);
    let session = SessionId::parse("s").unwrap();
    let new = NewRun { session: Some(session.clone()), ..request() };
    let ended = outcome(&watch(agent.start(new, None).await.unwrap()).await);
    link.reached().await;
    let other = TestAgent::builder().store(store.clone()).build();
    other.sessions().delete(&tenant(), &session).await.unwrap();
    assert_eq!(all(&other).await, sum([&ended]));
    assert_eq!(counted_by_another(&store).await, sum([&ended]), "and it is not counted again");
}

#[tokio::test(start_paused = true)]
async fn runs_that_end_together_are_counted_and_unregistered_together_and_their_ends_wait_for_neither() {
    const RUNS: usize = 40;
    let (counting, removing) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let (counted, removed) = (counting.clone(), removing.clone());
    let store = Faulty::new(Arc::new(MemoryStore::default()), move |tx| {
        counted.fetch_add(usize::from(counts(tx)), Ordering::Relaxed);
        removed.fetch_add(usize::from(unregisters(tx)), Ordering::Relaxed);
        Fate::Happens
    });
    let agent = TestAgent::builder().store(store).turns(vec![Say::Text(&["hello"]); RUNS]).build();
    let started = join_all((0..RUNS).map(|_| agent.start(request(), None))).await;
    let ended = join_all(started.into_iter().map(|started| watch(started.unwrap()))).await;
    let asked = || [&counting, &removing].map(|commits| commits.load(Ordering::Relaxed));
    assert_eq!((asked(), all(&agent).await), ([0, 0], Totals::default()));
    agent.idle(Duration::from_secs(5)).await;
    assert_eq!(all(&agent).await, sum(&ended.iter().map(|records| outcome(records)).collect::<Vec<_>>()));
    assert_eq!(asked(), [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_cannot_be_counted_holds_up_no_other() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let agent = TestAgent::builder().store(store.clone()).turns(vec![Say::Text(&["hello"]); 3]).begin();
    let started = agent.start(request(), None).await.unwrap();
    let damaged = started.head.id.clone();
    let marker = Write::Put { key: keys::usage_counted(&damaged), value: "damaged".into(), ttl: None };
    store.commit(Tx::new(keys::tenant_partition(&tenant())).write(marker)).await.unwrap();
    watch(started).await;
    let others = [run(&agent, request()).await, run(&agent, request()).await];
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(all(&agent).await, sum(&others));
    let left = agent.replica().own_entries().await.unwrap();
    assert_eq!(left.len(), 1);
    assert!(left[0].0.ends_with(damaged.as_str()), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn runs_that_cannot_be_counted_cost_one_commit_a_pass_and_hold_up_no_shutdown() {
    const RUNS: usize = 200;
    let tried = Arc::<AtomicUsize>::default();
    let commits = tried.clone();
    let store = Faulty::new(Arc::new(MemoryStore::default()), move |tx| {
        let counts = counts(tx);
        commits.fetch_add(usize::from(counts), Ordering::Relaxed);
        if counts { Fate::Fails } else { Fate::Happens }
    });
    let agent = TestAgent::builder().store(store.clone()).turns(vec![Say::Text(&["hello"]); RUNS]).begin();
    let started = join_all((0..RUNS).map(|_| agent.start(request(), None))).await;
    let ended = join_all(started.into_iter().map(|started| watch(started.unwrap()))).await;
    // A pass each two seconds.
    tokio::time::sleep(Duration::from_secs(20)).await;
    let tried = tried.load(Ordering::Relaxed);
    assert!((8..=12).contains(&tried), "{tried} commits");
    let since = tokio::time::Instant::now();
    agent.idle(Duration::from_secs(60)).await;
    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
    store.follow(|_| Fate::Happens);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(all(&agent).await, sum(&ended.iter().map(|records| outcome(records)).collect::<Vec<_>>()));
    assert_eq!(agent.replica().own_entries().await.unwrap().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_ends_counts_its_runs_at_once() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let agent = TestAgent::builder().store(store.clone()).turns(vec![Say::Text(&["hello"])]).begin();
    let ended = outcome(&watch(agent.start(request(), None).await.unwrap()).await);
    let since = tokio::time::Instant::now();
    agent.announce_end();
    agent.idle(Duration::from_secs(5)).await;
    agent.close().await;
    assert!(since.elapsed() < Duration::from_millis(500), "{:?}", since.elapsed());
    assert_eq!(all(&TestAgent::builder().store(store).build()).await, sum([&ended]));
}

#[tokio::test(start_paused = true)]
async fn a_count_that_is_not_waited_for_to_its_end_makes_no_later_one_forget_it() {
    let store = Faulty::memory();
    let agent = TestAgent::builder().store(store.clone()).turns(vec![Say::Text(&["hello"])]).build();
    let started = agent.start(request(), None).await.unwrap();
    let id = started.head.id.clone();
    let ended = outcome(&watch(started).await);
    agent.idle(Duration::from_secs(5)).await;
    let head = agent.runs().get(&tenant(), &id).await.unwrap().head;
    let another = || CountedRun::found(&Head { id: RunId::mint(), ..head.clone() }, Some(&ended), 0);
    store.next(counts, Fate::HangsAfterwards);
    let tenant = tenant();
    let left = tokio::time::timeout(Duration::from_secs(1), agent.usage().count(&tenant, another())).await;
    assert!(left.is_err(), "the commit has happened, and its answer does not come");
    store.go_on();
    agent.usage().count(&tenant, another()).await.unwrap();
    assert_eq!(all(&agent).await, sum([&ended; 3]));
}

#[tokio::test(start_paused = true)]
async fn a_continued_run_that_is_deleted_before_it_is_counted_again_is_counted_whole() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let link = Faulty::new(store.clone(), |_| Fate::Happens);
    let turns = vec![Say::Calls("", vec![("ask", "{}")]), Say::Text(&["hello"])];
    let agent = TestAgent::builder().store(link.clone()).turns(turns).begin();
    let session = SessionId::parse("s").unwrap();
    let tools = || vec![client_tool("ask")];
    let new = || NewRun { session: Some(session.clone()), client_tools: tools(), ..request() };
    let waiting = run(&agent, new()).await;
    let call = waiting.required_calls[0].call.id.clone();
    link.next(counts, Fate::DiesBefore);
    let messages = vec![Message::tool(&call, "yes")];
    let answer = NewRun { answered: vec![call], messages, ..new() };
    let ended = outcome(&watch(agent.start(answer, None).await.unwrap()).await);
    link.reached().await;
    let other = TestAgent::builder().store(store.clone()).build();
    assert_eq!(all(&other).await, sum([&waiting]));
    other.sessions().delete(&tenant(), &session).await.unwrap();
    assert_eq!(all(&other).await, sum([&ended]));
}

#[tokio::test(start_paused = true)]
async fn users_beyond_the_bound_are_counted_together() {
    let retention = Retention { usage_rows: 3, ..RETENTION };
    let agent = TestAgent::builder().turns(vec![Say::Text(&["hello"]); 12]).retention(retention).begin();
    let mut outcomes = Vec::new();
    for user in ["a", "b", "c", "d", "e", "a"] {
        outcomes.push(run(&agent, of_user(user, Some("one"))).await);
    }
    let users = |groups: Vec<(Group, Totals)>| -> Vec<(String, u64)> {
        groups.into_iter().map(|(group, totals)| (group[0].clone().unwrap_or_default(), totals.runs)).collect()
    };
    let expected = [(OTHER, 2), ("a", 2), ("b", 1), ("c", 1)].map(|(user, runs)| (user.to_owned(), runs));
    assert_eq!(users(report(&agent, &query(&[GroupBy::User])).await), expected);
    // Three keys more leave no room for a row that names a model; their runs are counted all the same.
    for key in ["two", "three", "four"] {
        outcomes.push(run(&agent, of_user("z", Some(key))).await);
    }
    let models = users(report(&agent, &query(&[GroupBy::Model])).await);
    assert_eq!(models, [(OTHER.to_owned(), 1), ("scripted/m".to_owned(), 8)]);
    let agents = users(report(&agent, &query(&[GroupBy::Agent])).await);
    assert_eq!(agents, [("default".to_owned(), 9)], "agents are told apart");
    let keys = users(report(&agent, &query(&[GroupBy::Key])).await);
    assert_eq!(keys, [("four", 1), ("one", 6), ("three", 1), ("two", 1)].map(|(key, runs)| (key.to_owned(), runs)));
    assert_eq!(all(&agent).await, sum(&outcomes));
}

#[tokio::test(start_paused = true)]
async fn pages_of_a_report_have_every_group_once() {
    let agent = TestAgent::builder().turns(vec![Say::Text(&["hello"]); 5]).build();
    for user in ["a", "b", "c", "d", "e"] {
        run(&agent, of_user(user, None)).await;
    }
    for by in [vec![GroupBy::Day, GroupBy::User], vec![GroupBy::User]] {
        let (whole, mut paged) = (report(&agent, &query(&by)).await, Vec::new());
        let mut query = UsageQuery { limit: 2, ..query(&by) };
        loop {
            let page = agent.usage().report(Requester::from(&tenant()), &query).await.unwrap();
            query.after = page.groups.last().map(|(group, _)| group.clone());
            paged.extend(page.groups);
            if !page.has_more {
                break;
            }
        }
        assert_eq!((whole.len(), &paged), (5, &whole));
    }
}

#[tokio::test(start_paused = true)]
async fn rows_of_many_tenants_are_kept_at_hand_within_a_bound_and_no_sum_is_lost() {
    const TENANTS: usize = 80;
    const USERS: usize = 900;
    /// As in `usage/tallies.rs`.
    const ALL_ROWS: usize = 65_536;
    let agent = TestAgent::builder().build();
    let started = agent.start(request(), None).await.unwrap();
    let id = started.head.id.clone();
    let ended = outcome(&watch(started).await);
    let head = agent.runs().get(&tenant(), &id).await.unwrap().head;
    let named = |number: usize| Tenant::parse(&format!("t{number}")).unwrap();
    let mut most = 0;
    for number in 0..TENANTS {
        let of_user = |user| Head { id: RunId::mint(), user: Some(format!("u{user}")), ..head.clone() };
        let runs = (0..USERS).map(|user| CountedRun::found(&of_user(user), Some(&ended), 0));
        agent.usage().count_all(&named(number), runs).await.unwrap();
        most = most.max(agent.usage().rows_at_hand());
    }
    assert!((ALL_ROWS..ALL_ROWS + USERS).contains(&most), "{most}");
    for number in [0, TENANTS - 1] {
        let tenant = named(number);
        let groups = agent.usage().report(Requester::from(&tenant), &query(&[])).await.unwrap().groups;
        assert_eq!(groups[0].1.runs, USERS as u64);
    }
}
