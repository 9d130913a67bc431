//! Sessions as things that are copied, cancelled and forgotten.

use std::sync::Arc;
use std::time::Duration;

use super::support::*;
use crate::agent::NewRun;
use crate::agent::error::{ForkError, LookupError};
use crate::agent::ledger::keys;
use crate::agent::listed::Traits;
use crate::agent::session::NewSession;
use crate::agent::session::fork::Fork;
use crate::store::faulty::Faulty;
use crate::store::memory::MemoryStore;
use crate::store::{Order, Store};
use crate::types::session::Session;
use crate::types::{CallId, Message, Micros, Role, RunStatus, SessionId, Tenant, ToolCall};

fn id(text: &str) -> SessionId {
    SessionId::parse(text).unwrap()
}

fn tenant() -> Tenant {
    Tenant::default_tenant()
}

fn says(number: usize) -> Message {
    Message::text(Role::User, &format!("message {number}"))
}

fn new(name: &str, messages: Vec<Message>) -> NewSession {
    NewSession { id: Some(id(name)), messages, ..NewSession::default() }
}

fn fork(at: u64, name: &str) -> Fork {
    Fork { at: Some(at), id: Some(id(name)), round_down: false }
}

async fn messages(agent: &TestAgent, name: &str) -> Vec<Message> {
    agent.sessions().messages(&tenant(), &id(name), 0, 10_000, Order::Ascending).await.unwrap().0
}

#[tokio::test(start_paused = true)]
async fn a_fork_has_the_first_messages_and_the_settings_but_has_used_nothing() {
    let agent = TestAgent::builder().turns(vec![Say::Text(&["answer"])]).begin();
    let all: Vec<_> = (0..1_500).map(says).collect();
    let source = NewSession {
        agent: Some("default".into()),
        metadata: [("k".to_owned(), "v".to_owned())].into(),
        token_budget: Some(1_000_000),
        cost_budget: Some(Micros(50_000_000)),
        ttl_s: Some(77),
        ..new("s", all.clone())
    };
    agent.sessions().create(&tenant(), source).await.unwrap();
    let run = NewRun { session: Some(id("s")), ..request() };
    watch(agent.start(run, None).await.unwrap()).await;
    for at in [0, 1, 511, 512, 513, 1_024, 1_500] {
        let name = format!("f{at}");
        let forked = agent.sessions().fork(&tenant(), &id("s"), fork(at, &name)).await.unwrap();
        let read = agent.sessions().get(&tenant(), &id(&name)).await.unwrap();
        assert_eq!(forked.session, read.session);
        let session = read.session;
        assert_eq!((session.message_count, session.runs, session.usage.total()), (at, 0, 0));
        assert_eq!((session.agent.as_deref(), session.metadata["k"].as_str()), (Some("default"), "v"));
        let source = agent.sessions().get(&tenant(), &id("s")).await.unwrap().session;
        assert_eq!(session.token_budget, Some(1_000_000 - source.usage.total()), "what is left of it");
        assert_eq!(session.cost_budget, Some(Micros(50_000_000 - source.cost.0)));
        assert!(source.usage.total() > 0 && source.cost.0 > 0);
        assert_eq!(session.ttl_s, Some(77));
        assert_eq!(messages(&agent, &name).await, all[..usize::try_from(at).unwrap()]);
    }
    let whole = agent.sessions().fork(&tenant(), &id("s"), Fork::default()).await.unwrap().session;
    assert_eq!(whole.message_count, 1_502);
    let names: Vec<_> =
        agent.sessions().list(&tenant(), &Traits::default(), None, (100, Order::Ascending)).await.unwrap().found;
    assert_eq!(names.len(), 9, "forks are listed");
    let again = agent.sessions().fork(&tenant(), &id("s"), fork(1, "f1")).await;
    assert!(matches!(again, Err(ForkError::Lookup(LookupError::SessionExists(_)))));
    let other = Tenant::parse("other").unwrap();
    let foreign = agent.sessions().fork(&other, &id("s"), fork(1, "mine")).await;
    assert!(matches!(foreign, Err(ForkError::Lookup(LookupError::SessionNotFound(_)))));
}

#[tokio::test(start_paused = true)]
async fn a_fork_keeps_calls_and_their_results_together() {
    let agent = TestAgent::builder().begin();
    // Two messages, a turn of so many calls with their results, one message.
    for count in [1_usize, 3, 64, 200] {
        let call = |number| CallId::foreign(&format!("c{number}"));
        let calls: Vec<_> =
            (0..count).map(|n| ToolCall { id: call(n), name: "f".into(), arguments: "{}".into() }).collect();
        let mut all = vec![says(1), says(2), Message::assistant("", &calls)];
        all.extend((0..count).map(|number| Message::tool(&call(number), "r")));
        all.push(says(3));
        let (name, end) = (format!("s{count}"), 3 + count as u64);
        agent.sessions().create(&tenant(), new(&name, all)).await.unwrap();
        for at in 0..=end + 2 {
            let forked = agent.sessions().fork(&tenant(), &id(&name), Fork { at: Some(at), ..Fork::default() }).await;
            match forked {
                Ok(forked) => {
                    assert_eq!(forked.session.message_count, at);
                    assert!(at <= 2 || (end..=end + 1).contains(&at), "{at} of {end}");
                }
                Err(ForkError::SplitsCalls { before, after, .. }) => {
                    assert_eq!((before, after), (2, end), "{at} of {end}");
                    assert!((3..end).contains(&at));
                    let down = Fork { at: Some(at), round_down: true, ..Fork::default() };
                    let forked = agent.sessions().fork(&tenant(), &id(&name), down).await.unwrap();
                    assert_eq!(forked.session.message_count, before);
                }
                Err(ForkError::BeyondEnd { count, .. }) => assert_eq!((at, count), (end + 2, end + 1)),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_fork_that_is_interrupted_leaves_nothing() {
    let store = Faulty::memory();
    let agent = TestAgent::builder().store(store.clone()).build();
    agent.sessions().create(&tenant(), new("s", (0..2_000).map(says).collect())).await.unwrap();
    let partition = keys::session_partition(&tenant(), &id("f"));
    // Three pages ahead, the index, the last page with the session; each page is counted first.
    for commits in 0..9 {
        store.allow(commits);
        agent.sessions().fork(&tenant(), &id("s"), fork(2_000, "f")).await.unwrap_err();
        store.allow(usize::MAX);
        let found = agent.sessions().get(&tenant(), &id("f")).await;
        assert!(matches!(found, Err(LookupError::SessionNotFound(_))), "after {commits} commits");
        let left = store.read_log(&partition, &keys::messages(), 0, 0).await.unwrap().head;
        assert_eq!(left > 0, commits > 1);
    }
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(store.read_log(&partition, &keys::messages(), 0, 0).await.unwrap().head, 0, "it expires");
    store.allow(4);
    agent.sessions().fork(&tenant(), &id("s"), fork(2_000, "f")).await.unwrap_err();
    store.allow(usize::MAX);
    agent.sessions().create(&tenant(), new("f", vec![says(7)])).await.unwrap();
    assert_eq!(messages(&agent, "f").await, [says(7)], "what is left is no part of a successor");
}

#[tokio::test(start_paused = true)]
async fn of_concurrent_forks_to_one_name_one_succeeds() {
    let agent = TestAgent::builder().store(Faulty::memory()).build();
    for name in ["a", "b"] {
        let all = (0..1_500).map(|number| Message::text(Role::User, &format!("{name} {number}")));
        agent.sessions().create(&tenant(), new(name, all.collect())).await.unwrap();
    }
    let fork = async |from: &str| {
        agent.sessions().fork(&tenant(), &id(from), Fork { id: Some(id("f")), ..Fork::default() }).await
    };
    let (one, other) = tokio::join!(fork("a"), fork("b"));
    assert!(one.is_ok() != other.is_ok());
    let winner = if one.is_ok() { "a" } else { "b" };
    assert_eq!(messages(&agent, "f").await, messages(&agent, winner).await);
}

/// Two pages of a new session named `f`, so many seconds apart, and how writing them ended.
async fn write_slowly(agent: &TestAgent, text: &str, seconds: u64) -> Result<(), LookupError> {
    let page = vec![crate::agent::ledger::document::encode(&Message::text(Role::User, text))];
    let pages = async_stream::stream! {
        yield Ok(page.clone());
        yield Ok(page.clone());
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        yield Ok(page);
    };
    agent.rooms.sessions.write(&tenant(), Session::new(id("f")), pages).await.map(drop)
}

#[tokio::test(start_paused = true)]
async fn a_stalled_session_writer_does_not_mix_into_another_session() {
    let agent = TestAgent::builder().store(Faulty::memory()).build();
    let stalled = write_slowly(&agent, "stalled", 70);
    // It begins when the other's lease has run out, and is at the same place when the other goes on.
    let other = async {
        tokio::time::sleep(Duration::from_secs(65)).await;
        write_slowly(&agent, "other", 10).await
    };
    let (stalled, other) = tokio::join!(stalled, other);
    assert!(matches!(stalled, Err(LookupError::VersionConflict(_))), "{stalled:?}");
    other.unwrap();
    assert_eq!(messages(&agent, "f").await, vec![Message::text(Role::User, "other"); 3]);
}

#[tokio::test(start_paused = true)]
async fn a_session_is_forked_while_its_run_is_live() {
    let agent = TestAgent::builder().turns(vec![Say::Text(&["answer"]), Say::Calls("", vec![("hang", "{}")])]).begin();
    let run = || NewRun { session: Some(id("s")), ..request() };
    watch(agent.start(run(), None).await.unwrap()).await;
    let mut started = agent.start(run(), None).await.unwrap();
    started.follower.next().await.unwrap();
    let forked = agent.sessions().fork(&tenant(), &id("s"), Fork::default()).await.unwrap().session;
    assert_eq!((forked.message_count, forked.active_run), (2, None));
    let cancelled = agent.runs().cancel_session(&tenant(), &id("s")).await.unwrap();
    assert_eq!(cancelled.iter().map(|view| &view.head.id).collect::<Vec<_>>(), [&started.head.id]);
    assert_eq!(cancelled[0].head.status, RunStatus::Cancelled);
    assert!(cancelled[0].outcome.is_some(), "it has stopped");
    assert!(agent.runs().cancel_session(&tenant(), &id("s")).await.unwrap().is_empty());
    let absent = agent.runs().cancel_session(&tenant(), &id("absent")).await;
    assert!(matches!(absent, Err(LookupError::SessionNotFound(_))));
}

#[tokio::test(start_paused = true)]
async fn a_waiting_run_is_cancelled_with_its_session() {
    let agent = TestAgent::builder().turns(vec![Say::Calls("", vec![("pick", "{}")])]).begin();
    let client_tools = vec![client_tool("pick")];
    let run = NewRun { session: Some(id("s")), client_tools, ..request() };
    watch(agent.start(run, None).await.unwrap()).await;
    let cancelled = agent.runs().cancel_session(&tenant(), &id("s")).await.unwrap();
    assert_eq!(cancelled[0].head.status, RunStatus::Cancelled);
    assert_eq!(agent.sessions().get(&tenant(), &id("s")).await.unwrap().session.active_run, None);
}

#[tokio::test(start_paused = true)]
async fn a_sessions_counters_expire_with_it() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let agent = TestAgent::builder().store(store.clone()).turns(vec![Say::Text(&["answer"])]).build();
    let partition = keys::session_partition(&tenant(), &id("s"));
    let spent = async || store.counter(&partition, &keys::session_tokens()).await.unwrap();
    let created = NewSession { ttl_s: Some(300), token_budget: Some(1_000_000), ..new("s", vec![]) };
    agent.sessions().create(&tenant(), created).await.unwrap();
    for _ in 0..3 {
        // Each run renews it.
        tokio::time::sleep(Duration::from_secs(200)).await;
        watch(agent.start(NewRun { session: Some(id("s")), ..request() }, None).await.unwrap()).await;
    }
    assert_eq!(spent().await, 45);
    tokio::time::sleep(Duration::from_secs(299)).await;
    assert_eq!(spent().await, 45);
    agent.sessions().get(&tenant(), &id("s")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(agent.sessions().get(&tenant(), &id("s")).await.is_err());
    assert_eq!(spent().await, 0);
}

#[tokio::test(start_paused = true)]
async fn updating_a_session_does_not_expire_it_under_its_run() {
    let agent = TestAgent::builder().turns(vec![Say::Calls("", vec![("hang", "{}")]), Say::Text(&["answer"])]).begin();
    let created = NewSession { ttl_s: Some(1), ..new("s", vec![]) };
    agent.sessions().create(&tenant(), created).await.unwrap();
    let started = agent.start(NewRun { session: Some(id("s")), ..request() }, None).await.unwrap();
    agent.sessions().patch(&tenant(), &id("s"), crate::agent::session::SessionPatch::default()).await.unwrap();
    watch(started).await;
    assert_eq!(agent.sessions().get(&tenant(), &id("s")).await.unwrap().session.message_count, 4);
}

#[tokio::test(start_paused = true)]
async fn a_conversation_that_is_sent_again_is_not_stored_twice() {
    let texts = vec![Say::Text(&["one"]), Say::Calls("", vec![("echo", r#"{"n":1}"#)]), Say::Text(&["two"])];
    let agent = TestAgent::builder().turns([texts.clone(), texts].concat()).begin();
    let said = |role, text: &str| Message::text(role, text);
    let (user, model) = (|text: &str| said(Role::User, text), |text: &str| said(Role::Assistant, text));
    let ask = async |messages: Vec<Message>| {
        let new = NewRun { session: Some(id("s")), messages, ..request() };
        outcome(&watch(agent.start(new, None).await.unwrap()).await)
    };
    let stored = async || messages(&agent, "s").await.len();
    ask(vec![user("a")]).await;
    // The client has seen no call of the server's tools.
    let end = ask(vec![user("a"), model("one"), user("b")]).await;
    assert_eq!((stored().await, end.output_text.as_str()), (2 + 4, "two"));
    assert!(end.warnings.iter().any(|warning| warning.contains("first 2 of these messages")), "{:?}", end.warnings);
    let end = ask(vec![user("a"), model("one"), user("b"), model("two"), user("c")]).await;
    assert_eq!((stored().await, end.output_text.as_str()), (6 + 2, "one"));
    // From some place on.
    ask(vec![user("c"), model("one"), user("d"), user("e")]).await;
    assert_eq!(stored().await, 8 + 2 + 3);
    // What differs is new, and so is what was never said.
    let end = ask(vec![user("d"), user("e"), model("another"), user("f")]).await;
    assert_eq!(stored().await, 13 + 5);
    assert!(!end.warnings.iter().any(|warning| warning.contains("not added")), "{:?}", end.warnings);
}
