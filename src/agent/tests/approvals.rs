//! Calls that wait for an approval: `loop.md` T39 to T41, K9, 2.21, pitfalls 31 to 33.

mod any_order;
mod policies;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio_util::task::TaskTracker;

use super::link::Link;
use super::replicas::shared;
use super::support::{Say, TestAgent, client_tool, outcome, request, watch};
use crate::agent::error::{ApprovalError, Field, StartError};
use crate::agent::ledger::{keys, log};
use crate::agent::request_key::{RequestKey, RequestKeyKind};
use crate::agent::{ApprovalPatch, CallApproval, NewRun};
use crate::store::Store;
use crate::store::faulty::{Fate, Faulty};
use crate::store::memory::MemoryStore;
use crate::types::approval::{ApprovalDecision, ApprovalMode, ApprovalTerms};
use crate::types::clock::now_ms;
use crate::types::policy::{Layer, LayerOwner, Rule};
use crate::types::report::DecisionReport;
use crate::types::run::{OnConflict, OnDisconnect};
use crate::types::{
    CallId, Effect, Event, Message, Outcome, Record, RunId, RunStatus, SessionId, StopReason, Tenant, ToolCall,
};

const ONE: &str = r#"{"n":1}"#;
const TWO: &str = r#"{"n":2}"#;

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::default())
}

/// A replica whose model plays these turns and whose tool `echo` writes.
fn replica(store: &Arc<dyn Store>, turns: Vec<Say>) -> TestAgent {
    TestAgent::builder().store(store.clone()).echo(Effect::Write).turns(turns).begin()
}

/// A request whose calls of `echo` need an approval.
fn asking() -> NewRun {
    let layer = Layer { owner: LayerOwner::Request, ask: vec![Rule::of("echo")], ..Layer::default() };
    NewRun { policy: Some(Arc::new(layer)), ..request() }
}

/// Starts a run and follows it until it waits.
async fn waiting(agent: &TestAgent, new: NewRun) -> (RunId, Outcome) {
    let started = agent.start(new, None).await.unwrap();
    let run = started.head.id.clone();
    let outcome = outcome(&watch(started).await);
    assert_eq!((outcome.reason, outcome.status()), (StopReason::Approval, RunStatus::RequiresAction));
    (run, outcome)
}

fn calls(outcome: &Outcome) -> Vec<ToolCall> {
    outcome.required_calls.iter().map(|required| required.call.clone()).collect()
}

fn decision(call: &CallId, decision: ApprovalDecision) -> CallApproval {
    CallApproval { call: call.clone(), decision, digest: None, reason: None, arguments: None, result: None }
}

fn approve(call: &CallId) -> CallApproval {
    decision(call, ApprovalDecision::Approve)
}

fn deciding(run: &RunId, approvals: Vec<CallApproval>) -> NewRun {
    NewRun::deciding(Tenant::default_tenant(), run.clone(), approvals)
}

/// The records that a request with these decisions is answered with.
async fn decide(agent: &TestAgent, run: &RunId, approvals: Vec<CallApproval>) -> Result<Vec<Record>, StartError> {
    Ok(watch(agent.start(deciding(run, approvals), None).await?).await)
}

async fn refusal(agent: &TestAgent, run: &RunId, approvals: Vec<CallApproval>) -> StartError {
    decide(agent, run, approvals).await.expect_err("it is refused")
}

/// The text of each result, in the order in which they were recorded.
fn results(records: &[Record]) -> Vec<String> {
    let results = records.iter().filter_map(|record| match &record.event {
        Event::ToolFinished { outcome, .. } => Some(outcome.text().into_owned()),
        _ => None,
    });
    results.collect()
}

fn turns() -> Vec<Say> {
    vec![Say::Calls("", vec![("echo", ONE)]), Say::Text(&["done"])]
}

#[tokio::test(start_paused = true)]
async fn an_approved_call_is_made_once_by_whichever_replica_hears_of_it() {
    let store = memory();
    let first = replica(&store, turns());
    let (run, outcome_1) = waiting(&first, asking()).await;
    let required = &outcome_1.required_calls[0];
    assert_eq!((required.call.name.as_str(), required.call.arguments.as_str()), ("echo", ONE));
    assert!(required.reason.as_ref().unwrap().contains("policy of the request"), "{required:?}");
    assert!(required.expires_ms.unwrap() > now_ms());
    assert!(first.journal.lock().is_empty(), "nothing is made before it is approved");
    drop(first);

    let second = replica(&store, vec![Say::Text(&["done"])]);
    let records = decide(&second, &run, vec![approve(&required.call.id)]).await.unwrap();
    let end = outcome(&records);
    assert_eq!((end.reason, end.output_text.as_str()), (StopReason::Done, "done"));
    assert_eq!(*second.journal.lock(), [ONE]);
    let events: Vec<_> = records.iter().map(|record| &record.event).collect();
    assert!(matches!(events[0], Event::ApprovalResolved(approval) if approval.decision == ApprovalDecision::Approve));
    assert!(matches!(events[1], Event::RunResumed { leg: Some(_) }));
    assert!(matches!(events[2], Event::ToolStarted { .. }));
    // The decision counts once.
    let late = refusal(&second, &run, vec![approve(&required.call.id)]).await;
    assert!(matches!(late, StartError::NotWaiting(_)), "{late}");
    assert_eq!(second.journal.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_denied_or_skipped_is_not_made_and_the_model_is_told() {
    for (what, told) in [
        (ApprovalDecision::Deny, "The call was not made: it was denied. Not today."),
        (ApprovalDecision::Skip, "The call was skipped. Go on without its result. Not today."),
    ] {
        let agent = replica(&memory(), turns());
        let (run, waits) = waiting(&agent, asking()).await;
        let id = calls(&waits)[0].id.clone();
        let denied = CallApproval { reason: Some("Not today.".into()), ..decision(&id, what) };
        let records = decide(&agent, &run, vec![denied]).await.unwrap();
        assert_eq!(results(&records), [told]);
        let end = outcome(&records);
        assert_eq!(end.output_text, "done", "the run goes on");
        assert!(agent.journal.lock().is_empty());
        let reported = &end.report.steps[0].tool_calls[0];
        assert_eq!((reported.skipped, reported.error.as_deref()), (true, Some(told)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_may_be_given_and_changed_arguments_are_checked_and_judged_again() {
    let deny_three = Rule { arguments: [("n".to_owned(), vec!["3".to_owned()])].into(), ..Rule::of("echo") };
    let layer = Layer { ask: vec![Rule::of("echo")], deny: vec![deny_three], ..Layer::default() };
    let new = || NewRun { policy: Some(Arc::new(layer.clone())), ..request() };
    let agent = replica(&memory(), [turns(), turns()].concat());
    let (run, waits) = waiting(&agent, new()).await;
    let id = calls(&waits)[0].id.clone();
    let with = |arguments: &str| CallApproval { arguments: Some(arguments.into()), ..approve(&id) };
    for (arguments, why) in [(r#"{"n":"x"}"#, "schema"), ("[]", "JSON object"), (r#"{"n":3}"#, "denies")] {
        let refused = refusal(&agent, &run, vec![with(arguments)]).await;
        let StartError::Invalid { field: Field::Approval(0, "arguments"), message } = &refused else {
            panic!("{refused:?}");
        };
        assert!(message.contains(why), "{message}");
    }
    let records = decide(&agent, &run, vec![with(TWO)]).await.unwrap();
    assert_eq!((results(&records).len(), agent.journal.lock().as_slice()), (1, [TWO.to_owned()].as_slice()));
    assert!(results(&records)[0].contains("were changed before it was made"), "{:?}", results(&records));

    let (run, waits) = waiting(&agent, new()).await;
    let given = CallApproval { result: Some("7".into()), ..approve(&calls(&waits)[0].id) };
    let records = decide(&agent, &run, vec![given]).await.unwrap();
    assert_eq!((results(&records), agent.journal.lock().len()), (vec!["7".to_owned()], 1));
}

#[tokio::test(start_paused = true)]
async fn all_calls_of_a_turn_are_decided_before_any_is_made_and_their_results_keep_their_order() {
    let turn = vec![("save", "{}"), ("echo", ONE), ("ask", "{}"), ("echo", TWO)];
    let agent = replica(&memory(), vec![Say::Calls("", turn), Say::Text(&["done"])]);
    let (run, waits) = waiting(&agent, NewRun { client_tools: vec![client_tool("ask")], ..asking() }).await;
    let [one, two] = calls(&waits).try_into().expect("two calls wait");
    assert_eq!(waits.tool_calls, 0, "not even the call that needs no approval was made");
    let half = decide(&agent, &run, vec![approve(&two.id)]).await.unwrap();
    let left = outcome(&half);
    assert_eq!((calls(&left), left.reason), (vec![one.clone()], StopReason::Approval));
    let again = refusal(&agent, &run, vec![decision(&two.id, ApprovalDecision::Deny)]).await;
    assert!(matches!(again, StartError::Approval(ApprovalError::Decided(_))), "the first decision counts: {again}");
    let strange = refusal(&agent, &run, vec![approve(&CallId::foreign("call_x"))]).await;
    assert!(matches!(strange, StartError::Approval(ApprovalError::NoSuchCall(..))), "{strange}");
    // The client's own call waits for the server's.
    let answer = NewRun {
        run: Some(run.clone()),
        messages: vec![Message::tool(&one.id, "7")],
        answered: vec![one.id.clone()],
        ..request()
    };
    let early = agent.start(answer, None).await.err().unwrap();
    assert!(matches!(&early, StartError::WaitsForApproval { tools, .. } if tools == "echo"), "{early}");

    let records = decide(&agent, &run, vec![decision(&one.id, ApprovalDecision::Deny)]).await.unwrap();
    let end = outcome(&records);
    assert_eq!((end.reason, end.required_calls[0].call.name.as_str()), (StopReason::ClientTools, "ask"));
    assert_eq!(*agent.journal.lock(), [TWO]);
    let names: Vec<_> = end.report.steps[0].tool_calls.iter().map(|call| (call.name.as_str(), call.skipped)).collect();
    assert_eq!(names, [("save", false), ("echo", true), ("echo", false)]);
    let id = end.required_calls[0].call.id.clone();
    let answer = NewRun { run: Some(run), messages: vec![Message::tool(&id, "yes")], answered: vec![id], ..request() };
    assert_eq!(outcome(&watch(agent.start(answer, None).await.unwrap()).await).output_text, "done");
}

#[tokio::test(start_paused = true)]
async fn a_decision_is_for_the_arguments_that_were_shown() {
    let agent = replica(&memory(), turns());
    let (run, waits) = waiting(&agent, asking()).await;
    let call = &calls(&waits)[0];
    let other = ToolCall { arguments: TWO.into(), ..call.clone() }.digest();
    let meant = |digest| CallApproval { digest: Some(digest), ..approve(&call.id) };
    let refused = refusal(&agent, &run, vec![meant(other)]).await;
    assert!(matches!(refused, StartError::Approval(ApprovalError::OtherArguments(_))), "{refused}");
    decide(&agent, &run, vec![meant(call.digest())]).await.unwrap();
    assert_eq!(agent.journal.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_nobody_decides_in_time_is_denied_and_the_run_goes_on() {
    let store = memory();
    let agent = replica(&store, turns());
    let new = NewRun { approval: ApprovalPatch { timeout_ms: Some(60_000), mode: None }, ..asking() };
    let (run, waits) = waiting(&agent, new).await;
    let expires = waits.required_calls[0].expires_ms.unwrap();
    agent.rooms.recovery.do_what_is_due(expires - 1).await.unwrap();
    assert_eq!(status(&agent, &run).await, RunStatus::RequiresAction, "it is not due yet");
    agent.rooms.recovery.do_what_is_due(expires).await.unwrap();
    let followed = agent.runs().follow(&Tenant::default_tenant(), &run, 0).await.unwrap().follower.unwrap();
    let mut follower = followed;
    let mut records = Vec::new();
    while let Some(page) = follower.next().await.unwrap() {
        records.extend(page.into_iter().map(|record| (*record).clone()));
    }
    assert_eq!(outcome(&records).output_text, "done");
    assert_eq!(results(&records), ["The call was not made: it was not approved in time."]);
    let leg = |record: &Record| matches!(&record.event, Event::RunResumed { leg: Some(leg) } if leg.number == 1);
    assert_eq!(records.iter().filter(|record| leg(record)).count(), 1, "what follows is its next response");
    assert!(agent.journal.lock().is_empty());
    let late = refusal(&agent, &run, vec![approve(&calls(&waits)[0].id)]).await;
    assert!(matches!(late, StartError::NotWaiting(_)), "{late}");
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_calls_were_decided_goes_on_without_a_reader() {
    for expires in [true, false] {
        let turns = vec![Say::Calls("", vec![("echo", ONE)]), Say::Late(5_000, Box::new(Say::Text(&["done"])))];
        let agent = replica(&memory(), turns);
        let mut new = asking();
        new.options.on_disconnect = OnDisconnect::Cancel;
        new.options.reconnect_grace_ms = 1_000;
        let (run, waits) = waiting(&agent, new).await;
        if expires {
            agent.rooms.recovery.do_what_is_due(u64::MAX).await.unwrap();
        } else {
            drop(agent.start(deciding(&run, vec![approve(&calls(&waits)[0].id)]), None).await.unwrap());
        }
        while status(&agent, &run).await == RunStatus::InProgress {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(status(&agent, &run).await, RunStatus::Completed, "expires: {expires}");
    }
}

/// Of a denial that was sent while its replica died, a repetition is only told what was recorded, whatever others have
/// decided meanwhile.
#[tokio::test(start_paused = true)]
async fn a_repeated_decision_is_not_acknowledged_because_another_was_made() {
    for dies_at in 1..8 {
        let store = shared();
        let turns = vec![Say::Calls("", vec![("echo", ONE), ("echo", TWO)]), Say::Text(&["done"])];
        let first = replica(&store, turns.clone());
        let (run, waits) = waiting(&first, NewRun { session: None, ..asking() }).await;
        let [one, two] = [0, 1].map(|place| calls(&waits)[place].id.clone());
        let count = AtomicUsize::new(0);
        let dying = Faulty::new(Link::to(&store), move |_| {
            let nth = count.fetch_add(1, Ordering::Relaxed) + 1;
            if nth == dies_at { Fate::DiesBefore } else { Fate::Happens }
        });
        let dying = replica(&(dying as Arc<dyn Store>), turns.clone());
        let key = RequestKey { name: "denial".into(), fingerprint: "f".into(), kind: RequestKeyKind::Key };
        let deny = || deciding(&run, vec![decision(&one, ApprovalDecision::Deny)]);
        let _ = tokio::time::timeout(Duration::from_secs(60), dying.start(deny(), Some(&key))).await;
        let other = replica(&store, turns);
        decide(&other, &run, vec![approve(&two)]).await.unwrap();
        let told = other.start(deny(), Some(&key)).await;
        let partition = keys::run_partition(&Tenant::default_tenant(), None, &run);
        let page = store.read_log(&partition, &keys::events(&run), 0, 10_000).await.unwrap();
        let is_recorded = page.entries.iter().any(|entry| match log::decode(entry).unwrap().event {
            Event::ApprovalResolved(approval) => approval.call_id == one && approval.decision == ApprovalDecision::Deny,
            _ => false,
        });
        assert!(is_recorded || told.is_err(), "{dies_at}: it is told that its denial counts");
    }
}

async fn status(agent: &TestAgent, run: &RunId) -> RunStatus {
    agent.runs().get(&Tenant::default_tenant(), run).await.unwrap().head.status
}

#[tokio::test(start_paused = true)]
async fn an_approval_that_comes_too_late_is_refused_before_the_sweep_comes() {
    let agent = TestAgent::builder().echo(Effect::Write).turns(turns()).build();
    let new = NewRun { approval: ApprovalPatch { timeout_ms: Some(1), mode: None }, ..asking() };
    let (run, waits) = waiting(&agent, new).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let late = refusal(&agent, &run, vec![approve(&calls(&waits)[0].id)]).await;
    assert!(matches!(late, StartError::Approval(ApprovalError::Expired(_))), "{late}");
    assert!(agent.journal.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_next_message_of_a_conversation_is_told_what_waits_and_may_interrupt_it() {
    let session = SessionId::parse("s");
    let agent = replica(&memory(), [turns(), vec![Say::Text(&["hello"])]].concat());
    let (run, waits) = waiting(&agent, NewRun { session: session.clone(), ..asking() }).await;
    let next = |on_conflict| NewRun { session: session.clone(), on_conflict, ..request() };
    let told = agent.start(next(OnConflict::Reject), None).await.err().unwrap();
    assert!(matches!(&told, StartError::SessionWaits { run: named, .. } if *named == run), "{told}");
    assert!(told.to_string().contains("/approvals"), "{told}");
    let started = agent.start(next(OnConflict::Interrupt), None).await.unwrap();
    assert_eq!(outcome(&watch(started).await).reason, StopReason::Done);
    assert_eq!(status(&agent, &run).await, RunStatus::Cancelled);
    let late = refusal(&agent, &run, vec![approve(&calls(&waits)[0].id)]).await;
    assert!(matches!(late, StartError::NotWaiting(_)), "{late}");
    assert!(agent.journal.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn with_mode_wait_the_response_goes_on_when_all_is_decided() {
    let store = memory();
    let agent = replica(&store, turns());
    let approval = ApprovalPatch { mode: Some(ApprovalMode::Wait), timeout_ms: None };
    let started = agent.start(NewRun { approval, ..asking() }, None).await.unwrap();
    let run = started.head.id.clone();
    let reading = TaskTracker::new().spawn(watch(started));
    while status(&agent, &run).await != RunStatus::RequiresAction {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(!reading.is_finished(), "the reader waits with the run");
    let view = agent.runs().get(&Tenant::default_tenant(), &run).await.unwrap();
    let call = calls(&view.outcome.unwrap())[0].id.clone();
    // Another replica hears of it.
    let other = replica(&store, vec![Say::Text(&["done"])]);
    decide(&other, &run, vec![approve(&call)]).await.unwrap();
    let records = reading.await.unwrap();
    assert_eq!(outcome(&records).output_text, "done");
    let numbers: Vec<u64> = records.iter().map(|record| record.seq).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>(), "nothing is missing");
}

#[tokio::test(start_paused = true)]
async fn with_mode_deny_nobody_is_asked() {
    let agent = replica(&memory(), turns());
    let approval = ApprovalPatch { mode: Some(ApprovalMode::Deny), timeout_ms: None };
    let records = watch(agent.start(NewRun { approval, ..asking() }, None).await.unwrap()).await;
    assert_eq!(outcome(&records).output_text, "done");
    assert!(
        results(&records)[0].ends_with("This agent asks for no approvals: the call is denied."),
        "{:?}",
        results(&records)
    );
    assert!(agent.journal.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn several_must_approve_where_the_agent_says_so_and_never_the_one_who_asked() {
    let approval = ApprovalTerms {
        needed: 2,
        separate: true,
        approvers: vec!["ops-*".into(), "web".into()],
        ..ApprovalTerms::default()
    };
    let agent = TestAgent::builder().echo(Effect::Write).turns(turns()).approval(approval).begin();
    let (run, waits) = waiting(&agent, NewRun { key_name: Some("web".into()), ..asking() }).await;
    let call = calls(&waits)[0].id.clone();
    let by = |key: &str| NewRun { key_name: Some(key.into()), ..deciding(&run, vec![approve(&call)]) };
    for key in ["web", "guest"] {
        let refused = agent.start(by(key), None).await.err().unwrap();
        assert!(matches!(refused, StartError::Approval(ApprovalError::MayNotApprove(_))), "{key}: {refused}");
    }
    let first = outcome(&watch(agent.start(by("ops-1"), None).await.unwrap()).await);
    assert_eq!((first.reason, agent.journal.lock().len()), (StopReason::Approval, 0), "one is not enough");
    let again = agent.start(by("ops-1"), None).await.err().unwrap();
    assert!(matches!(again, StartError::Approval(ApprovalError::AwaitsOthers(_))), "{again}");
    let records = watch(agent.start(by("ops-2"), None).await.unwrap()).await;
    let end = outcome(&records);
    assert_eq!((end.reason, agent.journal.lock().len()), (StopReason::Done, 1));
    let by = |key: &str| DecisionReport {
        decision: ApprovalDecision::Approve,
        by: Some(key.into()),
        user: None,
        reason: None,
    };
    assert_eq!(end.report.steps[0].tool_calls[0].decisions, [by("ops-1"), by("ops-2")]);
}
