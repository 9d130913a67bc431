//! Of a session that a summary stands for, a run reads what comes after it, and the cost of a message does not grow.

use futures_util::TryStreamExt;

use super::super::metered::Metered;
use super::super::quota::memory;
use super::requested::{known, tenant, turns};
use super::*;
use crate::agent::session::NewSession;
use crate::agent::session::fork::Fork;
use crate::types::RunSpec;
use crate::types::context::{SessionContext, Summary, View};
use crate::types::session::Session;

const LARGE: u64 = 100_000;
/// How many of its messages a session shows.
const SHOWN: u64 = 10;

fn agent(store: Arc<dyn crate::store::Store>) -> (TestAgent, Arc<Windowed>) {
    let model = Windowed::new(LARGE, true, 1, Summaries::Written);
    let agent = TestAgent::builder().windowed(&model, LARGE).rules(rules(Compaction::Auto)).store(store).build();
    (agent, model)
}

/// A session of so many turns of which all but the newest are replaced, and the first.
async fn import(agent: &TestAgent, count: usize) {
    let summary = Summary { version: 1, method: Method::Llm, text: "EARLIER".into() };
    let covers = 2 * count as u64 - SHOWN;
    let view = View { covers, kept: vec![0], summary: Some(Arc::new(summary)), ..View::default() };
    let context = Some(Box::new(SessionContext { view, ..SessionContext::default() }));
    let new = Session { context, ..Session::new(session()) };
    agent.sessions().import(&tenant(), new, turns(count), Arc::default()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_knows_nothing_of_a_session_reads_what_is_shown_of_it() {
    let mut costs = Vec::new();
    for count in [50, 5_000] {
        let store = Metered::new();
        import(&agent(store.clone()).0, count).await;
        let (fresh, model) = agent(store.clone());
        store.cost();
        watch(fresh.start(says("And now?"), None).await.unwrap()).await;
        let first = store.cost();
        watch(fresh.start(says("And then?"), None).await.unwrap()).await;
        costs.push((first, store.cost()));
        let sent = model.requests.lock().iter().map(crate::types::Conversation::count).collect::<Vec<_>>();
        // The first message, the summary and its answer, the newest, and what the run has.
        assert_eq!(sent[0], 1 + 2 + 10 + 1, "{sent:?}");
        let sent = joined(&model.requests.lock()[0]);
        assert!(
            sent.contains("EARLIER") && sent.contains("User 0 x") && sent.contains(&format!("User {} x", count - 1))
        );
        assert_eq!(known(&fresh).await.message_count, 2 * count as u64 + 8);
        let mut pages = fresh.sessions().export(&tenant(), &session()).await.unwrap().pages;
        let mut whole = 0;
        while let Some(page) = pages.try_next().await.unwrap() {
            whole += page.len();
        }
        assert_eq!(whole, 2 * count + 8, "nothing is lost");
    }
    let [(short, then), (long, later)] = [costs[0], costs[1]];
    assert_eq!((short.0, then.0), (long.0, later.0), "calls: {costs:?}");
    assert!(long.1.abs_diff(short.1) < 400 && later.1.abs_diff(then.1) < 400, "bytes, but for numbers: {costs:?}");
}

#[tokio::test(start_paused = true)]
async fn every_replica_shows_the_same_whatever_it_has_read() {
    let store = memory();
    let ((here, one), (there, other)) = (agent(store.clone()), agent(store.clone()));
    import(&here, 50).await;
    let ask = |text: String| says(&text);
    for turn in 0..6 {
        watch(here.start(ask(format!("here {turn}")), None).await.unwrap()).await;
        watch(there.start(ask(format!("there {turn}")), None).await.unwrap()).await;
        let compacts = NewRun { model: Some("m".into()), ..NewRun::compacting(tenant(), session()) };
        if turn == 2 {
            watch(there.start(compacts, None).await.unwrap()).await;
        }
    }
    watch(here.start(ask("alike?".into()), None).await.unwrap()).await;
    let (fresh, fresh_model) = agent(store.clone());
    let last = joined(&one.requests.lock().iter().rev().nth(1).unwrap().clone());
    let marks = ["SUMMARY 0", "here 3", "there 5", "User 0 x"];
    assert!(marks.iter().all(|mark| last.contains(mark)), "{last}");
    assert!(!last.contains("here 0") && !last.contains("EARLIER"), "{last}");
    watch(fresh.start(ask("alike?".into()), None).await.unwrap()).await;
    let again = joined(&fresh_model.requests.lock()[0]);
    assert!(again.contains(&last[..last.len() / 2]), "{again}");
    assert!(!other.requests.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_run_that_began_before_is_resumed_with_what_it_began_with() {
    let store = memory();
    let (here, _) = agent(store.clone());
    let new = NewSession { id: Some(session()), messages: turns(20), ..NewSession::default() };
    here.sessions().create(&tenant(), new).await.unwrap();
    let began = RunSpec { session: Some(session()), history_len: 40, ..crate::agent::machine::tests::spec() };
    let compacts = NewRun { model: Some("m".into()), ..NewRun::compacting(tenant(), session()) };
    watch(here.start(compacts, None).await.unwrap()).await;
    let view = known(&here).await.context.unwrap().view;
    watch(here.start(says("more"), None).await.unwrap()).await;
    let whole = here.rooms.sessions.history_of(&began).await.unwrap();
    assert_eq!((whole.begins(), whole.count(), whole.iter().count()), (0, 40, 40));
    let shortened = RunSpec { view: Some(Arc::new(view.clone())), ..began };
    for agent in [&here, &agent(store.clone()).0] {
        let history = agent.rooms.sessions.history_of(&shortened).await.unwrap();
        assert_eq!((history.begins(), history.count(), history.iter().count()), (view.covers, 40, 7));
    }
}

#[tokio::test(start_paused = true)]
async fn copies_have_all_that_was_said_and_the_summary() {
    let store = memory();
    let (agent, model) = agent(store);
    import(&agent, 50).await;
    let whole = agent.sessions().fork(&tenant(), &session(), Fork::default()).await.unwrap().session;
    assert_eq!((whole.message_count, whole.context), (100, known(&agent).await.context));
    let early = Fork { at: Some(30), ..Fork::default() };
    let early = agent.sessions().fork(&tenant(), &session(), early).await.unwrap().session;
    assert_eq!((early.message_count, early.context), (30, None), "the summary tells of what came later");
    watch(agent.start(NewRun { session: Some(early.id), ..says("Go on.") }, None).await.unwrap()).await;
    let sent = joined(&model.requests.lock()[0]);
    assert!(sent.contains("User 14 x") && sent.contains("User 7 x") && !sent.contains("EARLIER"));
}
