//! Runs that go on as another agent.

mod bounds;
mod deaths;

use std::sync::Arc;
use std::time::Duration;

use super::support::{Does, Member, Team, client_tool, outcome, request, said, team, watch};
use crate::agent::session::NewSession;
use crate::agent::{Agent, CallApproval, NewRun, Quotas};
use crate::store::Store;
use crate::store::memory::MemoryStore;
use crate::types::approval::ApprovalDecision;
use crate::types::handoff::{HANDOFF, HandedHistory, HandoffRules};
use crate::types::policy::{Layer, Rule};
use crate::types::succession::Handoff;
use crate::types::{Event, Message, Outcome, Record, Role, RunStatus, SessionId, StopReason, Tenant};

fn tenant() -> Tenant {
    Tenant::default_tenant()
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::default())
}

/// An agent that hands its runs off to these, as usual but for this change.
fn handing(
    name: &'static str,
    to: &'static [&'static str],
    change: impl FnOnce(&mut HandoffRules) + 'static,
) -> Member {
    Member::new(name, move |config| {
        let mut rules = HandoffRules { to: to.iter().map(|to| (*to).to_owned()).collect(), ..HandoffRules::default() };
        change(&mut rules);
        Arc::make_mut(&mut config.rules).handoff = rules;
    })
}

fn plain(name: &'static str) -> Member {
    Member::new(name, |_| {})
}

/// The same agent, changed further.
fn with(member: Member, change: impl FnOnce(&mut crate::config::AgentConfig) + 'static) -> Member {
    Member::new(member.name, move |config| {
        (member.change)(config);
        change(config);
    })
}

/// A call of `handoff`.
fn hands(agent: &str) -> (String, String) {
    let arguments = serde_json::json!({"agent": agent, "reason": "it is about money", "message": "Be kind."});
    (HANDOFF.to_owned(), arguments.to_string())
}

fn echoes() -> (String, String) {
    ("echo".to_owned(), "{}".to_owned())
}

/// What the results say that follow the last turn of the assistant.
fn results(messages: &[Message]) -> Vec<String> {
    let of_turn = messages.iter().rev().take_while(|message| message.role == Role::Tool);
    let mut texts: Vec<_> = of_turn.map(said).collect();
    texts.reverse();
    texts
}

/// `front` hands its run to `billing`, which answers.
fn pair() -> Arc<Team> {
    Team::new(|name, _| match name {
        "front" => Does::Calls(vec![hands("billing")]),
        _ => Does::Says(format!("{name} is here")),
    })
}

fn asks(agent: &str) -> NewRun {
    NewRun { model: Some(agent.to_owned()), ..request() }
}

async fn run(agent: &Agent, new: NewRun) -> (Outcome, Vec<Record>) {
    let records = watch(agent.admission().start(new, None).await.unwrap()).await;
    (outcome(&records), records)
}

fn handoffs(records: &[Record]) -> Vec<Handoff> {
    let of = records.iter().filter_map(|record| match &record.event {
        Event::Handoff(handoff) => Some((**handoff).clone()),
        _ => None,
    });
    of.collect()
}

fn asked(model: &Team) -> Vec<String> {
    model.asked.lock().iter().map(|(name, _)| name.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_run_goes_on_as_the_agent_that_it_is_handed_to() {
    let model = pair();
    let billing = with(plain("billing"), |config| config.tools = vec!["save".to_owned()]);
    let agent = team(&memory(), &model, vec![handing("front", &["billing"], |_| {}), billing], Quotas::default());
    let (end, records) = run(&agent, asks("front")).await;
    assert_eq!((end.reason, end.output_text.as_str()), (StopReason::Done, "billing is here"));
    let told = handoffs(&records);
    let [handoff] = &told[..] else { panic!("it is told once: {told:?}") };
    assert_eq!((&*handoff.from, &*handoff.to, &*handoff.reason), ("front", "billing", "it is about money"));
    let asked = model.asked.lock().clone();
    assert_eq!(asked.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["front", "billing"]);
    let last = &asked[1].1;
    assert!(last.contains("it is about money") && last.contains("from the agent \"front\":\nBe kind."), "{last}");
    let offered = model.offered.lock().clone();
    assert_eq!(offered[1].1, ["save"], "its tools are those of the agent, and not those of the one before");
    assert!(offered[0].1.contains(&HANDOFF.to_owned()), "{offered:?}");
    let named = records.iter().filter_map(|record| match &record.event {
        Event::StepStarted { model, .. } => Some(model.is_some()),
        _ => None,
    });
    assert_eq!(named.collect::<Vec<_>>(), [true, true], "the log says which model is called");
    assert_eq!((end.usage.total(), end.iterations), (220, 2), "it is one run");
    let head = agent.runs().get(&tenant(), &handoff_run(&agent).await).await.unwrap().head;
    assert_eq!(head.agent, "billing");
}

/// The only run that there is.
async fn handoff_run(agent: &Agent) -> crate::types::RunId {
    let filter = crate::agent::control::Filter { limit: 10, ..crate::agent::control::Filter::default() };
    let found = agent.runs().list(&tenant(), &filter).await.unwrap().found;
    assert_eq!(found.len(), 1, "another agent goes on in the same run");
    found[0].id.clone()
}

#[tokio::test(start_paused = true)]
async fn the_session_goes_on_with_the_agent_that_it_was_handed_to() {
    let model = pair();
    let members = vec![handing("front", &["billing"], |_| {}), plain("billing")];
    let agent = team(&memory(), &model, members, Quotas::default());
    let id = SessionId::parse("s-1").unwrap();
    let new = NewSession { id: Some(id.clone()), agent: Some("front".to_owned()), ..NewSession::default() };
    agent.sessions().create(&tenant(), new).await.unwrap();
    let next = || NewRun { model: None, session: Some(id.clone()), ..request() };
    let (first, _) = run(&agent, next()).await;
    assert_eq!(first.output_text, "billing is here");
    assert_eq!(agent.sessions().get(&tenant(), &id).await.unwrap().session.agent.as_deref(), Some("billing"));
    let (second, records) = run(&agent, next()).await;
    assert_eq!((second.output_text.as_str(), handoffs(&records).len()), ("billing is here", 0));
    assert_eq!(asked(&model), ["front", "billing", "billing"]);
}

#[tokio::test(start_paused = true)]
async fn all_calls_of_a_turn_are_answered_before_another_agent_goes_on_and_the_first_handoff_counts() {
    let model = Team::new(|name, messages| match name {
        "front" => Does::Calls(vec![hands("billing"), echoes(), hands("sales")]),
        _ => Does::Says(format!("{name}: {}", results(messages).join("; "))),
    });
    let none = |name| with(plain(name), |config| config.tools = Vec::new());
    let members = vec![handing("front", &["billing", "sales"], |_| {}), none("billing"), none("sales")];
    let agent = team(&memory(), &model, members, Quotas::default());
    let (end, records) = run(&agent, asks("front")).await;
    let told = end.output_text;
    assert!(told.starts_with("billing: The agent \"billing\" goes on"), "{told}");
    assert!(told.contains("; {}; The agent \"billing\" goes on with this run already"), "{told}");
    assert_eq!(handoffs(&records).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_next_agent_is_shown_the_conversation_or_the_last_turn_of_it() {
    for (history, first) in [(HandedHistory::All, "one"), (HandedHistory::LastTurn, "three")] {
        let model = Team::new(|name, messages| match name {
            "front" => Does::Calls(vec![hands("billing")]),
            _ => Does::Says(said(&messages[0])),
        });
        let members = vec![handing("front", &["billing"], move |rules| rules.history = history), plain("billing")];
        let agent = team(&memory(), &model, members, Quotas::default());
        let says = |role, text| Message::text(role, text);
        let messages = vec![says(Role::User, "one"), says(Role::Assistant, "two"), says(Role::User, "three")];
        let (end, _) = run(&agent, NewRun { messages, ..asks("front") }).await;
        assert_eq!(end.output_text, first);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_for_its_client_meanwhile_goes_on_as_the_other_agent_at_any_replica() {
    let model = Team::new(|name, messages| match name {
        "front" => Does::Calls(vec![hands("billing"), ("ask".to_owned(), "{}".to_owned())]),
        _ => Does::Says(format!("{name}: {}", results(messages).join("; "))),
    });
    let members = || {
        vec![
            handing("front", &["billing"], |_| {}),
            with(plain("billing"), |config| config.tools = vec!["save".to_owned()]),
        ]
    };
    let store = memory();
    let first = team(&store, &model, members(), Quotas::default());
    let new = NewRun { client_tools: vec![client_tool("ask")], ..asks("front") };
    let (end, _) = run(&first, new).await;
    assert_eq!(end.reason, StopReason::ClientTools);
    let call = end.required_calls[0].call.id.clone();
    let second = team(&store, &model, members(), Quotas::default());
    let answer = NewRun {
        messages: vec![Message::tool(&call, "yes")],
        answered: vec![call],
        run: Some(handoff_run(&first).await),
        client_tools: vec![client_tool("ask")],
        ..asks("front")
    };
    let (end, _) = run(&second, answer).await;
    assert!(end.output_text.starts_with("billing: ") && end.output_text.ends_with("; yes"), "{}", end.output_text);
    let offered = model.offered.lock().last().cloned().unwrap();
    assert_eq!(offered, ("billing".to_owned(), vec!["save".to_owned(), "ask".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_was_delegated_to_may_be_handed_off_too() {
    let model = Team::new(|name, messages| match (name, results(messages)) {
        ("boss", told) if told.is_empty() => {
            let task = serde_json::json!({"agent": "front", "task": "Bill it."}).to_string();
            Does::Calls(vec![("delegate".to_owned(), task)])
        }
        ("boss", told) => Does::Says(told.join("; ")),
        ("front", _) => Does::Calls(vec![hands("billing")]),
        (name, _) => Does::Says(format!("{name} did it")),
    });
    let boss = with(plain("boss"), |config| {
        Arc::make_mut(&mut config.rules).delegation.to = vec!["front".to_owned()];
        config.limits.token_budget = Some(10_000);
    });
    let members = vec![boss, handing("front", &["billing"], |_| {}), plain("billing")];
    let agent = team(&memory(), &model, members, Quotas::default());
    let (end, _) = run(&agent, asks("boss")).await;
    assert_eq!(end.output_text, "billing did it");
    let below = end.delegated.unwrap();
    assert_eq!((below.runs, below.usage.total()), (1, 220), "both agents' calls are the run's");
}
