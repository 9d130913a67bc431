//! A run is offered what it was accepted with, whatever is configured where it goes on.

use std::sync::Arc;

use parking_lot::Mutex;

use super::link::Link;
use super::replicas::{Replica, over, replica, shared, tenant};
use super::support::{Echo, Say, client_tool, instructed, outcome, request, watch};
use crate::agent::context::offer::Offer;
use crate::agent::context::selection::Patterns;
use crate::agent::ledger::keys;
use crate::agent::{Generation, NewRun};
use crate::llm::ModelRequest;
use crate::llm::openai::messages::joined;
use crate::store::{Store, Tx, Write};
use crate::tools::{Registry, Tool};
use crate::types::run::{OnConflict, OnUnknownOutcome};
use crate::types::{CallId, Effect, ErrorKind, Event, Message, Record, RunId, RunStatus, SessionId, StopReason};

const NUMBER: &str = r#"{"type":"object","properties":{"n":{"type":"integer"}},"additionalProperties":false}"#;
const WORD: &str = r#"{"type":"object","properties":{"word":{"type":"string"}},"required":["word"]}"#;

/// Configures a replica anew: these are its tools and its agent's instructions.
fn configure(replica: &Replica, tools: Vec<Echo>, system: &str) {
    let tools = tools.into_iter().map(|tool| Arc::new(tool) as Arc<dyn Tool>);
    let catalog = instructed(replica.agent.model.clone(), Some(system));
    let generation =
        Generation { catalog, tools: Arc::new(Registry::new(tools).unwrap().into()), ..Generation::default() };
    replica.agent.replace_generation(generation);
}

fn echo(description: &str, parameters: &str, effect: Effect) -> Echo {
    Echo::new("echo", effect, 1_000).defined(description, parameters)
}

/// The tools that a run is accepted with.
fn old_tools() -> Vec<Echo> {
    vec![echo("Says its number.", NUMBER, Effect::Idempotent), Echo::new("hang", Effect::Idempotent, 0)]
}

/// Two replicas over one store. The first has the old tools.
fn pair(turns: &[Say]) -> (Arc<dyn Store>, Replica, Replica) {
    let store = shared();
    let (a, b) = (replica(Link::to(&store), turns.to_vec()), replica(Link::to(&store), turns.to_vec()));
    configure(&a, old_tools(), "Be brief.");
    (store, a, b)
}

/// An ordinary request whose model is told of calls with an unknown outcome.
fn telling() -> NewRun {
    let mut new = request();
    new.options.on_unknown_outcome = OnUnknownOutcome::TellModel;
    new
}

/// What the model of a replica was asked.
fn asked(replica: &Replica) -> Vec<ModelRequest> {
    replica.agent.model.requests.lock().clone()
}

/// Returns once a call of this tool was recorded.
async fn called(replica: &Replica, run: &RunId, tool: &str) {
    let mut follower = replica.agent.runs().follow(&tenant(), run, 0).await.unwrap().follower.unwrap();
    loop {
        let page = follower.next().await.unwrap().unwrap();
        if page.iter().any(|record| matches!(&record.event, Event::ToolStarted { call, .. } if call.name == tool)) {
            return;
        }
    }
}

/// All public records of a run that has ended.
async fn records(replica: &Replica, run: &RunId) -> Vec<Record> {
    over(replica, run).await;
    let mut follower = replica.agent.runs().follow(&tenant(), run, 0).await.unwrap().follower.unwrap();
    follower.available().await.unwrap().iter().map(|record| (**record).clone()).collect()
}

/// What the calls of a run's log were answered.
fn results(records: &[Record]) -> Vec<(String, bool)> {
    let results = records.iter().filter_map(|record| match &record.event {
        Event::ToolFinished { outcome, .. } => Some((outcome.text().into_owned(), outcome.is_error)),
        _ => None,
    });
    results.collect()
}

/// A run that waits for its client, and the call that this is to answer.
async fn waiting(replica: &Replica, new: NewRun) -> (RunId, CallId) {
    let started = replica.agent.start(NewRun { client_tools: vec![client_tool("ask")], ..new }, None).await.unwrap();
    let run = started.head.id.clone();
    let outcome = outcome(&watch(started).await);
    assert_eq!(outcome.status(), RunStatus::RequiresAction);
    (run, outcome.required_calls[0].call.id.clone())
}

/// Goes on with a waiting run; its records from there.
async fn answered(replica: &Replica, run: &RunId, call: &CallId) -> Vec<Record> {
    let answer = NewRun {
        run: Some(run.clone()),
        answered: vec![call.clone()],
        messages: vec![Message::tool(call, "yes")],
        ..request()
    };
    watch(replica.agent.start(answer, None).await.unwrap()).await
}

#[tokio::test(start_paused = true)]
async fn a_run_that_goes_on_elsewhere_is_offered_the_same() {
    let (_, a, b) = pair(&[Say::Calls("", vec![("echo", r#"{"n":1}"#)]), Say::Calls("", vec![("hang", "{}")])]);
    configure(&b, vec![echo("Says its word.", WORD, Effect::Read), Echo::new("new", Effect::Read, 1)], "Be wordy.");
    let run = a.agent.start(telling(), None).await.unwrap().head.id;
    called(&a, &run, "hang").await;
    a.link.cut(true);
    over(&b, &run).await;
    let (here, there) = (asked(&a), asked(&b));
    assert!(here.len() == 2 && !there.is_empty());
    for request in &there {
        assert!(request.tools.tools().eq(here[0].tools.tools()));
        assert_eq!(request.conversation.iter().next(), here[0].conversation.iter().next());
    }
    let names: Vec<_> = here[0].tools.tools().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["echo", "hang"]);
    assert!(joined(&there[0].conversation).contains("Be brief."));
}

#[tokio::test(start_paused = true)]
async fn a_call_is_checked_by_what_was_offered_and_made_of_what_is_there() {
    let calls = vec![("echo", r#"{"n":7}"#), ("echo", r#"{"word":"x"}"#), ("hang", "{}"), ("new", "{}")];
    let (_, a, b) = pair(&[Say::Calls("", vec![("ask", "{}")]), Say::Calls("", calls), Say::Text(&["fine"])]);
    let (run, call) = waiting(&a, request()).await;
    let changed = echo("Says its word.", WORD, Effect::Read);
    let journal: Arc<Mutex<Vec<String>>> = changed.journal.clone();
    configure(&b, vec![changed, Echo::new("new", Effect::Read, 1)], "Be wordy.");
    let records = answered(&b, &run, &call).await;
    assert_eq!(outcome(&records).reason, StopReason::Done);
    assert_eq!(*journal.lock(), [r#"{"n":7}"#], "the tool that has the name now is called");
    let results = results(&records);
    let by_content = |part: &str| results.iter().filter(|(content, _)| content.contains(part)).count();
    assert_eq!(results.len(), 4, "{results:?}");
    assert_eq!(results.iter().filter(|(_, is_error)| *is_error).count(), 3, "{results:?}");
    assert_eq!(by_content("do not fit its schema"), 1, "{results:?}");
    assert_eq!(by_content("The tool `hang` is no longer available."), 1, "{results:?}");
    assert_eq!(by_content("There is no tool named \"new\". The tools are: echo, ask."), 1, "{results:?}");
}

#[tokio::test(start_paused = true)]
async fn the_effect_that_asks_for_more_care_counts() {
    for (now, counts) in [(Effect::Read, Effect::Idempotent), (Effect::Write, Effect::Write)] {
        let echoed = Say::Calls("", vec![("echo", r#"{"n":7}"#)]);
        let (_, a, b) = pair(&[Say::Calls("", vec![("ask", "{}")]), echoed, Say::Text(&["fine"])]);
        let (run, call) = waiting(&a, request()).await;
        configure(&b, vec![echo("Says its number.", NUMBER, now)], "Be wordy.");
        let records = answered(&b, &run, &call).await;
        let effects = records.iter().filter_map(|record| match &record.event {
            Event::ToolStarted { effect, .. } => Some(*effect),
            _ => None,
        });
        assert_eq!(effects.collect::<Vec<_>>(), [counts]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_call_is_not_repeated_of_a_tool_that_has_side_effects_now_or_is_gone() {
    let hanging = Echo::new("hang", Effect::Write, 1_000);
    let journal = hanging.journal.clone();
    for (tools, told) in [(vec![hanging], ""), (vec![], "The tool `hang` is no longer available.")] {
        let (_, a, b) = pair(&[Say::Calls("", vec![("hang", "{}")]), Say::Text(&["fine"])]);
        configure(&b, tools, "");
        let run = a.agent.start(telling(), None).await.unwrap().head.id;
        called(&a, &run, "hang").await;
        a.link.cut(true);
        let records = records(&b, &run).await;
        let [(result, is_error)] = results(&records).try_into().unwrap();
        assert!(is_error && result.contains("Whether it took effect is unknown") && result.contains(told), "{result}");
        let begun = records.iter().filter(|record| matches!(record.event, Event::ToolStarted { .. })).count();
        assert_eq!((begun, outcome(&records).reason), (1, StopReason::Done));
    }
    assert!(journal.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_queued_run_is_offered_what_it_was_accepted_with() {
    let (_, a, _) = pair(&[Say::Calls("", vec![("hang", "{}")]), Say::Text(&["fine"])]);
    let in_session = |on_conflict| NewRun { session: Some(SessionId::parse("s").unwrap()), on_conflict, ..request() };
    let first = a.agent.start(in_session(OnConflict::Reject), None).await.unwrap().head.id;
    called(&a, &first, "hang").await;
    let second = a.agent.start(in_session(OnConflict::Enqueue), None).await.unwrap();
    configure(&a, vec![echo("Says its word.", WORD, Effect::Read)], "Be wordy.");
    assert_eq!(outcome(&watch(second).await).reason, StopReason::Done);
    let asked = asked(&a);
    assert!(asked.last().unwrap().tools.tools().eq(asked[0].tools.tools()));
}

/// Loses the definitions of the old tools.
async fn lose_old_tools(store: &Arc<dyn Store>) {
    let registry = Registry::new(old_tools().into_iter().map(|tool| Arc::new(tool) as Arc<dyn Tool>)).unwrap();
    let offer = Offer::current(&registry, &["echo".to_owned(), "hang".to_owned()]);
    let place = keys::offer_partition(&tenant(), offer.hash());
    assert!(store.get(&place, &keys::offer()).await.unwrap().is_some());
    store.commit(Tx::new(place).write(Write::Delete { key: keys::offer() })).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_definitions_are_lost_fails_unless_they_are_configured_still() {
    for (is_changed, reason) in [(false, StopReason::Done), (true, StopReason::StoreLostState)] {
        let (store, a, b) = pair(&[Say::Calls("", vec![("ask", "{}")]), Say::Text(&["fine"])]);
        let (run, call) = waiting(&a, request()).await;
        lose_old_tools(&store).await;
        configure(&b, if is_changed { vec![] } else { old_tools() }, "Be wordy.");
        let outcome = outcome(&answered(&b, &run, &call).await);
        assert_eq!(outcome.reason, reason);
        let error = outcome.error.map(|error| error.kind);
        assert_eq!(error, is_changed.then_some(ErrorKind::StoreLostState));
        assert_eq!(asked(&b).len(), usize::from(!is_changed), "no model is asked with other tools");
    }
}

#[tokio::test(start_paused = true)]
async fn a_queued_run_whose_definitions_are_lost_fails_and_lets_the_next_begin() {
    let (store, a, _) = pair(&[Say::Calls("", vec![("hang", "{}")]), Say::Text(&["fine"])]);
    let in_session = |on_conflict| NewRun { session: Some(SessionId::parse("s").unwrap()), on_conflict, ..request() };
    let first = a.agent.start(in_session(OnConflict::Reject), None).await.unwrap().head.id;
    called(&a, &first, "hang").await;
    let second = a.agent.start(in_session(OnConflict::Enqueue), None).await.unwrap();
    configure(&a, vec![echo("Says its word.", WORD, Effect::Read)], "Be wordy.");
    let third = a.agent.start(in_session(OnConflict::Enqueue), None).await.unwrap();
    lose_old_tools(&store).await;
    assert_eq!(outcome(&watch(second).await).reason, StopReason::StoreLostState);
    assert_eq!(outcome(&watch(third).await).reason, StopReason::Done);
}

#[test]
fn what_is_selected_is_worked_out_once_for_each_generation_and_list() {
    let registry = || Registry::new(old_tools().into_iter().map(|tool| Arc::new(tool) as Arc<dyn Tool>)).unwrap();
    let generation = || Generation { tools: Arc::new(registry().into()), ..Generation::default() };
    let (all, one) = (["*".to_owned()], ["echo".to_owned()]);
    let patterns = |asked| Patterns { agent: &all, asked, always: &[], most: 64, policy: None };
    let (first, next) = (generation(), generation());
    let kept = first.select(&patterns(None));
    assert!(Arc::ptr_eq(&kept, &first.select(&patterns(None))));
    let other = next.select(&patterns(None));
    assert!(!Arc::ptr_eq(&kept.servers, &other.servers));
    assert_eq!(kept.servers.offer().hash(), other.servers.offer().hash());
    let less = first.select(&patterns(Some(&one)));
    assert_eq!((kept.names.len(), less.names.len(), less.unmatched.len()), (2, 1, 0));
    assert_ne!(kept.servers.offer().hash(), less.servers.offer().hash());
}
