//! Conversations that are shortened on request: once, whichever replicas are asked, and beside other runs.

use super::super::link::Link;
use super::super::quota::{count, counter, keyed, memory, quotas, standing, tokens};
use super::super::resume::{ended, leave};
use super::*;
use crate::agent::ledger::{document, keys, log};
use crate::agent::session::{NewSession, SessionPatch};
use crate::store::Store;
use crate::types::session::Session;
use crate::types::shortfall::BudgetKind;
use crate::types::{Outcome, RunSpec};

/// What the model takes: much more than is said.
const LARGE: u64 = 100_000;

/// So many turns of the user, of two messages each.
pub(super) fn turns(count: usize) -> Vec<Message> {
    let said = (0..count).flat_map(|turn| [(Role::User, turn), (Role::Assistant, turn)]);
    said.map(|(role, turn)| Message::text(role, &format!("{role:?} {turn} {}", "x".repeat(200)))).collect()
}

pub(super) fn tenant() -> Tenant {
    Tenant::default_tenant()
}

fn compacting() -> NewRun {
    NewRun { model: Some("m".into()), ..NewRun::compacting(tenant(), session()) }
}

/// An agent over this store whose conversations fit, with a session of so many turns.
async fn agent(store: &Arc<dyn Store>, summaries: Summaries, count: usize) -> (TestAgent, Arc<Windowed>) {
    let model = Windowed::new(LARGE, true, 1, summaries);
    let builder = TestAgent::builder().windowed(&model, LARGE).rules(rules(Compaction::Auto));
    let agent = builder.store(store.clone()).quotas(quotas(tokens(1_000_000))).build();
    let new = NewSession { id: Some(session()), messages: turns(count), ..NewSession::default() };
    // Another replica may have made it.
    let _ = agent.sessions().create(&tenant(), new).await;
    (agent, model)
}

pub(super) async fn known(agent: &TestAgent) -> Session {
    agent.sessions().get(&tenant(), &session()).await.unwrap().session
}

async fn compact(agent: &TestAgent) -> (Vec<Record>, Outcome) {
    let records = watch(agent.start(compacting(), None).await.unwrap()).await;
    let end = outcome(&records);
    (records, end)
}

/// What the model was sent last.
fn sent(model: &Windowed) -> String {
    joined(model.requests.lock().last().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_session_is_shortened_on_request_and_keeps_all_that_was_said() {
    let store = memory();
    let (agent, model) = agent(&store, Summaries::Written, 20).await;
    let (records, end) = compact(&agent).await;
    assert_eq!((end.reason, end.status()), (StopReason::Done, RunStatus::Completed), "{:?}", end.error);
    assert_eq!((methods(&records), model.summarised.lock().len()), (vec![Method::Llm], 1));
    let report = &end.report.compactions.as_ref().unwrap().0[0];
    // The first message of the user is kept, and the newest six.
    assert_eq!((report.method, report.removed_messages, report.version), (Method::Llm, 33, 1));
    assert!(report.after_tokens * 2 < report.before_tokens && report.usage.total() > 0, "{report:?}");
    assert!(end.output_text.is_empty() && end.warnings.is_empty(), "{:?}", end.warnings);
    let session = known(&agent).await;
    assert_eq!((session.message_count, session.compacting, session.concurrent_runs), (40, None, Vec::new()));
    let view = session.context.unwrap().view;
    assert_eq!((view.covers, &*view.kept), (34, &[0][..]));
    assert_eq!(stored(&agent).await.len(), 40);
    let records = watch(agent.start(says("And now?"), None).await.unwrap()).await;
    assert!(shortened(&records).is_empty(), "it is short");
    let sent = sent(&model);
    assert!(sent.contains("SUMMARY 0") && sent.contains("User 0 x") && sent.contains("User 17 x"), "{sent}");
    assert!(!sent.contains("User 16 x") && !sent.contains("Assistant 0 x"), "{sent}");
}

#[tokio::test(start_paused = true)]
async fn a_second_request_shortens_what_came_since() {
    let store = memory();
    let (agent, model) = agent(&store, Summaries::Written, 20).await;
    compact(&agent).await;
    for turn in 0..8 {
        watch(agent.start(says(&format!("more {turn} {}", "y".repeat(200))), None).await.unwrap()).await;
    }
    let (records, end) = compact(&agent).await;
    assert_eq!((methods(&records), end.report.compactions.as_ref().unwrap().0[0].version), (vec![Method::Llm], 2));
    let summarised = joined(&model.summarised.lock()[1]);
    assert!(summarised.contains("SUMMARY 0") && summarised.contains("User 17 x") && summarised.contains("more 5"));
    assert!(!summarised.contains("User 3 x"), "it stands in the summary before");
    let view = known(&agent).await.context.unwrap().view;
    assert_eq!((view.covers, &*view.kept), (40 + 6 * 4, &[0][..]));
}

#[tokio::test(start_paused = true)]
async fn it_is_charged_to_the_session_and_the_key() {
    let store = memory();
    let (agent, _) = agent(&store, Summaries::Written, 20).await;
    let new = NewRun { key_name: keyed().key_name, ..compacting() };
    let end = outcome(&watch(agent.start(new, None).await.unwrap()).await);
    assert!(end.usage.total() > 1_000 && end.cost.0 > 0, "{end:?}");
    agent.idle(Duration::from_secs(5)).await;
    assert_eq!(count(&store, &counter(BudgetKind::Tokens)).await, end.usage.total());
    assert!(standing(&store).await.is_empty());
    let session = known(&agent).await;
    assert_eq!((session.usage.total(), session.cost), (end.usage.total(), end.cost));
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_budget_is_used_up_is_shortened_by_rules() {
    let store = memory();
    let (agent, model) = agent(&store, Summaries::Written, 20).await;
    let patch = SessionPatch { token_budget: Some(Some(10)), ..SessionPatch::default() };
    agent.sessions().patch(&tenant(), &session(), patch).await.unwrap();
    let (records, end) = compact(&agent).await;
    assert_eq!((methods(&records), model.summarised.lock().len()), (vec![Method::Local], 0));
    assert_eq!((end.reason, end.usage.total()), (StopReason::Done, 0));
}

#[tokio::test(start_paused = true)]
async fn a_short_conversation_is_left_as_it_is() {
    let store = memory();
    let (agent, model) = agent(&store, Summaries::Written, 2).await;
    let (records, end) = compact(&agent).await;
    assert_eq!((end.reason, methods(&records)), (StopReason::Done, Vec::new()));
    assert_eq!((model.summarised.lock().len(), end.report.compactions.is_none()), (0, true));
    assert!(end.warnings.iter().any(|warning| warning.contains("nothing was replaced")), "{:?}", end.warnings);
    assert_eq!(known(&agent).await.context, None);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_shortened_is_refused() {
    let store = memory();
    let (agent, _) = agent(&store, Summaries::Written, 20).await;
    let none = NewRun { session: SessionId::parse("none"), ..compacting() };
    let refused = agent.start(none, None).await;
    assert!(matches!(&refused, Err(StartError::SessionNotFound(id)) if id.as_str() == "none"), "{refused:?}");
    let found = agent.sessions().get(&tenant(), &SessionId::parse("none").unwrap()).await;
    assert!(found.is_err(), "none is made");
    let off = TestAgent::builder().rules(rules(Compaction::Off)).store(store).build();
    let refused = off.start(compacting(), None).await;
    assert!(matches!(refused, Err(StartError::Invalid { .. })), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn two_replicas_shorten_it_once() {
    let store = memory();
    let (here, one) = agent(&store, Summaries::Slow, 20).await;
    let (there, other) = agent(&store, Summaries::Slow, 20).await;
    for round in 1..=3_usize {
        let (first, second) = tokio::join!(here.start(compacting(), None), there.start(compacting(), None));
        let (started, refused) = match (first, second) {
            (Ok(started), Err(refused)) | (Err(refused), Ok(started)) => (started, refused),
            both => panic!("{both:?}"),
        };
        let first = started.head.id.clone();
        assert!(matches!(&refused, StartError::Compacting { run, .. } if *run == first), "{refused:?}");
        assert_eq!(known(&here).await.compacting, Some(first));
        let end = outcome(&watch(started).await);
        assert_eq!((end.reason, end.report.compactions.as_ref().unwrap().0.len()), (StopReason::Done, 1));
        assert_eq!(one.summarised.lock().len() + other.summarised.lock().len(), round);
        for turn in 0..8 {
            watch(here.start(says(&format!("{turn} {}", "y".repeat(300))), None).await.unwrap()).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_said_meanwhile_stays_and_the_live_run_does_not_undo_it() {
    for begins_before in [true, false] {
        let store = memory();
        let (agent, model) = agent(&store, Summaries::Slow, 20).await;
        // A run begins on the history as it was, and ends before or after the summary is written.
        let before = if begins_before { Some(agent.start(says("before"), None).await.unwrap()) } else { None };
        let compaction = agent.start(compacting(), None).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        if let Some(before) = before {
            watch(before).await;
        }
        watch(agent.start(says("meanwhile"), None).await.unwrap()).await;
        assert_eq!(known(&agent).await.context, None);
        // The last run begins without the summary and ends with it.
        tokio::time::sleep(Duration::from_millis(2_400)).await;
        let (last, end) =
            tokio::join!(async { watch(agent.start(says("last"), None).await.unwrap()).await }, watch(compaction));
        assert_eq!((outcome(&last).reason, methods(&end)), (StopReason::Done, vec![Method::Llm]));
        let session = known(&agent).await;
        assert_eq!(session.context.unwrap().view.covers, 34);
        assert_eq!(session.message_count, 40 + if begins_before { 12 } else { 8 });
        watch(agent.start(says("So?"), None).await.unwrap()).await;
        let sent = sent(&model);
        assert!(sent.contains("SUMMARY 0") && sent.contains("meanwhile") && sent.contains("last"), "{sent}");
        assert_eq!(sent.contains("before"), begins_before);
    }
}

/// The whole log of a compaction that nothing disturbed, its specification, and the session's document meanwhile.
async fn undisturbed() -> (RunSpec, Session, Vec<Record>) {
    let store = memory();
    let (agent, _) = agent(&store, Summaries::Slow, 20).await;
    let started = agent.start(compacting(), None).await.unwrap();
    let (run, partition) = (started.head.id.clone(), keys::session_partition(&tenant(), &session()));
    let spec = store.get(&partition, &keys::spec(&run)).await.unwrap().unwrap();
    let held = known(&agent).await;
    watch(started).await;
    let page = store.read_log(&partition, &keys::events(&run), 0, 1_000).await.unwrap();
    let records = page.entries.iter().map(|entry| log::decode(entry).unwrap()).collect();
    (document::decode(&spec.value).unwrap(), held, records)
}

#[tokio::test(start_paused = true)]
async fn whatever_a_crash_leaves_of_it_is_finished_once() {
    let (spec, held, whole) = undisturbed().await;
    assert_eq!(methods(&whole), [Method::Llm]);
    for cut in 1..whole.len() {
        let before = &whole[..cut];
        let store = memory();
        let (heir, model) = agent(&store, Summaries::Written, 20).await;
        let partition = keys::session_partition(&tenant(), &session());
        let now = known(&heir).await;
        let (compacting, concurrent_runs) = (held.compacting.clone(), held.concurrent_runs.clone());
        let value = document::encode(&Session { concurrent_runs, compacting, ..now });
        let put = crate::store::Write::Put { key: keys::session(), value, ttl: None };
        store.commit(crate::store::Tx::new(partition).write(put)).await.unwrap();
        leave(&store, &spec, before).await;
        let refused = heir.start(self::compacting(), None).await;
        assert!(matches!(refused, Err(StartError::Compacting { .. })), "cut at {cut}: {refused:?}");
        let records = ended(&heir, &spec.id).await;
        assert_eq!(
            (outcome(&records).reason, methods(&records)),
            (StopReason::Done, vec![Method::Llm]),
            "cut at {cut}"
        );
        assert_eq!(model.summarised.lock().len(), 1 - methods(before).len(), "cut at {cut}");
        let session = known(&heir).await;
        assert_eq!(session.context.unwrap().view.covers, 34, "cut at {cut}");
        assert_eq!((session.compacting, session.message_count, session.runs), (None, 40, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_dies_leaves_it_to_another() {
    let store = memory();
    let link: Arc<dyn Store> = Link::to(&store);
    let (dead, _) = agent(&link, Summaries::Stalled, 20).await;
    dead.begin();
    let started = dead.start(compacting(), None).await.unwrap();
    let run = started.head.id.clone();
    tokio::time::sleep(Duration::from_secs(1)).await;
    dead.leave().await;
    drop(started);
    let (heir, model) = agent(&store, Summaries::Written, 20).await;
    let records = ended(&heir, &run).await;
    assert_eq!((methods(&records), model.summarised.lock().len()), (vec![Method::Llm], 1));
    assert_eq!(known(&heir).await.context.unwrap().view.covers, 34);
}
