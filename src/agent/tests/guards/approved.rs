//! Arguments that an approver changed are judged as those of the model are.

use super::super::hooks::{hook, program};
use super::super::resume::{ended, leave};
use super::*;
use crate::agent::CallApproval;
use crate::agent::error::{Field, StartError};
use crate::agent::ledger::{document, keys, log};
use crate::config::HookConfig;
use crate::store::Store;
use crate::store::memory::MemoryStore;
use crate::types::approval::ApprovalDecision;
use crate::types::guard::{GuardPoint, Guardrail, GuardrailRule, Severity};
use crate::types::hook::HookPoint;
use crate::types::policy::{Layer, Rule};
use crate::types::{Outcome, RunId, RunSpec, Tenant};

const ONE: &str = r#"{"n":1}"#;
const TWO: &str = r#"{"n":2}"#;
const SEVEN: &str = r#"{"n":7}"#;

fn rail(rule: GuardrailRule, tripwire: bool) -> Guards {
    let guardrail =
        Guardrail { name: "no-seven".into(), on: GuardPoint::ToolArguments, rule, tripwire, severity: Severity::High };
    Guards { guardrails: vec![guardrail], ..Guards::default() }
}

fn regex(tripwire: bool) -> Guards {
    rail(GuardrailRule::Regex { pattern: "7".into() }, tripwire)
}

fn service() -> Guards {
    rail(GuardrailRule::Webhook { hook: "moderation".into(), fails_open: false }, true)
}

/// What says nothing against a call, unless this is in it.
fn moderation(pattern: &str) -> HookConfig {
    let script =
        format!(r#"if grep -q '{pattern}'; then echo '{{"verdict":"fail"}}'; else echo '{{"verdict":"pass"}}'; fi"#);
    hook("moderation", HookPoint::Guardrail, program(&script))
}

/// What denies calls with a seven.
fn denies_seven() -> HookConfig {
    let script = r#"if grep -q '"input":{"n":7}'; then echo '{"decision":"block","reason":"No seven."}'; fi"#;
    hook("look", HookPoint::BeforeTool, program(script))
}

fn agent_over(store: &Arc<dyn Store>, guards: Guards, hooks: Vec<HookConfig>) -> TestAgent {
    let turns = vec![Say::Calls("", vec![("echo", ONE)]), Say::Text(&["done"])];
    TestAgent::builder().store(store.clone()).turns(turns).guards(guards).hooks(hooks).build()
}

fn agent(guards: Guards, hooks: Vec<HookConfig>) -> TestAgent {
    let agent = agent_over(&memory(), guards, hooks);
    agent.begin();
    agent
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::default())
}

/// A run whose call waits for an approval.
async fn waiting(agent: &TestAgent) -> (RunId, Outcome) {
    let policy = Layer { ask: vec![Rule::of("echo")], ..Layer::default() };
    let started = agent.start(NewRun { policy: Some(Arc::new(policy)), ..request() }, None).await.unwrap();
    let run = started.head.id.clone();
    let waits = outcome(&watch(started).await);
    assert_eq!(waits.reason, StopReason::Approval);
    (run, waits)
}

fn approving(run: &RunId, waits: &Outcome, arguments: Option<&str>) -> NewRun {
    let approval = CallApproval {
        call: waits.required_calls[0].call.id.clone(),
        decision: ApprovalDecision::Approve,
        digest: None,
        reason: None,
        arguments: arguments.map(str::to_owned),
        result: None,
    };
    NewRun::deciding(Tenant::default_tenant(), run.clone(), vec![approval])
}

/// What comes of a call that is approved with a seven.
async fn approved(agent: &TestAgent) -> Vec<Record> {
    let (run, waits) = waiting(agent).await;
    watch(agent.start(approving(&run, &waits, Some(SEVEN)), None).await.unwrap()).await
}

fn ways(records: &[Record]) -> (usize, usize) {
    let (mut judged, mut triggered) = (0, 0);
    for found in guarded(records) {
        judged += usize::from(matches!(found, Guarded::Judged(_)));
        triggered += usize::from(matches!(found, Guarded::Triggered(_)));
    }
    (judged, triggered)
}

#[tokio::test(start_paused = true)]
async fn an_approver_is_told_which_guardrail_refuses_arguments() {
    let agent = agent(regex(true), vec![]);
    let (run, waits) = waiting(&agent).await;
    let refused = agent.start(approving(&run, &waits, Some(SEVEN)), None).await;
    let Err(StartError::Blocked { field: Field::Approval(0, "arguments"), message }) = refused else {
        panic!("{refused:?}")
    };
    assert!(message.starts_with("the guardrail \"no-seven\" refuses this"), "{message}");
    let records = watch(agent.start(approving(&run, &waits, Some(TWO)), None).await.unwrap()).await;
    assert_eq!(outcome(&records).reason, StopReason::Done, "the run waited on for another decision");
    assert_eq!(*agent.journal.lock(), [TWO]);
    let guards = regex(true);
    let guardrails = guards.guardrails.into_iter().map(|rail| Guardrail { on: GuardPoint::ToolResult, ..rail });
    let agent = self::agent(Guards { guardrails: guardrails.collect(), ..Guards::default() }, vec![]);
    let (run, waits) = waiting(&agent).await;
    let mut given = approving(&run, &waits, None);
    given.approvals[0].result = Some("7".into());
    let refused = agent.start(given, None).await;
    assert!(matches!(refused, Err(StartError::Blocked { field: Field::Approval(0, "result"), .. })), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn what_ends_no_run_is_told_of_arguments_that_an_approver_changed() {
    let agent = agent(regex(false), vec![]);
    let records = approved(&agent).await;
    assert_eq!((outcome(&records).reason, ways(&records)), (StopReason::Done, (0, 1)));
    assert_eq!(*agent.journal.lock(), [SEVEN]);
}

#[tokio::test]
async fn a_service_is_asked_about_the_arguments_that_an_approver_changed() {
    for (pattern, reason, made, triggered) in [(":7}", StopReason::Guardrail, 0, 1), (":8}", StopReason::Done, 1, 0)] {
        let agent = agent(service(), vec![moderation(pattern)]);
        let records = approved(&agent).await;
        assert_eq!((outcome(&records).reason, ways(&records)), (reason, (1, triggered)));
        assert_eq!(agent.journal.lock().len(), made);
        assert_eq!(results(&records).len(), 1, "it has one result");
    }
    // A verdict on arguments that the approver left as they were is known.
    let agent = agent(service(), vec![moderation(":7}")]);
    let (run, waits) = waiting(&agent).await;
    let records = watch(agent.start(approving(&run, &waits, None), None).await.unwrap()).await;
    assert_eq!((outcome(&records).reason, ways(&records)), (StopReason::Done, (0, 0)));
}

#[tokio::test]
async fn a_hook_before_the_call_is_asked_about_the_arguments_that_an_approver_changed() {
    let agent = agent(Guards::default(), vec![denies_seven()]);
    let records = approved(&agent).await;
    assert_eq!((outcome(&records).reason, agent.journal.lock().len()), (StopReason::Done, 0));
    assert!(results(&records)[0].0.contains("No seven."), "{records:?}");
    let asked = records.iter().filter(|record| matches!(record.event, Event::HookRan(_))).count();
    assert_eq!(asked, 1);
}

/// The whole log of a run whose call was approved with a seven, internal records too, and its specification.
async fn undisturbed(store: &Arc<dyn Store>) -> (RunSpec, Vec<Record>) {
    let agent = agent_over(store, service(), vec![moderation(":8}"), denies_eight()]);
    let (run, waits) = waiting(&agent).await;
    let partition = keys::run_partition(&Tenant::default_tenant(), None, &run);
    let spec = store.get(&partition, &keys::spec(&run)).await.unwrap().unwrap();
    watch(agent.start(approving(&run, &waits, Some(SEVEN)), None).await.unwrap()).await;
    let page = store.read_log(&partition, &keys::events(&run), 0, 1_000).await.unwrap();
    (document::decode(&spec.value).unwrap(), page.entries.iter().map(|entry| log::decode(entry).unwrap()).collect())
}

fn denies_eight() -> HookConfig {
    hook("look", HookPoint::BeforeTool, program(r#"if grep -q '"n":8'; then echo '{"decision":"block"}'; fi"#))
}

#[tokio::test]
async fn a_replica_that_takes_over_asks_about_them_once_and_for_no_other_approval() {
    let (spec, whole) = undisturbed(&memory()).await;
    let resumed = whole.iter().position(|record| matches!(record.event, Event::RunResumed { .. })).unwrap();
    for cut in resumed + 1..whole.len() {
        let store = memory();
        leave(&store, &spec, &whole[..cut]).await;
        let agent = agent_over(&store, service(), vec![moderation(":8}"), denies_eight()]);
        let records = ended(&agent, &spec.id).await;
        let end = outcome(&records[resumed..]);
        assert_eq!((end.reason, end.output_text.as_str()), (StopReason::Done, "done"), "cut at {cut}");
        let asked = records.iter().filter(|record| matches!(record.event, Event::HookRan(_))).count();
        assert_eq!((ways(&records), asked), ((2, 0), 2), "cut at {cut}: about both arguments, once");
        assert!(agent.journal.lock().iter().all(|made| made == SEVEN));
    }
}
