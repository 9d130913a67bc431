//! What is sent to runs that have not ended counts as stored, and what such runs have stored so far.

use super::*;
use crate::agent::ledger::session::Versioned;
use crate::agent::request_key::{RequestKey, RequestKeyKind};
use crate::types::clock;
use crate::types::run::OnConflict;
use crate::types::{RunId, RunStatus};

/// Of this size, three and the runs that they are sent to fit into the limit, and a fourth does not.
const LETTER: usize = 300 << 10;

fn letter() -> Vec<Message> {
    vec![Message::text(Role::User, &"x".repeat(LETTER))]
}

fn refuses(sent: &Result<(), LookupError>) -> bool {
    matches!(sent, Err(LookupError::Storage(StorageError::Full { limit: LIMIT, stored: TAKEN.., .. })))
}

async fn send(agent: &TestAgent, run: &RunId) -> Result<(), LookupError> {
    agent.runs().steer(&tenant(), run, letter(), None).await.map(drop)
}

/// A run that waits for its client.
async fn waiting(agent: &TestAgent) -> (RunId, CallId) {
    let started = agent.start(asking("question"), None).await.unwrap();
    let run = started.head.id.clone();
    let outcome = outcome(&watch(started).await);
    agent.idle(Duration::from_secs(5)).await;
    (run, outcome.required_calls[0].call.id.clone())
}

fn answer(call: &CallId, bytes: usize) -> NewRun {
    NewRun { answered: vec![call.clone()], messages: vec![Message::tool(call, &"y".repeat(bytes))], ..request() }
}

/// What every backend must do with what is sent to runs that wait for their clients.
async fn what_is_sent_to_waiting_runs_is_counted_until_they_end(store: Arc<dyn Store>, ended_bytes: Option<u64>) {
    let retention = Retention { tenant_bytes: LIMIT, ended_bytes, ..RETENTION };
    let turns = vec![Say::Calls("", vec![("ask", "{}")])];
    let agent = TestAgent::builder().store(store).turns(turns).retention(retention).build();
    let (one, _) = waiting(&agent).await;
    let (two, _) = waiting(&agent).await;
    for run in [&one, &one, &two] {
        send(&agent, run).await.unwrap();
    }
    let (counter, stored) = counted(&agent).await;
    assert_eq!(counter, stored);
    assert!(counter >= i64::try_from(3 * LETTER).unwrap(), "{counter}");
    let refused = send(&agent, &two).await;
    assert!(refuses(&refused), "{refused:?}");
    assert_eq!(counted(&agent).await, (counter, stored), "what was refused takes nothing");
    agent.runs().cancel(&tenant(), &one).await.unwrap();
    let (counter, stored) = counted(&agent).await;
    assert!(stored < i64::try_from(4 * LETTER).unwrap(), "the inbox is gone, the log has its messages: {stored}");
    assert_eq!(counter, stored);
}

#[tokio::test(start_paused = true)]
async fn memory_counts_what_is_sent_to_waiting_runs() {
    what_is_sent_to_waiting_runs_is_counted_until_they_end(Arc::new(MemoryStore::default()), Some(8 << 20)).await;
}

#[tokio::test]
async fn a_file_counts_what_is_sent_to_waiting_runs() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(EmbeddedStore::open(directory.path()).await.unwrap());
    what_is_sent_to_waiting_runs_is_counted_until_they_end(store.clone(), Some(8 << 20)).await;
    store.close().await;
}

#[tokio::test]
async fn redis_counts_what_is_sent_to_waiting_runs() {
    let server = RedisServer::start().await;
    let store = RedisStore::open(&server.url().parse().unwrap()).await.unwrap();
    what_is_sent_to_waiting_runs_is_counted_until_they_end(Arc::new(store), Some(8 << 20)).await;
}

/// A tool call during which a run is under way for as long as it may be.
fn hangs(text: &'static str) -> Vec<Say> {
    vec![Say::Calls(text, vec![("hang", "{}")]), Say::Text(&["done"])]
}

#[tokio::test(start_paused = true)]
async fn what_is_sent_to_queued_and_live_runs_is_counted() {
    let agent = agent(hangs(""));
    let in_session = || NewRun { session: Some(id("s")), on_conflict: OnConflict::Enqueue, ..request() };
    let live = agent.start(in_session(), None).await.unwrap().head;
    let queued = agent.start(in_session(), None).await.unwrap().head;
    assert_eq!((live.status, queued.status), (RunStatus::InProgress, RunStatus::Queued));
    for run in [&live.id, &queued.id, &queued.id] {
        send(&agent, run).await.unwrap();
    }
    let (counter, stored) = counted(&agent).await;
    assert!(counter >= i64::try_from(3 * LETTER).unwrap(), "{counter}");
    assert!(counter.abs_diff(stored) < 1_024, "but for the session's document: {counter}, {stored}");
    let refused = send(&agent, &queued.id).await;
    assert!(refuses(&refused), "{refused:?}");
    let started = agent.start(asking(&"x".repeat(LETTER)), None).await.map(drop);
    assert!(matches!(started, Err(StartError::Storage(StorageError::Full { .. }))), "{started:?}");
    for run in [&queued.id, &live.id] {
        assert_eq!(agent.runs().cancel(&tenant(), run).await.unwrap().head.status, RunStatus::Cancelled);
    }
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_is_full_answers_no_run_and_the_run_waits_on() {
    let agent = agent(vec![Say::Calls("", vec![("ask", "{}")]), Say::Text(&["done"])]);
    let (run, call) = waiting(&agent).await;
    for name in ["a", "b"] {
        create(&agent, &tenant(), name).await.unwrap();
    }
    let (_, stored) = counted(&agent).await;
    for _ in 0..2 {
        let refused = agent.start(answer(&call, 500 << 10), None).await.map(drop);
        assert!(matches!(refused, Err(StartError::Storage(StorageError::Full { limit: LIMIT, .. }))), "{refused:?}");
        let view = agent.runs().get(&tenant(), &run).await.unwrap();
        assert_eq!(view.head.status, RunStatus::RequiresAction);
        assert_eq!(counted(&agent).await, (stored, stored), "the answer takes nothing");
        pause().await;
    }
    agent.sessions().delete(&tenant(), &id("a")).await.unwrap();
    assert_eq!(leg(&agent, answer(&call, 500 << 10)).await.reason, StopReason::Done);
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_counted_before_the_run_ends() {
    let turns = vec![Say::Calls("", vec![("ask", "{}")]), Say::Calls("", vec![("hang", "{}")])];
    let agent = agent(turns);
    let (_, call) = waiting(&agent).await;
    // Less than what a driver counts by itself.
    let _live = agent.start(answer(&call, LETTER / 2), None).await.unwrap();
    let (counter, stored) = counted(&agent).await;
    assert_eq!(counter, stored);
    assert!(counter > i64::try_from(LETTER / 2).unwrap(), "{counter}");
}

#[tokio::test(start_paused = true)]
async fn what_a_run_says_is_counted_while_it_goes_on() {
    let agent = agent(hangs("x".repeat(LETTER).leak()));
    let run = agent.start(request(), None).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (counter, stored) = counted(&agent).await;
    assert_eq!(counter, stored);
    assert!(counter > i64::try_from(LETTER).unwrap(), "the text as it came: {counter}");
    agent.runs().cancel(&tenant(), &run.head.id).await.unwrap();
    agent.idle(Duration::from_secs(5)).await;
    let (counter, stored) = counted(&agent).await;
    assert!(counter >= stored && stored > i64::try_from(2 * LETTER).unwrap(), "and in its turn: {counter}, {stored}");
}

/// Sessions are made and deleted under keys, of which the server keeps that they were used.
#[tokio::test(start_paused = true)]
async fn keys_count_for_as_long_as_they_hold_though_what_they_led_to_is_deleted() {
    const KEYS: usize = 20;
    let agent = agent(vec![Say::Text(&["done"])]);
    let key = |number: usize| {
        let name = format!("key {number}");
        RequestKey { fingerprint: name.clone(), name, kind: RequestKeyKind::Key }
    };
    let run = async |key: Option<RequestKey>| {
        let run = NewRun { session: Some(id("s")), ..request() };
        watch(agent.start(run, key.as_ref()).await.unwrap()).await;
        agent.sessions().delete(&tenant(), &id("s")).await.unwrap();
    };
    run(None).await;
    agent.idle(Duration::from_secs(5)).await;
    // The definitions of tools, which stay for longer.
    let (_, before) = counted(&agent).await;
    for number in 0..KEYS {
        run(Some(key(number))).await;
    }
    agent.idle(Duration::from_secs(5)).await;
    let (counter, stored) = counted(&agent).await;
    let least = before + i64::try_from(KEYS * 300).unwrap();
    assert!((least..2 * least).contains(&stored) && counter >= stored, "{counter}, {stored}");
    // A key holds for a day after the longest run, and is counted for up to six hours more.
    tokio::time::sleep(Duration::from_secs(23 * 3600)).await;
    clock::shift(23 * 3_600_000);
    assert_eq!(counted(&agent).await.1, stored);
    tokio::time::sleep(Duration::from_secs(8 * 3600)).await;
    clock::shift(31 * 3_600_000);
    assert_eq!(counted(&agent).await.1, before);
    clock::shift(0);
}

#[tokio::test(start_paused = true)]
async fn a_key_under_which_a_session_is_made_or_a_message_is_sent_counts() {
    let agent = agent(hangs(""));
    let key = |name: &str| RequestKey { name: name.into(), fingerprint: name.into(), kind: RequestKeyKind::Key };
    let live = agent.start(request(), None).await.unwrap().head.id;
    let (_, before) = counted(&agent).await;
    for _ in 0..2 {
        agent.runs().steer(&tenant(), &live, letter(), Some(&key("sent"))).await.unwrap();
    }
    let (counter, stored) = counted(&agent).await;
    assert_eq!(counter, stored);
    let taken = stored - before - i64::try_from(LETTER).unwrap();
    assert!((300..1_000).contains(&taken), "once: {taken}");
    let (sessions, owner) = (agent.sessions(), tenant());
    let make = async |id| sessions.create(&owner, NewSession { id: Some(id), ..NewSession::default() }).await;
    let key = key("made");
    let made = agent.admission().make_session::<LookupError, _>(&owner, Some(&key), id("s"), Arc::default(), make);
    made.await.unwrap();
    agent.sessions().delete(&tenant(), &id("s")).await.unwrap();
    let (_, kept) = counted(&agent).await;
    assert!((300..1_000).contains(&(kept - stored)), "{kept}");
}

#[tokio::test(start_paused = true)]
async fn a_key_under_which_a_waiting_run_is_answered_counts() {
    let mut taken = Vec::new();
    for name in [None, Some("answered")] {
        let agent = agent(vec![Say::Calls("", vec![("ask", "{}")]), Say::Text(&["done"])]);
        let (_, call) = waiting(&agent).await;
        let key =
            name.map(|name| RequestKey { name: name.into(), fingerprint: name.into(), kind: RequestKeyKind::Key });
        watch(agent.start(answer(&call, 10), key.as_ref()).await.unwrap()).await;
        agent.idle(Duration::from_secs(5)).await;
        taken.push(counted(&agent).await.1);
    }
    assert!((300..1_000).contains(&(taken[1] - taken[0])), "{taken:?}");
}

#[tokio::test(start_paused = true)]
async fn a_key_of_a_session_that_is_not_made_or_a_message_that_is_not_sent_does_not_count() {
    let retention = Retention { inbox_bytes: 1 << 10, ..RETENTION };
    let agent = TestAgent::builder().turns(hangs("")).retention(retention).build();
    let key = |name: &str| RequestKey { name: name.into(), fingerprint: name.into(), kind: RequestKeyKind::Key };
    let live = agent.start(request(), None).await.unwrap().head.id;
    let say = |name: &str| (vec![Message::text(Role::User, &"x".repeat(600))], key(name));
    let (messages, sent) = say("sent");
    agent.runs().steer(&tenant(), &live, messages, Some(&sent)).await.unwrap();
    let before = counted(&agent).await;

    let refuse = async |_| Err::<Versioned, _>(LookupError::SessionNotFound("s".to_owned()));
    let made = agent.admission().make_session(&tenant(), Some(&key("made")), id("s"), Arc::default(), refuse).await;
    assert!(made.is_err());
    assert_eq!(counted(&agent).await, before, "no session is made");

    let (messages, refused) = say("refused");
    let sent = agent.runs().steer(&tenant(), &live, messages, Some(&refused)).await.map(drop);
    assert!(matches!(sent, Err(LookupError::InboxFull(_))), "{sent:?}");
    assert_eq!(counted(&agent).await, before, "no message is sent");
}

/// The session changes while the run is being stored, which is then tried once more.
#[tokio::test(start_paused = true)]
async fn a_key_counts_once_however_often_its_run_is_tried() {
    let store = Faulty::memory();
    let agent = TestAgent::builder().store(store.clone()).turns(vec![Say::Text(&["done"])]).build();
    let mut taken = Vec::new();
    for name in ["a", "b", "c"] {
        agent.sessions().create(&tenant(), NewSession { id: Some(id(name)), ..NewSession::default() }).await.unwrap();
        let (_, before) = counted(&agent).await;
        let key = RequestKey { name: name.into(), fingerprint: name.into(), kind: RequestKeyKind::Key };
        let run = NewRun { session: Some(id(name)), ..request() };
        let started = if name == "c" {
            store.next(records(|event| matches!(event, Event::RunStarted)), Fate::Hangs);
            let change = async {
                store.reached().await;
                agent.sessions().patch(&tenant(), &id(name), SessionPatch::default()).await.unwrap();
                store.go_on();
            };
            tokio::join!(agent.start(run, Some(&key)), change).0
        } else {
            agent.start(run, Some(&key)).await
        };
        watch(started.unwrap()).await;
        agent.idle(Duration::from_secs(5)).await;
        taken.push(counted(&agent).await.1 - before);
    }
    assert!(store.has_struck());
    // The first run stores definitions of tools, too.
    assert!(taken[1].abs_diff(taken[2]) < 200, "{taken:?}");
}
