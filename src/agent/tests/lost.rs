//! What becomes of a run of which the store lost something.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::link::Link;
use super::replicas::{over, replica, shared, status, tenant};
use super::support::{Say, TestAgent, client_tool, outcome, request, watch};
use crate::agent::NewRun;
use crate::agent::error::LookupError;
use crate::agent::follow::FollowError;
use crate::agent::ledger::keys;
use crate::agent::session::NewSession;
use crate::store::faulty::{Fate, Faulty};
use crate::store::{Store, Tx, Write};
use crate::types::run::OnConflict;
use crate::types::{Message, Role, RunId, RunStatus, SessionId, StopReason};

fn in_session(on_conflict: OnConflict) -> NewRun {
    NewRun { session: SessionId::parse("s"), on_conflict, ..request() }
}

/// A defect that one run meets ends that run, and the process serves the others.
#[tokio::test(start_paused = true)]
async fn a_driver_that_panics_fails_its_run_and_no_other() {
    let agent = TestAgent::builder().turns(vec![Say::Panic, Say::Text(&["done"])]).begin();
    let said = ["Hi", "Hello"].into_iter().zip([Role::User, Role::Assistant]);
    let messages = said.chain([("Go on", Role::User)]).map(|(text, role)| Message::text(role, text)).collect();
    let broken = agent.start(in_session(OnConflict::Reject), None).await.unwrap();
    let whole = agent.start(NewRun { messages, ..request() }, None).await.unwrap();
    let ended = outcome(&watch(broken).await);
    assert_eq!((ended.reason, ended.status()), (StopReason::InternalError, RunStatus::Failed));
    assert!(!ended.error.unwrap().message.contains("as told"), "its words may quote anything");
    assert_eq!(outcome(&watch(whole).await).output_text, "done");
    let session = agent.sessions().get(&tenant(), &SessionId::parse("s").unwrap()).await.unwrap().session;
    assert!(!session.has_runs(), "the session goes on");
}

#[tokio::test(start_paused = true)]
async fn a_lost_run_frees_its_session_and_ends_its_readers_streams() {
    let store = shared();
    let a = replica(Link::to(&store), vec![Say::Stall(&["x"])]);
    let b = replica(Link::to(&store), vec![Say::Text(&["done"])]);
    let lost = a.agent.start(in_session(OnConflict::Reject), None).await.unwrap().head.id;
    let next = b.agent.start(in_session(OnConflict::Enqueue), None).await.unwrap();
    let beside = b.agent.start(in_session(OnConflict::Concurrent), None).await.unwrap();
    assert_eq!(outcome(&watch(beside).await).reason, StopReason::Done);
    let mut reader = b.agent.runs().follow(&tenant(), &lost, 0).await.unwrap().follower.unwrap();
    let mut reading = JoinSet::new();
    reading.spawn(async move {
        let mut records = Vec::new();
        while let Some(page) = reader.next().await.unwrap() {
            records.extend(page.iter().map(|record| (**record).clone()));
        }
        (records, Instant::now())
    });
    a.link.cut(true);
    let partition = keys::session_partition(&tenant(), &SessionId::parse("s").unwrap());
    store.commit(Tx::new(partition).write(Write::Delete { key: keys::spec(&lost) })).await.unwrap();
    let took = over(&b, &lost).await;
    assert!(took <= Duration::from_secs(13), "{took:?}");
    let ended = Instant::now();
    assert_eq!(outcome(&watch(next).await).reason, StopReason::Done);
    assert!(ended.elapsed() <= Duration::from_millis(500), "the next one was called after {:?}", ended.elapsed());
    let (records, told) = reading.join_next().await.unwrap().unwrap();
    assert_eq!(outcome(&records).reason, StopReason::StoreLostState);
    assert!(told.saturating_duration_since(ended) <= Duration::from_millis(10), "a nudge tells its readers");
    let session = b.agent.sessions().get(&tenant(), &SessionId::parse("s").unwrap()).await.unwrap().session;
    assert!(!session.has_runs());
}

#[tokio::test(start_paused = true)]
async fn a_lost_run_is_removed_from_its_session() {
    for on_conflict in [OnConflict::Reject, OnConflict::Concurrent] {
        let store = shared();
        let a = replica(Link::to(&store), vec![Say::Stall(&["x"])]);
        let b = replica(Link::to(&store), vec![]);
        let lost = a.agent.start(in_session(on_conflict), None).await.unwrap().head.id;
        a.link.cut(true);
        let id = SessionId::parse("s").unwrap();
        let lose = Write::Delete { key: keys::spec(&lost) };
        store.commit(Tx::new(keys::session_partition(&tenant(), &id)).write(lose)).await.unwrap();
        over(&b, &lost).await;
        let session = b.agent.sessions().get(&tenant(), &id).await.unwrap().session;
        assert!(!session.has_runs(), "{session:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_does_not_expire_under_its_other_runs_when_one_is_lost() {
    let store = shared();
    let a = replica(Link::to(&store), vec![Say::Stall(&["x"])]);
    let b = replica(Link::to(&store), vec![Say::Stall(&["y"])]);
    let id = SessionId::parse("s").unwrap();
    let brief = NewSession { id: Some(id.clone()), ttl_s: Some(1), ..NewSession::default() };
    b.agent.sessions().create(&tenant(), brief).await.unwrap();
    let lost = a.agent.start(in_session(OnConflict::Reject), None).await.unwrap().head.id;
    let kept = b.agent.start(in_session(OnConflict::Concurrent), None).await.unwrap().head.id;
    a.link.cut(true);
    let lose = Write::Delete { key: keys::spec(&lost) };
    store.commit(Tx::new(keys::session_partition(&tenant(), &id)).write(lose)).await.unwrap();
    over(&b, &lost).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(status(&b, &kept).await, RunStatus::InProgress);
    assert_eq!(b.agent.sessions().get(&tenant(), &id).await.unwrap().session.concurrent_runs, [kept]);
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_applied_commands_are_lost_still_ends() {
    let store = shared();
    let mut commits = 0;
    // A run that asked again and again would never wait for anything; after so many commits it is stopped.
    let faulty = Faulty::new(Link::to(&store), move |_| {
        commits += 1;
        if commits > 200 { Fate::DiesBefore } else { Fate::Happens }
    });
    let turns = vec![Say::Calls("", vec![("hang", "{}")]), Say::Calls("", vec![("hang", "{}")]), Say::Text(&["done"])];
    let agent = TestAgent::builder().store(faulty).turns(turns).begin();
    let started = agent.start(request(), None).await.unwrap();
    let run = started.head.id.clone();
    let say = |text: &str| vec![Message::text(Role::User, text)];
    for text in ["one", "two"] {
        agent.runs().steer(&tenant(), &run, say(text), None).await.unwrap();
    }
    // Both are read before the second model call.
    tokio::time::sleep(Duration::from_secs(7)).await;
    let partition = keys::run_partition(&tenant(), None, &run);
    let lose = Write::DeleteLog { log: keys::inbox(&run) };
    store.commit(Tx::new(partition).write(lose)).await.unwrap();
    let watched = tokio::time::timeout(Duration::from_secs(30), watch(started)).await;
    assert_eq!(outcome(&watched.expect("it ends")).output_text, "done");
}

#[tokio::test(start_paused = true)]
async fn a_command_after_lost_ones_is_applied_once_another_follows() {
    let store = shared();
    let a = replica(Link::to(&store), vec![Say::Stall(&["x"])]);
    let run = a.agent.start(request(), None).await.unwrap().head.id;
    let say = |text: &str| vec![Message::text(Role::User, text)];
    for text in ["one", "two"] {
        a.agent.runs().steer(&tenant(), &run, say(text), None).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let lose = Write::DeleteLog { log: keys::inbox(&run) };
    store.commit(Tx::new(keys::run_partition(&tenant(), None, &run)).write(lose)).await.unwrap();
    a.agent.runs().steer(&tenant(), &run, say("three"), None).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    TestAgent::builder().store(store.clone()).build().runs().cancel(&tenant(), &run).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(status(&a, &run).await, RunStatus::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_damaged_event_is_reported_to_its_reader_not_skipped() {
    let store = shared();
    let a = replica(Link::to(&store), vec![Say::Text(&["done"])]);
    let started = a.agent.start(request(), None).await.unwrap();
    let run = started.head.id.clone();
    let records = watch(started).await;
    // Its driver leaves it.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (partition, log) = (keys::run_partition(&tenant(), None, &run), keys::events(&run));
    let mut entries = store.read_log(&partition, &log, 0, 100).await.unwrap().entries;
    for damaged in 0..entries.len() {
        let whole = std::mem::replace(&mut entries[damaged], Bytes::from_static(b"{\"n\":1,\"e\":"));
        let tx = Tx::new(partition.clone()).write(Write::DeleteLog { log: log.clone() });
        store.commit(tx).await.unwrap();
        let append = Write::Append { log: log.clone(), after: 0, entries: entries.clone() };
        store.commit(Tx::new(partition.clone()).write(append)).await.unwrap();
        let following = a.agent.runs().follow(&tenant(), &run, 0).await;
        if damaged + 1 == entries.len() {
            // Whether there is anything to follow says the last one.
            assert!(matches!(following, Err(LookupError::Store(_))));
            return;
        }
        let mut follower = following.unwrap().follower.unwrap();
        let read = async {
            loop {
                match follower.next().await {
                    Ok(Some(page)) => assert!(page.len() < records.len()),
                    end => break end,
                }
            }
        };
        let end = tokio::time::timeout(Duration::from_secs(90), read).await.expect("it is told");
        assert!(matches!(end, Err(FollowError::Damaged(_))), "{end:?} with entry {damaged} damaged");
        entries[damaged] = whole;
    }
}

/// Damages an entry of a run's log: the second, or the last.
async fn damage(store: &Arc<dyn Store>, run: &RunId, last: bool) {
    let partition = keys::run_partition(&tenant(), SessionId::parse("s").as_ref(), run);
    let log = keys::events(run);
    let mut entries = store.read_log(&partition, &log, 0, 100).await.unwrap().entries;
    let at = if last { entries.len() - 1 } else { 1 };
    entries[at] = Bytes::from_static(b"{\"n\":1,\"e\":");
    store.commit(Tx::new(partition.clone()).write(Write::DeleteLog { log: log.clone() })).await.unwrap();
    store.commit(Tx::new(partition).write(Write::Append { log, after: 0, entries })).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_log_cannot_be_read_fails_and_its_session_goes_on() {
    for (last, client) in [(false, false), (true, false), (false, true), (true, true)] {
        let store = shared();
        let link = Link::to(&store);
        let turns = vec![Say::Calls("", vec![(if client { "ask" } else { "hang" }, "{}")]), Say::Text(&["late"])];
        let a = replica(link.clone(), turns);
        let client_tools = if client { vec![client_tool("ask")] } else { vec![] };
        let new = NewRun { session: SessionId::parse("s"), client_tools, ..request() };
        let run = a.agent.start(new, None).await.unwrap().head.id;
        tokio::time::sleep(Duration::from_secs(1)).await;
        link.cut(true);
        damage(&store, &run, last).await;
        let b = replica(Link::to(&store), vec![Say::Text(&["next"])]);
        let session = SessionId::parse("s").unwrap();
        if client {
            b.agent.runs().cancel_session(&tenant(), &session).await.unwrap();
        } else {
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
        let view = b.agent.runs().get(&tenant(), &run).await.unwrap();
        let reason = view.outcome.map(|outcome| outcome.reason);
        assert_eq!(
            (view.head.status, reason),
            (RunStatus::Failed, Some(StopReason::StoreLostState)),
            "{last} {client}"
        );
        let next = b.agent.start(in_session(OnConflict::Reject), None).await.unwrap();
        assert_eq!(outcome(&watch(next).await).output_text, "next");
        b.agent.sessions().delete(&tenant(), &session).await.unwrap();
    }
}
