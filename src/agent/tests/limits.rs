use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;

use super::support::{Say, TestAgent, outcome, request, request_with, shown, watch};
use crate::agent::error::{Field, LookupError, StartError};
use crate::agent::inbox;
use crate::agent::ledger::keys;
use crate::agent::ledger::log;
use crate::agent::request_key::{RequestKey, RequestKeyKind};
use crate::agent::{LimitsPatch, Requester};
use crate::store::faulty::{Fate, Faulty};
use crate::store::memory::MemoryStore;
use crate::store::{Store, Write};
use crate::types::run::{OnDisconnect, OnLimit};
use crate::types::session::Session;
use crate::types::{BudgetOwner, Event, RunStatus, SessionId, StopReason, Tenant};

fn loops() -> Vec<Say> {
    vec![Say::Calls("", vec![("echo", r#"{"n":1}"#)])]
}

#[tokio::test(start_paused = true)]
async fn a_model_that_never_stops_is_stopped_by_the_iteration_limit() {
    let agent = TestAgent::builder().turns(loops()).begin();
    let limits = LimitsPatch { max_iterations: Some(3), ..LimitsPatch::default() };
    let records = watch(agent.start(request_with(limits), None).await.unwrap()).await;
    let outcome = outcome(&records);
    assert_eq!((outcome.reason, outcome.iterations, outcome.tool_calls), (StopReason::MaxIterations, 3, 3));
}

#[tokio::test(start_paused = true)]
async fn the_deadline_keeps_the_text_so_far() {
    let agent = TestAgent::builder().turns(vec![Say::Stall(&["so ", "far"])]).begin();
    let limits = LimitsPatch { timeout_ms: Some(1_000), ..LimitsPatch::default() };
    let records = watch(agent.start(request_with(limits), None).await.unwrap()).await;
    let outcome = outcome(&records);
    assert_eq!((outcome.reason, outcome.output_text.as_str()), (StopReason::Timeout, "so far"));
    assert!(outcome.usage.estimated && outcome.usage.total() > 0, "what was begun is charged");
}

#[tokio::test(start_paused = true)]
async fn the_deadline_leaves_time_for_a_closing_answer() {
    let agent = TestAgent::builder().turns(vec![Say::Calls("", vec![("hang", "{}")])]).begin();
    let mut request = request();
    request.limits.timeout_ms = Some(2_000);
    request.on_limit = Some(OnLimit::Synthesize);
    let outcome = outcome(&watch(agent.start(request, None).await.unwrap()).await);
    assert_eq!((outcome.reason, outcome.output_text.as_str()), (StopReason::Timeout, "closing"));
}

#[tokio::test(start_paused = true)]
async fn a_token_budget_is_never_exceeded() {
    let agent = TestAgent::builder().turns(loops()).begin();
    let limits = LimitsPatch { token_budget: Some(500), ..LimitsPatch::default() };
    let records = watch(agent.start(request_with(limits), None).await.unwrap()).await;
    let outcome = outcome(&records);
    assert_eq!(outcome.reason, StopReason::TokenBudget);
    assert!(outcome.usage.total() <= 500);
    for request in agent.model.requests.lock().iter() {
        assert!(request.max_tokens.is_some_and(|most| most <= 500), "the upstream's limit is clamped to what is left");
    }
    let warnings = records.iter().filter(|record| matches!(record.event, Event::BudgetWarning { .. })).count();
    assert!(warnings <= 1);
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_has_no_room_for_a_call_refuses_the_run() {
    let agent = TestAgent::builder().turns(loops()).begin();
    let limits = LimitsPatch { token_budget: Some(20), ..LimitsPatch::default() };
    let refused = agent.start(request_with(limits), None).await;
    assert!(matches!(refused, Err(StartError::BudgetExceeded { short, .. }) if short.owner == BudgetOwner::Run));
    assert!(agent.model.requests.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_request_may_narrow_limits_but_not_widen_them() {
    let agent = TestAgent::builder().turns(loops()).begin();
    let limits = LimitsPatch { max_iterations: Some(21), ..LimitsPatch::default() };
    let refused = agent.start(request_with(limits), None).await;
    assert!(matches!(refused, Err(StartError::Invalid { field: Field::MaxIterations, .. })));
}

#[tokio::test(start_paused = true)]
async fn a_sessions_budget_holds_over_its_runs() {
    let agent = TestAgent::builder().turns(vec![Say::Text(&["hi"])]).begin();
    let tenant = crate::types::Tenant::default_tenant();
    let id = SessionId::parse("s").unwrap();
    let new = crate::agent::session::NewSession {
        id: Some(id.clone()),
        token_budget: Some(700),
        ..crate::agent::session::NewSession::default()
    };
    agent.sessions().create(&tenant, new).await.unwrap();
    let mut answered = 0;
    let refused = loop {
        let mut request = request();
        request.session = Some(id.clone());
        match agent.start(request, None).await {
            Ok(started) => {
                assert_eq!(outcome(&watch(started).await).reason, StopReason::Done);
                answered += 1;
            }
            Err(error) => break error,
        }
    };
    assert!(
        matches!(refused, StartError::BudgetExceeded { short, .. } if short.owner == BudgetOwner::Session),
        "{refused:?}"
    );
    let session: Session = agent.sessions().get(&tenant, &id).await.unwrap().session;
    assert_eq!((session.usage.total(), session.runs), (answered * 15, answered), "settled at what was used");
}

#[tokio::test(start_paused = true)]
async fn a_run_without_readers_is_cancelled_after_its_grace() {
    let agent = TestAgent::builder().turns(vec![Say::Stall(&["x"])]).begin();
    let mut request = request();
    request.options.on_disconnect = OnDisconnect::Cancel;
    let tenant = request.tenant.clone();
    let started = agent.start(request, None).await.unwrap();
    let run = started.head.id.clone();
    drop(started);
    tokio::time::sleep(Duration::from_secs(14)).await;
    assert_eq!(agent.runs().get(&tenant, &run).await.unwrap().head.status, RunStatus::InProgress);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(agent.runs().get(&tenant, &run).await.unwrap().head.status, RunStatus::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn cancelling_answers_once_the_run_has_stopped_and_may_be_repeated() {
    let agent = TestAgent::builder().turns(vec![Say::Stall(&["x"])]).begin();
    let request = request();
    let tenant = request.tenant.clone();
    let mut started = agent.start(request, None).await.unwrap();
    let run = started.head.id.clone();
    let mut records = Vec::new();
    while shown(&records).is_empty() {
        let page = started.follower.next().await.unwrap().unwrap();
        records.extend(page.iter().map(|record| (**record).clone()));
    }
    for _ in 0..2 {
        assert_eq!(agent.runs().cancel(&tenant, &run).await.unwrap().head.status, RunStatus::Cancelled);
    }
    records.extend(watch(started).await);
    assert_eq!((shown(&records).as_str(), outcome(&records).status()), ("x", RunStatus::Cancelled));
}

#[tokio::test(start_paused = true)]
async fn the_grace_of_an_abandoned_run_does_not_restart_with_each_step() {
    // Each step takes a tool's whole timeout of 5 s.
    let agent = TestAgent::builder().turns(vec![Say::Calls("", vec![("hang", "{}")])]).begin();
    let mut request = request();
    request.options.on_disconnect = OnDisconnect::Cancel;
    let tenant = request.tenant.clone();
    let run = agent.start(request, None).await.unwrap().head.id;
    tokio::time::sleep(Duration::from_secs(17)).await;
    let ended = agent.runs().get(&tenant, &run).await.unwrap();
    assert_eq!(ended.head.status, RunStatus::Cancelled);
    assert!(ended.outcome.unwrap().iterations >= 3, "it had gone through several steps");
}

#[tokio::test(start_paused = true)]
async fn a_closing_answer_that_no_budget_has_room_for_is_not_asked_for_again() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let agent = TestAgent::builder().store(store.clone()).turns(vec![Say::Calls("", vec![("hang", "{}")])]).begin();
    let tenant = crate::types::Tenant::default_tenant();
    let id = SessionId::parse("s").unwrap();
    let new = crate::agent::session::NewSession {
        id: Some(id.clone()),
        token_budget: Some(2_000),
        ..crate::agent::session::NewSession::default()
    };
    agent.sessions().create(&tenant, new).await.unwrap();
    // What others in the session took meanwhile.
    let partition = crate::agent::ledger::keys::session_partition(&tenant, &id);
    let mut request = request();
    request.session = Some(id);
    request.limits.timeout_ms = Some(2_000);
    request.on_limit = Some(OnLimit::Synthesize);
    let mut started = agent.start(request, None).await.unwrap();
    let mut records = Vec::new();
    while !records.iter().any(|record: &crate::types::Record| matches!(record.event, Event::ToolStarted { .. })) {
        let page = started.follower.next().await.unwrap().unwrap();
        records.extend(page.iter().map(|record| (**record).clone()));
    }
    let take =
        crate::store::Write::Add { counter: crate::agent::ledger::keys::session_tokens(), delta: 1_980, ceiling: None };
    store.commit(crate::store::Tx::new(partition).write(take)).await.unwrap();
    let outcome = outcome(&watch(started).await);
    assert_eq!(outcome.reason, StopReason::Timeout);
    assert_eq!(outcome.output_text, "", "the model was not asked for a closing answer");
}

#[tokio::test(start_paused = true)]
async fn time_that_runs_out_while_the_model_speaks_still_leaves_a_closing_answer() {
    let agent = TestAgent::builder().turns(vec![Say::Stall(&["so far"]), Say::Text(&["in short"])]).begin();
    let mut request = request();
    request.limits.timeout_ms = Some(2_000);
    request.on_limit = Some(OnLimit::Synthesize);
    let outcome = outcome(&watch(agent.start(request, None).await.unwrap()).await);
    assert_eq!((outcome.reason, outcome.output_text.as_str()), (StopReason::Timeout, "in short"));
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_just_before_the_closing_answer_ends_the_run() {
    let faulty = Faulty::memory();
    let agent = TestAgent::builder().store(faulty.clone()).turns(vec![Say::Calls("", vec![("hang", "{}")])]).build();
    let mut request = request();
    request.limits.timeout_ms = Some(2_000);
    request.on_limit = Some(OnLimit::Synthesize);
    let closes = |entry: &Bytes| {
        log::decode(entry).is_ok_and(|record| matches!(record.event, Event::StepStarted { closing: Some(_), .. }))
    };
    let appends = move |write: &Write| matches!(write, Write::Append { entries, .. } if entries.iter().any(closes));
    faulty.next(move |tx| tx.writes.iter().any(appends), Fate::Hangs);
    let (canceller, tenant) = (agent.clone(), request.tenant.clone());
    let started = agent.start(request, None).await.unwrap();
    let run = started.head.id.clone();
    faulty.reached().await;
    let mut cancelled = JoinSet::new();
    cancelled.spawn(async move { canceller.runs().cancel(&tenant, &run).await });
    let (store, partition, run): (Arc<dyn Store>, _, _) =
        (faulty.clone(), keys::run_partition(&Tenant::default_tenant(), None, &started.head.id), &started.head.id);
    while inbox::length(&store, &partition, run).await.unwrap() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    faulty.go_on();
    assert_eq!(outcome(&watch(started).await).reason, StopReason::Timeout);
    assert!(cancelled.join_next().await.unwrap().unwrap().unwrap().head.status.is_final());
    assert_eq!(agent.model.requests.lock().len(), 1, "nothing more is asked of the model");
}

#[tokio::test(start_paused = true)]
async fn a_model_that_gives_up_at_the_deadline_has_not_failed() {
    let agent = TestAgent::builder().turns(vec![Say::Deadline(&["so far"])]).begin();
    let mut request = request();
    request.limits.timeout_ms = Some(2_000);
    request.options.max_discards = 0;
    let outcome = outcome(&watch(agent.start(request, None).await.unwrap()).await);
    assert_eq!((outcome.reason, outcome.status()), (StopReason::Timeout, RunStatus::Incomplete));
    assert_eq!(outcome.output_text, "so far");
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_begins_within_the_grace_ends_with_it() {
    let agent = TestAgent::builder().turns(vec![Say::Calls("", vec![("hang", "{}")]), Say::Stall(&["x"])]).begin();
    let mut request = request();
    request.options.on_disconnect = OnDisconnect::Cancel;
    let tenant = request.tenant.clone();
    let run = agent.start(request, None).await.unwrap().head.id;
    tokio::time::sleep(Duration::from_secs(16)).await;
    assert_eq!(agent.runs().get(&tenant, &run).await.unwrap().head.status, RunStatus::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn callers_that_may_not_read_a_run_do_not_keep_it_alive_by_asking_for_it() {
    let (other, agents) = (Tenant::parse("other").unwrap(), vec!["another".to_owned()]);
    let key = RequestKey { name: "n".into(), fingerprint: "f".into(), kind: RequestKeyKind::Key };
    for who in ["another tenant", "a key without the agent", "a key without the agent that repeats the request"] {
        let agent = TestAgent::builder().turns(vec![Say::Stall(&["x"])]).begin();
        let mut request = request();
        request.options.on_disconnect = OnDisconnect::Cancel;
        let tenant = request.tenant.clone();
        let run = agent.start(request.clone(), Some(&key)).await.unwrap().head.id;
        request.allowed_agents = Some(agents.clone());
        for _ in 0..40 {
            match who {
                "another tenant" => {
                    let refused = agent.runs().follow(&other, &run, 0).await;
                    assert!(matches!(refused, Err(LookupError::RunNotFound(_))), "{refused:?}");
                }
                "a key without the agent" => {
                    let requester = Requester { tenant: &tenant, agents: Some(&agents) };
                    let refused = agent.runs().follow(requester, &run, 0).await;
                    assert!(matches!(refused, Err(LookupError::AgentForbidden { .. })), "{refused:?}");
                }
                _ => {
                    let refused = agent.start(request.clone(), Some(&key)).await.err().unwrap();
                    assert!(matches!(refused, StartError::AgentForbidden(_)), "{refused:?}");
                }
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        assert_eq!(agent.runs().get(&tenant, &run).await.unwrap().head.status, RunStatus::Cancelled, "{who}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_makes_no_more_than_64_calls() {
    let turns = vec![Say::Calls("", vec![("echo", "{}"); 70]), Say::Text(&["done"])];
    let agent = TestAgent::builder().turns(turns).begin();
    let outcome = outcome(&watch(agent.start(request(), None).await.unwrap()).await);
    assert_eq!((outcome.reason, outcome.tool_calls, agent.journal.lock().len()), (StopReason::Done, 64, 64));
}
