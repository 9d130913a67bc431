//! What happens in a run happens in one order, and in the same order after a crash.

use super::replicas::shared;
use super::resume::{ended, leave, log_of};
use super::support::{Say, TestAgent, outcome, request, watch};
use crate::agent::NewRun;
use crate::llm::openai::messages::joined;
use crate::llm::{ModelErrorKind, Spent};
use crate::types::rules::{LoopRules, Reflection};
use crate::types::run::OnConflict;
use crate::types::{Message, Record, Role, SessionId, StopReason};

/// The names of events, without what was streamed.
fn names(records: &[Record]) -> Vec<String> {
    let name = |record: &Record| {
        let json = serde_json::to_value(&record.event).unwrap();
        json.as_str().map(str::to_owned).or_else(|| json.as_object()?.keys().next().cloned()).unwrap()
    };
    records.iter().map(name).filter(|name| !name.ends_with("_delta")).collect()
}

/// Rules by which a run is asked for a plan, how far it has come after two calls, and not to repeat itself.
fn rules() -> LoopRules {
    let reflection = Some(Reflection { every: 2, prompt: "How far are you?".into() });
    LoopRules { planning: Some("Plan first.".into()), reflection, ..LoopRules::default() }
}

/// A model that makes the same two calls five times, and then would answer.
fn turns() -> Vec<Say> {
    let calls = Say::Calls("hm", vec![("echo", r#"{"n":1}"#), ("save", "{}")]);
    vec![calls.clone(), calls.clone(), calls.clone(), calls.clone(), calls, Say::Text(&["done"])]
}

#[tokio::test(start_paused = true)]
async fn a_step_goes_from_prompts_over_the_model_and_its_tools_to_its_end() {
    let agent = TestAgent::builder().rules(rules()).turns(turns()).begin();
    let records = watch(agent.start(request(), None).await.unwrap()).await;
    let step = ["step_started", "tool_started", "tool_finished", "tool_started", "tool_finished", "step_completed"];
    let (reflection, looping) = (["reflection_started"], ["loop_guard_triggered"]);
    let parts: [&[&str]; 13] = [
        &["run_started", "plan_created"],
        &step,
        &reflection,
        &step,
        &reflection,
        &step,
        &looping,
        &reflection,
        &step,
        &reflection,
        &step,
        &looping,
        &["run_finished"],
    ];
    let expected = parts.concat();
    assert_eq!(names(&records), expected);
    assert_eq!(outcome(&records).reason, StopReason::LoopGuard);
    let requests = agent.model.requests.lock();
    let has = |index: usize, text: &str| joined(&requests[index].conversation).contains(text);
    let asked: Vec<_> = (0..5)
        .map(|index| {
            (has(index, "Plan first."), has(index, "How far are you?"), has(index, "The same calls of `echo`, `save`"))
        })
        .collect();
    let (plan, reflection) = ((true, false, false), (false, true, false));
    assert_eq!(asked, [plan, reflection, reflection, (false, true, true), (false, true, true)]);
}

#[tokio::test(start_paused = true)]
async fn every_prefix_of_a_log_with_prompts_and_a_loop_resumes_to_the_same_end() {
    let calls = Say::Calls("hm", vec![("echo", r#"{"n":1}"#), ("echo", r#"{"n":2}"#)]);
    let turns = vec![calls; 6];
    let store = shared();
    let first = TestAgent::builder().store(store.clone()).rules(rules()).turns(turns.clone()).begin();
    let (spec, whole) = log_of(&first, &store).await;
    assert_eq!(outcome(&whole).reason, StopReason::LoopGuard);
    for cut in 1..whole.len() {
        let store = shared();
        leave(&store, &spec, &whole[..cut]).await;
        let agent = TestAgent::builder().store(store).rules(rules()).turns(turns.clone()).build();
        let records = ended(&agent, &spec.id).await;
        let counted = |records: &[Record], wanted: &str| names(records).iter().filter(|name| *name == wanted).count();
        for event in ["plan_created", "loop_guard_triggered", "reflection_started"] {
            assert_eq!(counted(&records, event), counted(&whole, event), "{event}, cut at {cut}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_first_message_of_a_session_is_planned_wherever_the_next_one_lands() {
    let rules = LoopRules { planning: Some("Plan first.".into()), ..LoopRules::default() };
    let store = shared();
    let replica = || TestAgent::builder().store(store.clone()).rules(rules.clone()).begin();
    let mut asked = Vec::new();
    for _ in 0..3 {
        let agent = replica();
        let new = NewRun { session: SessionId::parse("s"), ..request() };
        watch(agent.start(new, None).await.unwrap()).await;
        asked.push(joined(&agent.model.requests.lock()[0].conversation).matches("Plan first.").count());
    }
    assert_eq!(asked, [1, 0, 0]);
    let agent = replica();
    let history = vec![Message::text(Role::User, "a"), Message::text(Role::Assistant, "b")];
    let messages = history.into_iter().chain(request().messages).collect();
    watch(agent.start(NewRun { messages, ..request() }, None).await.unwrap()).await;
    assert_eq!(joined(&agent.model.requests.lock()[0].conversation).matches("Plan first.").count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_run_is_planned_that_finds_no_conversation_when_it_begins() {
    let rules = LoopRules { planning: Some("Plan first.".into()), ..LoopRules::default() };
    for (first, planned) in [(Say::Text(&["done"]), 1), (Say::Fails(&[(ModelErrorKind::Rejected, Spent::Nothing)]), 2)]
    {
        let turns = vec![Say::Late(1_000, Box::new(first))];
        let agent = TestAgent::builder().rules(rules.clone()).turns(turns).begin();
        let new = || NewRun { session: SessionId::parse("s"), on_conflict: OnConflict::Enqueue, ..request() };
        let live = agent.start(new(), None).await.unwrap();
        let queued = agent.start(new(), None).await.unwrap();
        watch(live).await;
        watch(queued).await;
        let requests = agent.model.requests.lock();
        let asked = requests.iter().filter(|request| joined(&request.conversation).contains("Plan first.")).count();
        assert_eq!((asked, requests.len()), (planned, 2));
    }
}
