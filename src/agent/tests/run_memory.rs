//! How much memory the conversations of live runs take together.

use std::time::Duration;

use super::dead_replicas::{resumptions, shared};
use super::link::Link;
use super::logs::Log;
use super::support::{RETENTION, Say, TestAgent, client_tool, request};
use crate::agent::error::StartError;
use crate::agent::session::NewSession;
use crate::agent::{NewRun, Retention};
use crate::types::{CallId, Message, Role, RunStatus, SessionId, Tenant};

/// Room for one large request and not for two.
const ROOM: Retention = Retention { run_bytes: 1 << 20, ..RETENTION };

/// A request whose conversation takes about 200 KiB, and twice as much while it runs.
fn large() -> NewRun {
    NewRun { messages: vec![Message::text(Role::User, &"x".repeat(100 << 10))], ..request() }
}

#[tokio::test(start_paused = true)]
async fn a_new_run_is_refused_while_live_runs_take_the_memory() {
    let agent = TestAgent::builder().turns(vec![Say::Stall(&["x"])]).retention(ROOM).begin();
    let first = agent.start(large(), None).await.unwrap();
    let refused = agent.start(large(), None).await.err().unwrap();
    assert!(matches!(refused, StartError::OutOfMemory), "{refused}");
    let small = agent.start(request(), None).await.unwrap();
    agent.runs().cancel(&Tenant::default_tenant(), &first.head.id).await.unwrap();
    agent.start(large(), None).await.expect("the first one's memory is free");
    drop(small);
}

#[tokio::test(start_paused = true)]
async fn what_joins_a_conversation_is_counted() {
    let call = "x".repeat(200 << 10);
    let arguments = format!("{{\"n\":\"{call}\"}}").leak();
    let turns = vec![Say::Calls("", vec![("echo", arguments)]), Say::Stall(&["x"])];
    let agent = TestAgent::builder().turns(turns).retention(ROOM).begin();
    let grows = agent.start(request(), None).await.unwrap();
    while agent.model.requests.lock().len() < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let refused = agent.start(large(), None).await.err().unwrap();
    assert!(matches!(refused, StartError::OutOfMemory), "{refused}");
    agent.runs().cancel(&Tenant::default_tenant(), &grows.head.id).await.unwrap();
    agent.start(large(), None).await.expect("its memory is free");
}

#[tokio::test(start_paused = true)]
async fn a_client_whose_answer_finds_no_room_can_send_it_again() {
    let turns = vec![Say::Calls("", vec![("ask", "{}")]), Say::Stall(&["x"])];
    let agent = TestAgent::builder().turns(turns).retention(ROOM).begin();
    let new = NewRun { client_tools: vec![client_tool("ask")], ..request() };
    let mut started = agent.start(new, None).await.unwrap();
    let run = started.head.id.clone();
    while started.follower.next().await.unwrap().is_some() {}
    let filling = agent.start(large(), None).await.unwrap();
    let answer = || {
        let call = CallId::foreign(run.call(1).as_str());
        let messages = vec![Message::tool(&call, &"x".repeat(200 << 10))];
        NewRun { run: Some(run.clone()), messages, answered: vec![call], ..request() }
    };
    let refused = agent.start(answer(), None).await.err().unwrap();
    assert!(matches!(refused, StartError::OutOfMemory), "{refused}");
    let view = agent.runs().get(&Tenant::default_tenant(), &run).await.unwrap();
    assert_eq!(view.head.status, RunStatus::RequiresAction);
    agent.runs().cancel(&Tenant::default_tenant(), &filling.head.id).await.unwrap();
    agent.start(answer(), None).await.expect("there is room now");
}

/// Only the session tells how long the conversation of such a run is.
#[tokio::test(start_paused = true)]
async fn the_session_of_a_run_counts_before_the_answers_of_its_client_are_taken() {
    let turns = vec![Say::Calls("", vec![("ask", "{}")]), Say::Stall(&["x"])];
    let agent = TestAgent::builder().turns(turns).retention(ROOM).begin();
    let (session, NewRun { messages, .. }) = (Some(SessionId::parse("s").unwrap()), large());
    let new = NewSession { id: session.clone(), messages, ..NewSession::default() };
    agent.sessions().create(&Tenant::default_tenant(), new).await.unwrap();
    let new = NewRun { session: session.clone(), client_tools: vec![client_tool("ask")], ..request() };
    let mut started = agent.start(new, None).await.unwrap();
    let run = started.head.id.clone();
    while started.follower.next().await.unwrap().is_some() {}
    let _filling = [agent.start(large(), None).await.unwrap(), agent.start(request(), None).await.unwrap()];
    let call = CallId::foreign(run.call(1).as_str());
    let messages = vec![Message::tool(&call, "yes")];
    let answer = NewRun { run: Some(run), session, messages, answered: vec![call], ..request() };
    let refused = agent.start(answer, None).await.err().unwrap();
    assert!(matches!(refused, StartError::OutOfMemory), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_replica_takes_over_as_many_runs_as_it_has_memory_for() {
    let store = shared();
    let way = Link::to(&store);
    let dead = TestAgent::builder().store(way.clone()).turns(vec![Say::Stall(&["x"])]).begin();
    let mut runs = Vec::new();
    for _ in 0..4 {
        runs.push(dead.start(large(), None).await.unwrap().head.id);
    }
    let next = TestAgent::builder().store(Link::to(&store)).turns(vec![Say::Stall(&["y"])]).retention(ROOM).begin();
    way.cut(true);
    let (log, _guard) = Log::begin();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(next.active_runs(), 2, "two fit");
    assert_eq!(log.count("waits: live runs take all of server.run_memory"), 1);
    for _ in 0..runs.len() {
        for run in &runs {
            if resumptions(&store, run).await > 0 {
                next.runs().cancel(&Tenant::default_tenant(), run).await.unwrap();
            }
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    for run in &runs {
        assert_eq!(resumptions(&store, run).await, 1, "each has its turn");
    }
}

/// Only the session tells how long the conversation of such a run is.
#[tokio::test(start_paused = true)]
async fn a_replica_counts_the_sessions_of_the_runs_that_it_takes_over() {
    let store = shared();
    let way = Link::to(&store);
    let dead = TestAgent::builder().store(way.clone()).turns(vec![Say::Stall(&["x"])]).begin();
    for name in ["a", "b", "c", "d"] {
        let session = Some(SessionId::parse(name).unwrap());
        let NewRun { messages, .. } = large();
        let new = NewSession { id: session.clone(), messages, ..NewSession::default() };
        dead.sessions().create(&Tenant::default_tenant(), new).await.unwrap();
        dead.start(NewRun { session, ..request() }, None).await.unwrap();
    }
    let next = TestAgent::builder().store(Link::to(&store)).turns(vec![Say::Stall(&["y"])]).retention(ROOM).begin();
    way.cut(true);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(next.active_runs(), 2, "two fit");
}
