//! Runs that end before their model has answered: at a failed call, at the limit of tool calls, after a step.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::link::Link;
use super::quota::{count, keyed, partition, quotas, runs as at_once, tokens};
use super::replicas::{replica, shared};
use super::support::{Echo, Say, TestAgent, client_tool, outcome, request, request_with, watch};
use crate::agent::error::LookupError;
use crate::agent::ledger::document::encode;
use crate::agent::ledger::keys;
use crate::agent::limits::holds::Hold;
use crate::agent::{LimitsPatch, NewRun, RulesPatch};
use crate::config::{QuotaConfig, ShareConfig};
use crate::store::faulty::{Fate, Faulty};
use crate::store::{Store, Tx, Write};
use crate::tools::{CallContext, Tool, ToolAnswer, ToolError, ToolSpec};
use crate::types::rules::{LoopRules, ToolErrors};
use crate::types::run::{OnConflict, OnLimit};
use crate::types::tool::CallEnding;
use crate::types::{CallId, Effect, Event, Record, RunId, RunStatus, SessionId, StopReason, Tenant, ToolOutcome};

/// Fails after a second.
#[derive(Debug)]
struct Broken(ToolSpec);

impl Broken {
    fn shared(effect: Effect) -> Arc<dyn Tool> {
        Arc::new(Self(Echo::new("broken", effect, 0).spec().clone()))
    }
}

#[async_trait]
impl Tool for Broken {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: &RawValue, _: &CallContext) -> Result<ToolAnswer, ToolError> {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Err(ToolError::Failed("the secret service is down".into()))
    }
}

fn results(records: &[Record]) -> Vec<(&CallId, &ToolOutcome)> {
    let found = records.iter().filter_map(|record| match &record.event {
        Event::ToolFinished { call_id, outcome, .. } => Some((call_id, outcome)),
        _ => None,
    });
    found.collect()
}

fn tools() -> Vec<Arc<dyn Tool>> {
    vec![
        Broken::shared(Effect::Read),
        Arc::new(Echo::new("hang", Effect::Read, 0)),
        Arc::new(Echo::new("save", Effect::Write, 9)),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_failed_call_that_ends_the_run_stops_the_calls_beside_it() {
    let calls = vec![("hang", "{}"), ("broken", "{}"), ("hang", "{}"), ("save", "{}")];
    let agent = TestAgent::builder().tools(tools()).turns(vec![Say::Calls("", calls)]).begin();
    let since = Instant::now();
    let rules = RulesPatch { ends_run: vec!["bro*".into()], ..RulesPatch::default() };
    let records = watch(agent.start(NewRun { rules, ..request() }, None).await.unwrap()).await;
    assert!(since.elapsed() < Duration::from_secs(2), "it waits for calls that are of no use any more");
    let outcome = outcome(&records);
    assert_eq!((outcome.reason, outcome.status()), (StopReason::ToolError, RunStatus::Failed));
    assert!(!outcome.error.unwrap().message.contains("secret"));
    let steps = &outcome.report.steps;
    assert_eq!(steps[0].tool_calls[1].error.as_deref(), Some("the secret service is down"));
    let endings: Vec<_> = steps[0].tool_calls.iter().map(|call| (call.name.as_str(), call.skipped)).collect();
    assert_eq!(endings, [("hang", false), ("broken", false), ("hang", false), ("save", true)]);
    let results = results(&records);
    let mut ids: Vec<_> = results.iter().map(|(id, _)| *id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), results.len()), (4, 4), "each call has one result");
    assert_eq!(results.iter().filter(|(_, outcome)| outcome.ending == CallEnding::Stopped).count(), 2);
    assert_eq!(agent.model.requests.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failed_call_is_told_to_the_model_unless_there_is_a_rule() {
    let turns = vec![Say::Calls("", vec![("broken", "{}"), ("broken", "no JSON")]), Say::Text(&["sorry"])];
    let mend = |fallback: &str| LoopRules {
        tool_errors: ToolErrors {
            ends_run: vec!["*".into()],
            fallback_results: vec![("broken".into(), fallback.to_owned())],
        },
        ..LoopRules::default()
    };
    for (rules, told, is_error) in [
        (LoopRules::default(), "the secret service is down", true),
        (mend("It is not known."), "It is not known.", false),
    ] {
        let agent = TestAgent::builder().tools(tools()).rules(rules).turns(turns.clone()).begin();
        let records = watch(agent.start(request(), None).await.unwrap()).await;
        let results = results(&records);
        let found = results.iter().find(|(_, outcome)| outcome.ending == CallEnding::Answered).unwrap().1;
        assert_eq!((found.text().as_ref(), found.is_error), (told, is_error));
        let outcome = outcome(&records);
        assert_eq!(outcome.reason, StopReason::Done, "of a call that was not made the model is told in any case");
        let reported = &outcome.report.steps[0].tool_calls[0];
        assert_eq!(reported.error.as_deref(), Some("the secret service is down"), "the report says it in any case");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_beyond_the_limit_are_not_made() {
    let turns = vec![Say::Calls("", vec![("echo", r#"{"n":1}"#), ("echo", r#"{"n":2}"#), ("echo", r#"{"n":3}"#)])];
    let agent = TestAgent::builder().turns(turns).begin();
    let limits = LimitsPatch { max_tool_calls: Some(2), ..LimitsPatch::default() };
    let records = watch(agent.start(request_with(limits), None).await.unwrap()).await;
    assert_eq!(*agent.journal.lock(), [r#"{"n":1}"#, r#"{"n":2}"#]);
    let outcome = outcome(&records);
    assert_eq!((outcome.reason, outcome.status()), (StopReason::MaxToolCalls, RunStatus::Incomplete));
    let refused = results(&records).into_iter().find(|(_, outcome)| outcome.ending == CallEnding::Skipped).unwrap().1;
    assert_eq!(refused.text(), "The call was not made: the run may make 2 tool calls, and has made them.");
}

/// A run whose model calls a tool after a while, and then again and again.
fn slow() -> Vec<Say> {
    vec![Say::Late(1_000, Box::new(Say::Calls("first", vec![("echo", r#"{"n":1}"#)])))]
}

#[tokio::test(start_paused = true)]
async fn a_run_cancelled_after_its_step_is_cancelled_when_the_tools_of_the_step_have_answered() {
    let store = shared();
    let (a, b) = (replica(Link::to(&store), slow()), replica(Link::to(&store), vec![]));
    let tenant = Tenant::default_tenant();
    for cancelling in [&a, &b] {
        let started = a.agent.start(request(), None).await.unwrap();
        let (run, since) = (started.head.id.clone(), Instant::now());
        tokio::time::sleep(Duration::from_millis(500)).await;
        let runs = cancelling.agent.runs();
        let (first, second) =
            tokio::join!(runs.cancel_after_step(&tenant, &run), runs.cancel_after_step(&tenant, &run));
        assert_eq!(
            (first.unwrap().head.status, second.unwrap().head.status),
            (RunStatus::Cancelled, RunStatus::Cancelled)
        );
        assert!(since.elapsed() >= Duration::from_secs(1), "the model was cut off");
        let records = watch(started).await;
        let (outcome, results) = (outcome(&records), results(&records));
        assert_eq!(
            (outcome.reason, outcome.iterations, outcome.output_text.as_str()),
            (StopReason::Cancelled, 1, "first")
        );
        assert_eq!(results.iter().map(|(_, outcome)| outcome.is_error).collect::<Vec<_>>(), [false]);
        let ended = runs.cancel_after_step(&tenant, &run).await.unwrap();
        assert_eq!(ended.head.reason, Some(StopReason::Cancelled), "one that ended stays as it is");
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_that_lasts_is_not_waited_for_and_can_be_cut_off_after_all() {
    let agent = TestAgent::builder().turns(vec![Say::Stall(&["x"])]).begin();
    let tenant = Tenant::default_tenant();
    let started = agent.start(request(), None).await.unwrap();
    let run = started.head.id.clone();
    let view = agent.runs().cancel_after_step(&tenant, &run).await.unwrap();
    assert_eq!(view.head.status, RunStatus::InProgress, "it stops later");
    let since = Instant::now();
    assert_eq!(agent.runs().cancel(&tenant, &run).await.unwrap().head.status, RunStatus::Cancelled);
    assert!(since.elapsed() < Duration::from_secs(1));
    assert_eq!(outcome(&watch(started).await).reason, StopReason::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_has_no_step_to_wait_for() {
    let agent = TestAgent::builder().turns(vec![Say::Calls("", vec![("ask", "{}")])]).begin();
    let tenant = Tenant::default_tenant();
    let session = SessionId::parse("s");
    let new = NewRun { client_tools: vec![client_tool("ask")], session: session.clone(), ..request() };
    let started = agent.start(new, None).await.unwrap();
    let run = started.head.id.clone();
    assert_eq!(outcome(&watch(started).await).status(), RunStatus::RequiresAction);
    assert_eq!(agent.runs().cancel_after_step(&tenant, &run).await.unwrap().head.status, RunStatus::Cancelled);

    let agent = TestAgent::builder().turns(vec![Say::Stall(&["x"])]).begin();
    agent.start(NewRun { session: session.clone(), ..request() }, None).await.unwrap();
    let queued = NewRun { session, on_conflict: OnConflict::Enqueue, ..request() };
    let queued = agent.start(queued, None).await.unwrap().head.id;
    assert_eq!(agent.runs().cancel_after_step(&tenant, &queued).await.unwrap().head.status, RunStatus::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_the_end_of_the_runs_time_cuts_off_is_no_failed_call() {
    let tool_errors =
        ToolErrors { ends_run: vec!["*".into()], fallback_results: vec![("*".into(), "It is not known.".into())] };
    let rules = LoopRules { tool_errors, ..LoopRules::default() };
    let turns = vec![Say::Calls("", vec![("hang", "{}")])];
    let agent = TestAgent::builder().tools(tools()).rules(rules).turns(turns).begin();
    let limits = LimitsPatch { timeout_ms: Some(2_000), ..LimitsPatch::default() };
    let new = NewRun { on_limit: Some(OnLimit::Synthesize), ..request_with(limits) };
    let records = watch(agent.start(new, None).await.unwrap()).await;
    assert_eq!(results(&records).iter().map(|(_, outcome)| outcome.ending).collect::<Vec<_>>(), [CallEnding::Stopped]);
    let outcome = outcome(&records);
    assert_eq!((outcome.reason, outcome.output_text.as_str()), (StopReason::Timeout, "closing"));
}

#[tokio::test(start_paused = true)]
async fn a_step_whose_replica_died_is_finished_by_another_one_before_its_run_stops() {
    let store = shared();
    let link = Link::to(&store);
    let turns = vec![Say::Calls("first", vec![("look", "{}"), ("look", "{}")]), Say::Text(&["second"])];
    let looks = |permits| vec![Arc::new(Echo::new("look", Effect::Read, permits)) as Arc<dyn Tool>];
    let a = TestAgent::builder().store(link.clone()).tools(looks(0)).turns(turns).begin();
    let b = TestAgent::builder().store(store.clone()).tools(looks(9)).begin();
    let run = a.start(request(), None).await.unwrap().head.id.clone();
    tokio::time::sleep(Duration::from_millis(500)).await;
    link.cut(true);
    let view = b.runs().cancel_after_step(&Tenant::default_tenant(), &run).await.unwrap();
    assert_eq!(view.head.status, RunStatus::Cancelled);
    let outcome = view.outcome.unwrap();
    assert_eq!((outcome.iterations, outcome.output_text.as_str()), (1, "first"));
    let calls = &outcome.report.steps[0].tool_calls;
    assert_eq!(calls.iter().map(|call| call.error.as_deref()).collect::<Vec<_>>(), [None, None], "both were made");
}

/// A replica that could not end a run gives back its lease and its slot: the next try ends the run, and need not wait until the
/// lease expires.
#[tokio::test(start_paused = true)]
async fn a_waiting_run_that_the_store_did_not_let_end_is_ended_at_the_next_try() {
    for session in [None, SessionId::parse("s")] {
        let faulty = Faulty::memory();
        let turns = vec![Say::Calls("", vec![("pick", "{}")]), Say::Text(&["done"])];
        let agent = TestAgent::builder().store(faulty.clone()).turns(turns).quotas(quotas(at_once(1))).begin();
        let new = NewRun { client_tools: vec![client_tool("pick")], session, ..keyed() };
        let (tenant, run) = (new.tenant.clone(), new.id.clone());
        let waits = outcome(&watch(agent.start(new, None).await.unwrap()).await);
        assert_eq!(waits.status(), RunStatus::RequiresAction);
        let own = keys::live_entry(agent.replica().id(), &run);
        let registers =
            move |tx: &Tx| tx.writes.iter().any(|write| matches!(write, Write::Put { key, .. } if *key == own));
        faulty.next(registers, Fate::Fails);
        let since = Instant::now();
        let refused = agent.runs().cancel(&tenant, &run).await;
        assert!(faulty.has_struck() && matches!(refused, Err(LookupError::Store(_))), "{refused:?}");
        let other = agent.start(keyed(), None).await.unwrap();
        let cancelled = agent.runs().cancel(&tenant, &run).await.unwrap();
        assert_eq!(cancelled.head.status, RunStatus::Cancelled);
        assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
        watch(other).await;
    }
}

/// Neither does one whose account could not be opened wholly: what it has of it is given back at once.
#[tokio::test(start_paused = true)]
async fn a_waiting_run_whose_account_cannot_be_opened_holds_no_slot() {
    type Meant = fn(&Tx, &RunId) -> bool;
    let settles: Meant = |tx, run| {
        let left = keys::reserved(run, 1);
        tx.writes.iter().any(|write| matches!(write, Write::Delete { key } if *key == left))
    };
    let takes_the_second_slot: Meant = |tx, _| tx.partition == keys::shares_partition(&Tenant::default_tenant());
    for meant in [settles, takes_the_second_slot] {
        let faulty = Faulty::memory();
        let store: Arc<dyn Store> = faulty.clone();
        let turns = vec![Say::Calls("", vec![("pick", "{}")]), Say::Text(&["done"])];
        let quota = QuotaConfig { max_concurrent_runs: Some(1), ..tokens(1_000_000) };
        let shared = ShareConfig { max_concurrent_runs: Some(1), ..ShareConfig::default() };
        let builder = TestAgent::builder().store(store.clone()).turns(turns);
        let agent = builder.quotas(quotas(quota)).shared(shared).begin();
        let new = NewRun { client_tools: vec![client_tool("pick")], ..keyed() };
        let (tenant, run) = (new.tenant.clone(), new.id.clone());
        let waits = outcome(&watch(agent.start(new, None).await.unwrap()).await);
        assert_eq!(waits.status(), RunStatus::RequiresAction);
        // What a driver that came late has left reserved.
        let left = Tx::new(partition()).put_at(keys::reserved(&run, 1), 0, encode(&Vec::<Hold>::new()), None);
        store.commit(left).await.unwrap();
        let of = run.clone();
        faulty.next(move |tx| meant(tx, &of), Fate::Fails);
        let refused = agent.runs().cancel(&tenant, &run).await;
        assert!(faulty.has_struck() && matches!(refused, Err(LookupError::Store(_))), "{refused:?}");
        assert_eq!(count(&store, &keys::slots_taken()).await, 0);
        let other = agent.start(keyed(), None).await.unwrap();
        let cancelled = agent.runs().cancel(&tenant, &run).await.unwrap();
        assert_eq!(cancelled.head.status, RunStatus::Cancelled);
        watch(other).await;
        assert_eq!(count(&store, &keys::slots_taken()).await, 0);
    }
}
