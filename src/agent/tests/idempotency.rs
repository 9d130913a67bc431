pub(super) mod answers;
mod attempts;
mod outages;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::support::{RETENTION, Say, TestAgent, client_tool, outcome, request, shown, with_options};
use crate::agent::control::Filter;
use crate::agent::error::{ClaimError, StartError};
use crate::agent::ledger::keys;
use crate::agent::request_key::{RequestKey, RequestKeyKind};
use crate::agent::{Generation, LimitsPatch, NewRun, Retention, Started};
use crate::config::AgentReader;
use crate::store::faulty::{Fate, Faulty};
use crate::store::memory::MemoryStore;
use crate::store::{Order, Scan, Store, Tx, Write};
use crate::types::offer::ToolDefinition;
use crate::types::{CallId, Event, Message, Record, RunId, RunStatus, SessionId, StopReason, Tenant};

fn once(kind: RequestKeyKind) -> RequestKey {
    RequestKey { name: "name".into(), fingerprint: "fingerprint".into(), kind }
}

pub(super) fn by_key() -> RequestKey {
    once(RequestKeyKind::Key)
}

/// A call of a tool, then an answer.
fn turns() -> Vec<Say> {
    vec![Say::Calls("look", vec![("echo", r#"{"n":1}"#)]), Say::Text(&["he", "llo"])]
}

pub(super) fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::default())
}

pub(super) fn replica(store: &Arc<dyn Store>) -> TestAgent {
    TestAgent::builder().store(store.clone()).turns(turns()).build()
}

/// The run, its public records from where the request set in, and whether they were there before.
async fn watch(started: Started) -> (RunId, Vec<Record>, bool) {
    let (run, replayed) = (started.head.id.clone(), started.replayed);
    (run, super::support::watch(started).await, replayed)
}

fn tenant() -> Tenant {
    request().tenant
}

/// How many runs were ever named in the tenant's index, whether they came to be or not.
async fn runs_named(store: &Arc<dyn Store>) -> usize {
    let scan = Scan { prefix: keys::RUNS.to_owned(), after: None, limit: 100, order: Order::Ascending };
    store.scan(&keys::tenant_partition(&tenant()), scan).await.unwrap().len()
}

fn calls(agent: &TestAgent) -> usize {
    agent.journal.lock().len()
}

fn creates_a_run(tx: &Tx) -> bool {
    tx.writes.iter().any(|write| matches!(write, Write::Append { log, after: 0, .. } if log.starts_with("events/")))
}

#[tokio::test(start_paused = true)]
async fn fifty_duplicates_on_two_replicas_are_one_run() {
    let store = memory();
    let (one, two) = (replica(&store), replica(&store));
    let mut tasks = JoinSet::new();
    for number in 0..50 {
        let agent = if number % 2 == 0 { one.clone() } else { two.clone() };
        tasks.spawn(async move { watch(agent.start(request(), Some(&by_key())).await.unwrap()).await });
    }
    let all = tasks.join_all().await;
    let (run, records, _) = &all[0];
    assert_eq!(shown(records), "lookhello");
    assert_eq!(records[0].seq, 1);
    for (other, others, _) in &all {
        assert_eq!((other, others), (run, records), "every duplicate sees every event of the one run");
    }
    assert_eq!((calls(&one) + calls(&two), runs_named(&store).await), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_joins_a_live_run_from_its_first_event() {
    let store = memory();
    let turns = vec![Say::Calls("look", vec![("hang", "{}")]), Say::Text(&["ok"])];
    let agent = TestAgent::builder().store(store.clone()).turns(turns).build();
    let mut first = agent.start(request(), Some(&by_key())).await.unwrap();
    while !first.follower.next().await.unwrap().unwrap().iter().any(|record| record.seq >= 4) {}
    let joined = agent.start(request(), Some(&by_key())).await.unwrap();
    assert_eq!((&joined.head.id, joined.replayed), (&first.head.id, false));
    let (_, records, _) = watch(joined).await;
    assert_eq!(
        records.iter().map(|record| record.seq).collect::<Vec<_>>(),
        (1..=records.len() as u64).collect::<Vec<_>>()
    );
    assert_eq!(outcome(&records).output_text, "ok");
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_after_the_end_gets_the_same_answer() {
    let store = memory();
    let agent = replica(&store);
    let (run, records, replayed) = watch(agent.start(request(), Some(&by_key())).await.unwrap()).await;
    assert!(!replayed);
    let again = replica(&store).start(request(), Some(&by_key())).await.unwrap();
    assert_eq!(watch(again).await, (run, records, true));
    assert_eq!(calls(&agent), 1);
}

#[tokio::test(start_paused = true)]
async fn a_different_request_under_the_same_key_is_refused() {
    let store = memory();
    let agent = replica(&store);
    let other = RequestKey { fingerprint: "other".into(), ..by_key() };
    let first = agent.start(request(), Some(&by_key())).await.unwrap();
    let refused = agent.start(request(), Some(&other)).await;
    assert!(matches!(refused, Err(StartError::Claim(ClaimError::Reused))), "while it is live");
    watch(first).await;
    let refused = agent.start(request(), Some(&other)).await;
    assert!(matches!(refused, Err(StartError::Claim(ClaimError::Reused))), "after its end");
    let elsewhere = NewRun { tenant: Tenant::parse("other").unwrap(), ..request() };
    let (_, _, replayed) = watch(agent.start(elsewhere, Some(&other)).await.unwrap()).await;
    assert!(!replayed, "a tenant's keys are its own");
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_frees_its_key() {
    let store = memory();
    let agent = replica(&store);
    let poor = NewRun { limits: LimitsPatch { token_budget: Some(1), ..LimitsPatch::default() }, ..request() };
    let refused = agent.start(poor, Some(&by_key())).await;
    assert!(matches!(refused, Err(StartError::BudgetExceeded { .. })));
    let other = RequestKey { fingerprint: "other".into(), ..by_key() };
    let (_, records, replayed) = watch(agent.start(request(), Some(&other)).await.unwrap()).await;
    assert_eq!((shown(&records).as_str(), replayed), ("lookhello", false));
    agent.refuse();
    let refused = agent.start(request(), Some(&RequestKey { name: "new".into(), ..by_key() })).await;
    assert!(matches!(refused, Err(StartError::Draining)));
}

#[tokio::test(start_paused = true)]
async fn the_next_duplicate_creates_the_run_that_a_dead_claimant_did_not() {
    let faulty = Faulty::memory();
    let store: Arc<dyn Store> = faulty.clone();
    faulty.next(creates_a_run, Fate::Hangs);
    let dead = replica(&store);
    let cut_off = tokio::time::timeout(Duration::from_millis(1), dead.start(request(), Some(&by_key()))).await;
    assert!(cut_off.is_err(), "its client went away and it got no further");
    let agent = replica(&store);
    let (_, records, replayed) = watch(agent.start(request(), Some(&by_key())).await.unwrap()).await;
    assert_eq!((shown(&records).as_str(), replayed, calls(&agent)), ("lookhello", false, 1));
    assert_eq!(runs_named(&store).await, 1, "under the id that the dead one had chosen");
}

/// A request that has claimed its key and stands still before its run is created, and a second replica.
struct Stalled {
    faulty: Arc<Faulty>,
    store: Arc<dyn Store>,
    slow: TestAgent,
    quick: TestAgent,
    starting: JoinSet<Result<Started, StartError>>,
}

async fn stalled() -> Stalled {
    let faulty = Faulty::memory();
    let store: Arc<dyn Store> = faulty.clone();
    faulty.next(creates_a_run, Fate::Hangs);
    let (slow, quick) = (replica(&store), replica(&store));
    let (agent, mut starting) = (slow.clone(), JoinSet::new());
    starting.spawn(async move { agent.start(request(), Some(&by_key())).await });
    faulty.reached().await;
    Stalled { faulty, store, slow, quick, starting }
}

#[tokio::test(start_paused = true)]
async fn a_stalled_claimant_joins_the_run_of_the_one_that_replaced_it() {
    let Stalled { faulty, store, slow, quick, starting } = stalled().await;
    let (run, records, _) = watch(quick.start(request(), Some(&by_key())).await.unwrap()).await;
    faulty.go_on();
    let late = starting.join_all().await.pop().unwrap().unwrap();
    assert_eq!(watch(late).await, (run, records, true));
    assert_eq!((calls(&slow), calls(&quick), runs_named(&store).await), (0, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_stalled_claimant_does_not_recreate_a_run_that_ended_and_expired() {
    let Stalled { faulty, quick, starting, .. } = stalled().await;
    watch(quick.start(request(), Some(&by_key())).await.unwrap()).await;
    tokio::time::sleep(Duration::from_secs(700)).await;
    faulty.go_on();
    let late = starting.join_all().await;
    assert!(matches!(late[..], [Err(StartError::Store(_))]), "{late:?}");
    assert!(quick.runs().list(&tenant(), &Filter { limit: 10, ..Filter::default() }).await.unwrap().found.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_claimant_whose_commit_succeeded_without_an_answer_finds_its_run() {
    let faulty = Faulty::memory();
    let store: Arc<dyn Store> = faulty.clone();
    let agent = replica(&store);
    faulty.next(creates_a_run, Fate::FailsAfterwards);
    agent.begin();
    let started = agent.start(request(), Some(&by_key())).await.unwrap();
    let (_, records, _) = watch(started).await;
    assert_eq!((outcome(&records).output_text.as_str(), calls(&agent), runs_named(&store).await), ("hello", 1, 1));
}

#[tokio::test(start_paused = true)]
async fn after_a_store_failure_the_key_still_belongs_to_the_same_request() {
    let faulty = Faulty::memory();
    let store: Arc<dyn Store> = faulty.clone();
    let agent = replica(&store);
    faulty.next(creates_a_run, Fate::Fails);
    let failed = agent.start(request(), Some(&by_key())).await;
    assert!(matches!(failed, Err(StartError::Store(_))), "{failed:?}");
    let (_, records, _) = watch(agent.start(request(), Some(&by_key())).await.unwrap()).await;
    assert_eq!((shown(&records).as_str(), runs_named(&store).await), ("lookhello", 1));
}

#[tokio::test(start_paused = true)]
async fn an_expired_run_is_not_run_again() {
    let store = memory();
    let agent = replica(&store);
    watch(agent.start(request(), Some(&by_key())).await.unwrap()).await;
    tokio::time::sleep(Duration::from_secs(601)).await;
    let refused = agent.start(request(), Some(&by_key())).await;
    assert!(matches!(refused, Err(StartError::Claim(ClaimError::Gone))), "{refused:?}");
    assert_eq!(calls(&agent), 1);
    tokio::time::sleep(Duration::from_secs(24 * 3600)).await;
    watch(agent.start(request(), Some(&by_key())).await.unwrap()).await;
    assert_eq!(calls(&agent), 2, "a key holds for a day");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_run_is_not_run_again() {
    let store = memory();
    let agent = replica(&store);
    let session = SessionId::parse("s").unwrap();
    let asked = || NewRun { session: Some(session.clone()), ..request() };
    watch(agent.start(asked(), Some(&by_key())).await.unwrap()).await;
    // Its driver leaves it, and the note is stored.
    tokio::time::sleep(Duration::from_secs(1)).await;
    agent.sessions().delete(&tenant(), &session).await.unwrap();
    let refused = agent.start(asked(), Some(&by_key())).await;
    assert!(matches!(refused, Err(StartError::Claim(ClaimError::Gone))), "{refused:?}");
}

/// Its policy may ask for an approval, for which the run waits: a request that comes again meanwhile must find it.
#[tokio::test(start_paused = true)]
async fn a_claim_outlives_the_wait_of_a_run_whose_agent_may_be_the_tenants_own() {
    let replica = replica(&memory());
    let longest = |model: &str, agents: Option<Arc<AgentReader>>| {
        let generation = Arc::new(Generation { agents, ..Generation::default() });
        let model = Some(model.to_owned());
        replica.admission().longest(&NewRun { model, generation: Some(generation), ..request() })
    };
    let own = || Some(Arc::default());
    assert_eq!(longest("clerk", own()), longest("clerk", None) + RETENTION.wait);
    assert_eq!(longest("upstream/model", own()), longest("upstream/model", None), "no agent has such a name");
}
