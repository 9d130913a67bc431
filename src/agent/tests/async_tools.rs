//! Tools whose services accept a call and answer later.

mod any_order;

use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;

use super::support::{Echo, Say, TestAgent, client_tool, outcome, request, watch};
use crate::agent::follow::Follower;
use crate::agent::tool_results::{Taken, ToolResultError};
use crate::agent::{Agent, NewRun};
use crate::store::Store;
use crate::store::memory::MemoryStore;
use crate::tools::{CallContext, Source, Tool, ToolAnswer, ToolError, ToolSpec};
use crate::types::clock;
use crate::types::conversation::Part;
use crate::types::run::{OnConflict, OnDisconnect, OnUnknownOutcome};
use crate::types::tool::CallEnding;
use crate::types::{
    CallId, Effect, Event, Message, Outcome, Record, RunId, RunStatus, SessionId, StopReason, Tenant, ToolOutcome,
};

const MINUTE: Duration = Duration::from_secs(60);

/// What a service was asked: the call, its token, and which attempt of the call it is.
type Asked = (CallId, String, u32);

/// A tool whose service accepts each call.
#[derive(Debug)]
pub(super) struct Accepts {
    spec: ToolSpec,
    asked: Arc<Mutex<Vec<Asked>>>,
    /// Who is answered before the service says that it accepts the call, if anyone is.
    answers_first: Option<Arc<OnceLock<Agent>>>,
    /// A call takes a permit to be accepted.
    permits: Arc<Semaphore>,
}

impl Accepts {
    pub(super) fn new(effect: Effect) -> Self {
        let spec = ToolSpec {
            name: "render".into(),
            description: "Renders.".into(),
            parameters: RawValue::from_string(r#"{"type":"object"}"#.into()).unwrap(),
            effect,
            timeout: None,
            source: Source::Http,
        };
        Self { spec, asked: Arc::default(), answers_first: None, permits: Arc::new(Semaphore::new(1_000)) }
    }
}

#[async_trait]
impl Tool for Accepts {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn answers_within(&self) -> Option<Duration> {
        Some(10 * MINUTE)
    }

    async fn call(&self, _: &RawValue, context: &CallContext) -> Result<ToolAnswer, ToolError> {
        let token = context.callback_token.clone().expect("a call of such a tool has a token");
        self.asked.lock().push((context.call.clone(), token.clone(), context.attempt));
        if let Some(agent) = self.answers_first.as_ref().and_then(|agent| agent.get()) {
            answer(agent, &context.call, &token, "early").await.unwrap();
        }
        self.permits.acquire().await.unwrap().forget();
        Ok(ToolAnswer { is_pending: true, status: Some(202), ..ToolAnswer::default() })
    }
}

async fn answer(agent: &Agent, call: &CallId, token: &str, text: &str) -> Result<Taken, ToolResultError> {
    let addressed = agent.tool_results().find(call.as_str(), token).await?;
    let outcome = ToolOutcome { parts: vec![Part::text(text)], ..ToolOutcome::default() };
    agent.tool_results().take(addressed, outcome, text.to_owned()).await
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::default())
}

/// A replica with these tools whose model plays these turns; and what its service was asked.
fn replica_with(store: &Arc<dyn Store>, tool: Accepts, turns: Vec<Say>) -> (TestAgent, Arc<Mutex<Vec<Asked>>>) {
    let asked = tool.asked.clone();
    let tools: Vec<Arc<dyn Tool>> = vec![Arc::new(tool), Arc::new(Echo::new("echo", Effect::Read, 1_000))];
    (TestAgent::builder().store(store.clone()).tools(tools).turns(turns).begin(), asked)
}

fn replica(store: &Arc<dyn Store>, effect: Effect) -> (TestAgent, Arc<Mutex<Vec<Asked>>>) {
    replica_with(store, Accepts::new(effect), turns())
}

fn turns() -> Vec<Say> {
    vec![Say::Calls("", vec![("render", "{}")]), Say::Text(&["done"])]
}

/// Starts a run and follows it until it waits.
async fn waiting(agent: &TestAgent, new: NewRun) -> (RunId, Follower, Outcome) {
    let started = agent.start(new, None).await.unwrap();
    let (run, mut follower) = (started.head.id.clone(), started.follower);
    loop {
        let page = follower.next().await.unwrap().expect("it waits before it ends");
        if let Some(Event::RunFinished(outcome)) = page.last().map(|record| &record.event) {
            assert_eq!((outcome.reason, outcome.status()), (StopReason::ToolPending, RunStatus::RequiresAction));
            return (run, follower, (**outcome).clone());
        }
    }
}

async fn rest(mut follower: Follower) -> Vec<Record> {
    let mut records = Vec::new();
    while let Some(page) = follower.next().await.unwrap() {
        records.extend(page.into_iter().map(|record| (*record).clone()));
    }
    records
}

async fn records(agent: &TestAgent, run: &RunId) -> Vec<Record> {
    rest(agent.runs().follow(&Tenant::default_tenant(), run, 0).await.unwrap().follower.unwrap()).await
}

async fn status(agent: &TestAgent, run: &RunId) -> RunStatus {
    agent.runs().get(&Tenant::default_tenant(), run).await.unwrap().head.status
}

/// The text of each result, in the order in which they were recorded.
fn results(records: &[Record]) -> Vec<String> {
    let results = records.iter().filter_map(|record| match &record.event {
        Event::ToolFinished { outcome, .. } => Some(outcome.text().into_owned()),
        _ => None,
    });
    results.collect()
}

#[tokio::test(start_paused = true)]
async fn a_run_waits_for_a_service_without_a_driver_and_goes_on_wherever_it_answers() {
    let store = memory();
    let (first, asked) = replica(&store, Effect::Write);
    let (run, follower, waits) = waiting(&first, request()).await;
    let (call, token, _) = asked.lock()[0].clone();
    assert_eq!((waits.required_calls[0].call.id.clone(), waits.stays_open), (call.clone(), true));
    assert_eq!(waits.output_text, "The run waits for the answer of render.");
    tokio::time::sleep(5 * MINUTE).await;
    assert!(first.rooms.active.get(&run).is_none(), "no driver is left");
    assert_eq!(status(&first, &run).await, RunStatus::RequiresAction);
    clock::shift(300_000);

    let (second, _) = replica_with(&store, Accepts::new(Effect::Write), vec![Say::Text(&["done"])]);
    assert_eq!(answer(&second, &call, &token, "a picture").await.unwrap(), Taken::Now);
    // Its reader has waited all the time, at the replica that drove it first.
    let seen = rest(follower).await;
    assert!(matches!(seen[0].event, Event::RunResumed { leg: None }));
    assert_eq!(results(&seen), ["a picture"]);
    let end = outcome(&seen);
    assert_eq!((end.reason, end.output_text.as_str()), (StopReason::Done, "done"));
    let reported = &end.report.steps[0].tool_calls[0];
    assert!(reported.latency_ms >= 300_000 && reported.error.is_none(), "{reported:?}");
    assert!(end.report.total_ms < 60_000, "the time of the run does not pass while it waits: {}", end.report.total_ms);
    assert_eq!(asked.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_first_answer_of_a_call_counts_and_only_who_has_its_token_answers() {
    let (agent, asked) = replica(&memory(), Effect::Write);
    let (run, follower, _) = waiting(&agent, request()).await;
    let (call, token, _) = asked.lock()[0].clone();
    let other = run.call(2);
    for (call, token) in [(&call, "x"), (&call, ""), (&other, token.as_str()), (&CallId::foreign("call_1"), &token)] {
        let refused = answer(&agent, call, token, "7").await.unwrap_err();
        assert!(matches!(refused, ToolResultError::NoSuchCall), "{refused}");
    }
    assert_eq!(answer(&agent, &call, &token, "7").await.unwrap(), Taken::Now);
    assert_eq!(answer(&agent, &call, &token, "7").await.unwrap(), Taken::Before);
    let refused = answer(&agent, &call, &token, "8").await.unwrap_err();
    assert!(matches!(refused, ToolResultError::AnsweredOtherwise(_)), "{refused}");
    assert_eq!(results(&rest(follower).await), ["7"]);
    assert_eq!(answer(&agent, &call, &token, "7").await.unwrap(), Taken::Before, "also when the run has ended");
    assert!(answer(&agent, &call, &token, "8").await.is_err());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_before_the_call_is_accepted_is_not_lost() {
    for effect in [Effect::Read, Effect::Write] {
        let first = Arc::new(OnceLock::new());
        let tool = Accepts { answers_first: Some(first.clone()), ..Accepts::new(effect) };
        let (agent, _) = replica_with(&memory(), tool, turns());
        first.set((*agent).clone()).unwrap();
        let seen = watch(agent.start(request(), None).await.unwrap()).await;
        assert_eq!(results(&seen), ["early"]);
        assert_eq!(outcome(&seen).output_text, "done");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_not_answered_in_time_is_given_up_by_its_effect() {
    for (effect, policy, reason) in [
        (Effect::Read, OnUnknownOutcome::Fail, StopReason::Done),
        (Effect::Write, OnUnknownOutcome::TellModel, StopReason::Done),
        (Effect::Write, OnUnknownOutcome::Fail, StopReason::OutcomeUnknown),
    ] {
        clock::shift(0);
        let (agent, asked) = replica(&memory(), effect);
        let mut new = request();
        new.options.on_unknown_outcome = policy;
        let (run, follower, waits) = waiting(&agent, new).await;
        let expires = waits.required_calls[0].expires_ms.unwrap();
        agent.rooms.recovery.do_what_is_due(expires).await.unwrap();
        assert_eq!(status(&agent, &run).await, RunStatus::RequiresAction, "it is not due yet");
        clock::shift(600_001);
        let (call, token, _) = asked.lock()[0].clone();
        let late = answer(&agent, &call, &token, "late").await.unwrap_err();
        assert!(matches!(late, ToolResultError::TooLate(_)), "{late}");
        assert_eq!(status(&agent, &run).await, RunStatus::RequiresAction, "what came in time is stored first");
        // The sweep comes by itself.
        clock::shift(603_000);
        let seen = rest(follower).await;
        assert_eq!(outcome(&seen).reason, reason);
        let told = &results(&seen)[0];
        assert!(told.contains("accepted the call, and did not answer within 600 s"), "{told}");
        assert_eq!(told.contains("is unknown"), effect == Effect::Write, "{told}");
        let late = answer(&agent, &call, &token, "late").await.unwrap_err();
        assert!(matches!(late, ToolResultError::TooLate(_)), "{late}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_cancelled_while_it_waits_tells_what_became_of_its_call() {
    let (agent, asked) = replica(&memory(), Effect::Write);
    let (run, follower, _) = waiting(&agent, request()).await;
    agent.runs().cancel(&Tenant::default_tenant(), &run).await.unwrap();
    let seen = rest(follower).await;
    let end = outcome(&seen);
    assert_eq!(end.reason, StopReason::Cancelled);
    assert!(results(&seen)[0].starts_with("The call was stopped with the run."), "{:?}", results(&seen));
    assert!(end.report.steps[0].tool_calls[0].outcome_unknown);
    let (call, token, _) = asked.lock()[0].clone();
    let late = answer(&agent, &call, &token, "late").await.unwrap_err();
    assert!(matches!(late, ToolResultError::TooLate(_)), "{late}");
    agent.rooms.recovery.do_what_is_due(u64::MAX).await.unwrap();
    assert_eq!(status(&agent, &run).await, RunStatus::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn other_calls_of_the_turn_go_on_and_the_clients_come_last() {
    let turn = vec![("render", "{}"), ("ask", "{}"), ("echo", r#"{"n":1}"#), ("render", r#"{"n":2}"#)];
    let turns = vec![Say::Calls("", turn), Say::Text(&["done"])];
    let (agent, asked) = replica_with(&memory(), Accepts::new(Effect::Write), turns);
    let new = NewRun { client_tools: vec![client_tool("ask")], ..request() };
    let (run, mut follower, waits) = waiting(&agent, new).await;
    let names: Vec<_> = waits.required_calls.iter().map(|required| required.call.name.as_str()).collect();
    assert_eq!((names, waits.tool_calls), (vec!["render", "render"], 1), "`echo` has its result");
    let [one, two] = <[Asked; 2]>::try_from(asked.lock().clone()).unwrap();
    let early = NewRun {
        run: Some(run.clone()),
        messages: vec![Message::tool(&run.call(2), "yes")],
        answered: vec![run.call(2)],
        ..request()
    };
    let refused = agent.start(early, None).await.err().unwrap();
    assert!(refused.to_string().contains("waits for the services behind render, render"), "{refused}");

    answer(&agent, &two.0, &two.1, "second").await.unwrap();
    let mut seen = Vec::new();
    while !matches!(seen.last(), Some(Event::RunFinished(_))) {
        seen.extend(follower.next().await.unwrap().unwrap().into_iter().map(|record| record.event.clone()));
    }
    let Some(Event::RunFinished(waits)) = seen.last() else { unreachable!() };
    assert_eq!((waits.reason, waits.required_calls.len()), (StopReason::ToolPending, 1), "it waits for the other one");
    answer(&agent, &one.0, &one.1, "first").await.unwrap();
    let end = outcome(&rest(follower).await);
    assert_eq!((end.reason, end.required_calls[0].call.name.as_str()), (StopReason::ClientTools, "ask"));
    let reported: Vec<_> = end.report.steps[0].tool_calls.iter().map(|call| call.call_id.clone()).collect();
    assert_eq!(reported, [run.call(1), run.call(3), run.call(4)]);
    let call = run.call(2);
    let answers =
        NewRun { run: Some(run), messages: vec![Message::tool(&call, "yes")], answered: vec![call], ..request() };
    let seen = watch(agent.start(answers, None).await.unwrap()).await;
    assert_eq!(outcome(&seen).output_text, "done");
}

#[tokio::test(start_paused = true)]
async fn an_answer_counts_that_comes_while_other_calls_of_the_turn_are_made() {
    let permits = Arc::new(Semaphore::new(1));
    let turns = vec![Say::Calls("", vec![("render", "{}"), ("render", r#"{"n":2}"#)]), Say::Text(&["done"])];
    let tool = Accepts { permits: permits.clone(), ..Accepts::new(Effect::Write) };
    let (agent, asked) = replica_with(&memory(), tool, turns);
    let started = agent.start(request(), None).await.unwrap();
    while asked.lock().len() < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Answers to both calls, of which one is accepted and the other still being sent.
    let both = asked.lock().clone();
    for (call, token, _) in both {
        assert_eq!(answer(&agent, &call, &token, call.as_str()).await.unwrap(), Taken::Now);
    }
    permits.add_permits(1);
    let seen = watch(started).await;
    assert_eq!(results(&seen).len(), 2);
    let waits = seen.iter().filter(|record| matches!(&record.event, Event::RunFinished(_))).count();
    assert_eq!((waits, outcome(&seen).output_text.as_str()), (1, "done"), "the run need not wait at all");
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_run_waits_for_a_service_is_busy_and_what_is_queued_waits_for_its_end() {
    let session = SessionId::parse("s");
    let (agent, asked) =
        replica_with(&memory(), Accepts::new(Effect::Read), [turns(), vec![Say::Text(&["next"])]].concat());
    let (run, follower, _) = waiting(&agent, NewRun { session: session.clone(), ..request() }).await;
    let next = |on_conflict| NewRun { session: session.clone(), on_conflict, ..request() };
    let refused = agent.start(next(OnConflict::Reject), None).await.err().unwrap();
    assert!(refused.to_string().contains(run.as_str()), "{refused}");
    let queued = agent.start(next(OnConflict::Enqueue), None).await.unwrap();
    agent.rooms.recovery.do_what_is_due(1).await.unwrap();
    tokio::time::sleep(MINUTE).await;
    assert_eq!(status(&agent, &run).await, RunStatus::RequiresAction, "it is not cancelled for what comes next");
    let (call, token, _) = asked.lock()[0].clone();
    answer(&agent, &call, &token, "7").await.unwrap();
    assert_eq!(outcome(&rest(follower).await).output_text, "done");
    assert_eq!(outcome(&watch(queued).await).output_text, "next");

    let (agent, _) =
        replica_with(&memory(), Accepts::new(Effect::Read), [turns(), vec![Say::Text(&["next"])]].concat());
    let (run, _follower, _) = waiting(&agent, NewRun { session: session.clone(), ..request() }).await;
    let started = agent.start(next(OnConflict::Interrupt), None).await.unwrap();
    assert_eq!(outcome(&watch(started).await).reason, StopReason::Done);
    assert_eq!(status(&agent, &run).await, RunStatus::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_a_service_answered_goes_on_without_a_reader() {
    let turns = vec![Say::Calls("", vec![("render", "{}")]), Say::Late(5_000, Box::new(Say::Text(&["done"])))];
    let (agent, asked) = replica_with(&memory(), Accepts::new(Effect::Read), turns);
    let mut new = request();
    new.options.on_disconnect = OnDisconnect::Cancel;
    new.options.reconnect_grace_ms = 1_000;
    let (run, follower, _) = waiting(&agent, new).await;
    drop(follower);
    tokio::time::sleep(MINUTE).await;
    let (call, token, _) = asked.lock()[0].clone();
    answer(&agent, &call, &token, "7").await.unwrap();
    while !status(&agent, &run).await.is_final() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(status(&agent, &run).await, RunStatus::Completed);
    let ended = records(&agent, &run).await;
    let finished = ended.iter().find_map(|record| match &record.event {
        Event::ToolFinished { outcome, .. } => Some(outcome.clone()),
        _ => None,
    });
    assert_eq!(finished.unwrap().ending, CallEnding::Answered);
}
