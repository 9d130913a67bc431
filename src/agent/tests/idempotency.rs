use std::sync::Arc;
use std::time::Duration;

use super::support::{RETENTION, Say, TestAgent, client_tool, outcome, request, shown, with_options};
use crate::agent::control::Filter;
use crate::agent::error::{ClaimError, StartError};
use crate::agent::ledger::keys;
use crate::agent::request_key::{Kind, RequestKey};
use crate::agent::{LimitsPatch, NewRun, Started};
use crate::store::faulty::{Fate, Faulty};
use crate::store::memory::MemoryStore;
use crate::store::{Order, Scan, Store, Tx, Write};
use crate::types::offer::ToolDefinition;
use crate::types::{CallId, Event, Message, Record, RunId, RunStatus, SessionId, StopReason, Tenant};

fn once(kind: Kind) -> RequestKey {
    RequestKey { name: "name".into(), fingerprint: "fingerprint".into(), kind }
}

pub(super) fn by_key() -> RequestKey {
    once(Kind::Key)
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

fn resumes_a_run(tx: &Tx) -> bool {
    let resumed =
        |entry: &bytes::Bytes| entry.windows(11).any(|part| part == b"RunResumed\"" || part == b"run_resumed");
    tx.writes.iter().any(|write| matches!(write, Write::Append { entries, .. } if entries.iter().any(resumed)))
}

#[tokio::test(start_paused = true)]
async fn fifty_duplicates_on_two_replicas_are_one_run() {
    let store = memory();
    let (one, two) = (replica(&store), replica(&store));
    let mut tasks = tokio::task::JoinSet::new();
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

#[tokio::test(start_paused = true)]
async fn a_stalled_claimant_joins_the_run_of_the_one_that_replaced_it() {
    let faulty = Faulty::memory();
    let store: Arc<dyn Store> = faulty.clone();
    faulty.next(creates_a_run, Fate::Hangs);
    let (slow, quick) = (replica(&store), replica(&store));
    let agent = slow.clone();
    let mut stalled = tokio::task::JoinSet::new();
    stalled.spawn(async move { watch(agent.start(request(), Some(&by_key())).await.unwrap()).await });
    faulty.reached().await;
    let (run, records, _) = watch(quick.start(request(), Some(&by_key())).await.unwrap()).await;
    faulty.go_on();
    assert_eq!(stalled.join_all().await, [(run, records, true)]);
    assert_eq!((calls(&slow), calls(&quick), runs_named(&store).await), (0, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_stalled_claimant_does_not_recreate_a_run_that_ended_and_expired() {
    let faulty = Faulty::memory();
    let store: Arc<dyn Store> = faulty.clone();
    faulty.next(creates_a_run, Fate::Hangs);
    let (slow, quick) = (replica(&store), replica(&store));
    let agent = slow.clone();
    let mut stalled = tokio::task::JoinSet::new();
    stalled.spawn(async move { agent.start(request(), Some(&by_key())).await.map(|started| started.head) });
    faulty.reached().await;
    watch(quick.start(request(), Some(&by_key())).await.unwrap()).await;
    tokio::time::sleep(Duration::from_secs(700)).await;
    faulty.go_on();
    let late = stalled.join_all().await;
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

fn weather() -> Arc<ToolDefinition> {
    client_tool("weather")
}

/// A run that waits for its client, and the request that answers it with its whole transcript.
pub(super) async fn handed_over(agent: &TestAgent, session: Option<SessionId>) -> (RunId, u64, NewRun) {
    let asked = NewRun { client_tools: vec![weather()], session: session.clone(), ..request() };
    let (run, records, _) = watch(agent.start(asked, Some(&by_key())).await.unwrap()).await;
    let outcome = outcome(&records);
    assert_eq!(outcome.reason, StopReason::ClientTools);
    let id: CallId = outcome.required_calls[0].call.id.clone();
    let result = Message::tool(&id, "rain");
    let answer = NewRun {
        messages: vec![result],
        answers_from: 0,
        answered: vec![id],
        client_tools: vec![weather()],
        session,
        ..request()
    };
    (run, records.len() as u64, answer)
}

pub(super) fn handing_over(store: &Arc<dyn Store>) -> TestAgent {
    let turns = vec![Say::Calls("", vec![("weather", "{}")]), Say::Text(&["rain it is"])];
    TestAgent::builder().store(store.clone()).turns(turns).build()
}

fn answering() -> RequestKey {
    RequestKey { name: "answer".into(), fingerprint: "answer".into(), kind: Kind::Key }
}

#[tokio::test(start_paused = true)]
async fn a_waiting_run_is_resumed_once() {
    for session in [None, SessionId::parse("s")] {
        let store = memory();
        let (one, two) = (handing_over(&store), handing_over(&store));
        let (run, waited_at, answer) = handed_over(&one, session).await;
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..10 {
            let (agent, answer) = (if number % 2 == 0 { one.clone() } else { two.clone() }, answer.clone());
            tasks.spawn(async move { watch(agent.start(answer, Some(&answering())).await.unwrap()).await });
        }
        let all = tasks.join_all().await;
        for (other, records, _) in &all {
            assert_eq!((other, records), (&run, &all[0].1));
            assert_eq!(records[0].seq, waited_at + 1, "only what came of the answer");
            assert!(matches!(records[0].event, Event::RunResumed { .. }));
            assert_eq!(outcome(records).output_text, "rain it is");
        }
        assert_eq!(runs_named(&store).await, 1);
        let again = one.start(answer, Some(&answering())).await.unwrap();
        assert_eq!(watch(again).await, (run, all[0].1.clone(), true));
        let asked = NewRun { client_tools: vec![weather()], ..request() };
        let (_, first, replayed) = watch(one.start(asked, Some(&by_key())).await.unwrap()).await;
        assert_eq!((first.len() as u64, replayed), (waited_at, true), "the question's answer is what it was");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_still_names_its_run_when_the_run_has_waited_for_its_client() {
    let agent = handing_over(&memory());
    handed_over(&agent, None).await;
    for after in [Duration::from_secs(24 * 3600), RETENTION.wait] {
        tokio::time::sleep(after).await;
        let again = agent.start(NewRun { client_tools: vec![weather()], ..request() }, Some(&by_key())).await;
        assert!(matches!(again, Err(StartError::Claim(ClaimError::Gone))), "no second run begins: {again:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_duplicate_resumes_the_run_that_a_dead_one_did_not() {
    for fate in [Fate::Hangs, Fate::FailsAfterwards] {
        let faulty = Faulty::memory();
        let store: Arc<dyn Store> = faulty.clone();
        let dead = handing_over(&store);
        let (run, waited_at, answer) = handed_over(&dead, None).await;
        faulty.next(resumes_a_run, fate);
        let key = answering();
        let cut_off = dead.start(answer.clone(), Some(&key));
        drop(tokio::time::timeout(Duration::from_millis(1), cut_off).await);
        assert!(faulty.has_struck(), "{fate:?}");
        let agent = handing_over(&store);
        agent.begin();
        let (other, records, _) = watch(agent.start(answer, Some(&answering())).await.unwrap()).await;
        assert_eq!((other, records[0].seq), (run, waited_at + 1), "{fate:?}");
        assert_eq!(outcome(&records).output_text, "rain it is", "{fate:?}");
        assert_eq!(runs_named(&store).await, 1, "{fate:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_retried_attempt_joins_its_own_run() {
    let store = memory();
    let agent = replica(&store);
    let start = async |kind| watch(agent.start(request(), Some(&once(kind))).await.unwrap()).await;
    let (first, records, _) = start(Kind::FirstAttempt).await;
    assert_eq!(start(Kind::Repeated).await, (first.clone(), records, true));
    let (second, _, replayed) = start(Kind::FirstAttempt).await;
    assert!(second != first && !replayed, "a first attempt always begins anew");
    assert_eq!(start(Kind::Repeated).await.0, second);
    assert_eq!(calls(&agent), 2);
}

#[tokio::test(start_paused = true)]
async fn a_refused_attempt_is_not_answered_by_an_earlier_request() {
    let store = memory();
    let (agent, draining) = (replica(&store), replica(&store));
    let start = async |kind| watch(agent.start(request(), Some(&once(kind))).await.unwrap()).await;
    let (earlier, _, _) = start(Kind::FirstAttempt).await;
    draining.refuse();
    let refused = draining.start(request(), Some(&once(Kind::FirstAttempt))).await;
    assert!(matches!(refused, Err(StartError::Draining)));
    assert_ne!(start(Kind::Repeated).await.0, earlier);
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_does_not_end_a_run_that_waits_already() {
    let store = memory();
    let agent = handing_over(&store);
    let session = SessionId::parse("s").unwrap();
    let (run, _, _) = handed_over(&agent, Some(session.clone())).await;
    let late = NewRun { id: run.clone(), session: Some(session), ..request() };
    let refused = agent.start(late, None).await;
    assert!(matches!(refused, Err(StartError::Claim(ClaimError::Busy))), "{refused:?}");
    assert_eq!(agent.runs().get(&tenant(), &run).await.unwrap().head.status, RunStatus::RequiresAction);
}

#[tokio::test(start_paused = true)]
async fn a_retried_attempt_joins_a_live_run_or_begins_one() {
    let store = memory();
    let turns = vec![Say::Calls("", vec![("hang", "{}")]), Say::Text(&["ok"])];
    let agent = TestAgent::builder().store(store.clone()).turns(turns).build();
    let lost = agent.start(request(), Some(&once(Kind::Repeated))).await.unwrap();
    let run = lost.head.id.clone();
    drop(lost);
    let (joined, records, replayed) = watch(agent.start(request(), Some(&once(Kind::Repeated))).await.unwrap()).await;
    assert_eq!((joined, records[0].seq, replayed), (run, 1, false));
    assert_eq!(runs_named(&store).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_came_to_nothing_may_be_tried_again_but_not_under_a_key() {
    let store = memory();
    let agent = TestAgent::builder().store(store.clone()).turns(vec![Say::Break(&[])]).begin();
    let start = async |kind| {
        let new = with_options(|options| options.max_discards = 0);
        watch(agent.start(new, Some(&RequestKey { name: format!("{kind:?}"), ..once(kind) })).await.unwrap()).await
    };
    let (failed, records, _) = start(Kind::Key).await;
    assert_eq!(outcome(&records).status(), RunStatus::Failed);
    assert_eq!(start(Kind::Key).await, (failed, records, true));
    let (failed, records, _) = start(Kind::Repeated).await;
    assert!(outcome(&records).may_be_repeated());
    assert_ne!(start(Kind::Repeated).await.0, failed);
}
