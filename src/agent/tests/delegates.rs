//! Runs that begin others, and wait for them.

mod bounds;
mod budgets;
mod deaths;
mod ends;

use std::sync::Arc;
use std::time::Duration;

use super::support::{Does, Member, Team, outcome, request, said, team, watch};
use crate::agent::control::Filter;
use crate::agent::{Agent, Head, NewRun, Quotas};
use crate::store::Store;
use crate::store::memory::MemoryStore;
use crate::types::delegate::{CompletedChild, DELEGATE, Delegated, Delegation, StartedChild, TaskHistory};
use crate::types::rules::LoopRules;
use crate::types::{Event, Message, Outcome, Record, Role, RunId, RunStatus, StopReason, Tenant};

fn tenant() -> Tenant {
    Tenant::default_tenant()
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::default())
}

/// An agent that delegates to these, within the usual bounds but for this change.
fn delegating(
    name: &'static str,
    to: &'static [&'static str],
    change: impl FnOnce(&mut Delegation) + 'static,
) -> Member {
    Member::new(name, move |config| {
        let mut delegation = Delegation { to: to.iter().map(|to| (*to).to_owned()).collect(), ..Delegation::default() };
        change(&mut delegation);
        let rules = Arc::make_mut(&mut config.rules);
        *rules = LoopRules { delegation, ..rules.clone() };
    })
}

fn plain(name: &'static str) -> Member {
    Member::new(name, |_| {})
}

/// A call of `delegate`.
fn hands(agent: &str, task: &str) -> (String, String) {
    (DELEGATE.to_owned(), serde_json::json!({"agent": agent, "task": task}).to_string())
}

/// What the results say that follow the last turn of the assistant.
fn results(messages: &[Message]) -> Vec<String> {
    let of_turn = messages.iter().rev().take_while(|message| message.role == Role::Tool);
    let mut texts: Vec<_> = of_turn.map(said).collect();
    texts.reverse();
    texts
}

/// Delegates these tasks in its first turn, then says what it was told.
fn boss(messages: &[Message], calls: Vec<(String, String)>) -> Does {
    let told = results(messages);
    if told.is_empty() { Does::Calls(calls) } else { Does::Says(told.join("; ")) }
}

/// The task of an agent: its last message.
fn task(messages: &[Message]) -> String {
    messages.last().map(said).unwrap_or_default()
}

async fn run(agent: &Agent, of: &str) -> (Outcome, Vec<Record>) {
    let started = agent.admission().start(asks(of), None).await.unwrap();
    let records = watch(started).await;
    (outcome(&records), records)
}

fn asks(agent: &str) -> NewRun {
    NewRun { model: Some(agent.to_owned()), ..request() }
}

fn begun(records: &[Record]) -> Vec<StartedChild> {
    let of = records.iter().filter_map(|record| match &record.event {
        Event::Delegated(delegated) => match &**delegated {
            Delegated::Started(child) => Some(child.clone()),
            Delegated::Completed(_) => None,
        },
        _ => None,
    });
    of.collect()
}

fn ended(records: &[Record]) -> Vec<CompletedChild> {
    let of = records.iter().filter_map(|record| match &record.event {
        Event::Delegated(delegated) => match &**delegated {
            Delegated::Completed(child) => Some(child.clone()),
            Delegated::Started(_) => None,
        },
        _ => None,
    });
    of.collect()
}

/// All runs that there are.
async fn runs(agent: &Agent) -> Vec<Head> {
    let filter = Filter { limit: 1_000, ..Filter::default() };
    agent.runs().list(&tenant(), &filter).await.unwrap().found
}

async fn status(agent: &Agent, run: &RunId) -> RunStatus {
    agent.runs().get(&tenant(), run).await.unwrap().head.status
}

#[tokio::test(start_paused = true)]
async fn a_model_delegates_and_is_told_what_the_others_answer() {
    let model = Team::new(|name, messages| match name {
        "boss" => boss(messages, vec![hands("worker", "one"), hands("worker", "two")]),
        _ => Does::Says(format!("{} is done", task(messages))),
    });
    let agent =
        team(&memory(), &model, vec![delegating("boss", &["worker"], |_| {}), plain("worker")], Quotas::default());
    let (end, records) = run(&agent, "boss").await;
    assert_eq!((end.reason, end.output_text.as_str()), (StopReason::Done, "one is done; two is done"));
    let children = begun(&records);
    assert_eq!(children.iter().map(|child| (&*child.agent, child.depth)).collect::<Vec<_>>(), [("worker", 1); 2]);
    let ends = ended(&records);
    assert!(ends.iter().all(|end| end.status == RunStatus::Completed && end.tree.runs == 1));
    assert_eq!(ends[0].own.usage.total(), 110);
    let below = end.delegated.unwrap();
    assert_eq!((below.runs, below.usage.total(), end.usage.total()), (2, 220, 220), "its own is told apart");
    for child in &children {
        let head = agent.runs().get(&tenant(), &child.run).await.unwrap().head;
        let parent = head.parent.unwrap();
        assert_eq!((&parent.call, parent.depth, &parent.root), (&child.call_id, 1, &parent.run));
        assert_eq!((head.agent.as_str(), head.session), ("worker", None));
    }
    let offered = model.offered.lock().clone();
    assert!(
        offered.iter().all(|(name, tools)| (name == "boss") == tools.contains(&DELEGATE.to_owned())),
        "{offered:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_agent_sees_its_task_alone_or_the_conversation_too() {
    for (history, seen) in [(TaskHistory::Fresh, "count"), (TaskHistory::Fork, "a/b/question/count")] {
        let model = Team::new(|name, messages| match name {
            "boss" => boss(messages, vec![hands("worker", "count")]),
            _ => Does::Says(messages.iter().map(said).collect::<Vec<_>>().join("/")),
        });
        let members = vec![delegating("boss", &["worker"], move |rules| rules.history = history), plain("worker")];
        let agent = team(&memory(), &model, members, Quotas::default());
        let mut new = asks("boss");
        new.system = vec![Message::text(Role::System, "for the boss")];
        new.messages.splice(..0, [Message::text(Role::User, "a"), Message::assistant("b", &[])]);
        let records = watch(agent.admission().start(new, None).await.unwrap()).await;
        assert_eq!(outcome(&records).output_text, seen);
    }
}

#[tokio::test(start_paused = true)]
async fn what_goes_wrong_below_is_an_error_that_the_model_is_told() {
    let model = Team::new(|name, messages| match name {
        "boss" => boss(
            messages,
            vec![
                hands("worker", "hang"),
                hands("worker", "loop"),
                hands("worker", "long"),
                hands("nobody", "x"),
                (DELEGATE.to_owned(), "{}".to_owned()),
            ],
        ),
        _ if task(messages).starts_with("hang") => Does::Hangs,
        _ if task(messages).starts_with("long") => Does::Says("é".repeat(40)),
        _ => Does::Calls(vec![("echo".to_owned(), "{}".to_owned())]),
    });
    let bounds = |delegation: &mut Delegation| {
        (delegation.timeout_ms, delegation.max_iterations, delegation.max_output_chars) = (5_000, 3, 30);
    };
    let agent =
        team(&memory(), &model, vec![delegating("boss", &["worker"], bounds), plain("worker")], Quotas::default());
    let (end, records) = run(&agent, "boss").await;
    let told: Vec<&str> = end.output_text.split("; ").collect();
    assert_eq!(end.reason, StopReason::Done, "{end:?}");
    assert!(told[0].contains("did not get to the end: time"), "{told:?}");
    assert!(told[1].contains("did not get to the end: max"), "{told:?}");
    assert_eq!(told[2], format!("{}\n[cut: the first 30 of 40 characters]", "é".repeat(30)));
    assert!(told[3].contains("nobody") && told[4].contains("agent"), "{told:?}");
    let statuses: Vec<_> = ended(&records).iter().map(|end| (end.status, end.reason)).collect();
    assert!(statuses.contains(&(RunStatus::Incomplete, Some(StopReason::Timeout))), "{statuses:?}");
    assert!(statuses.contains(&(RunStatus::Incomplete, Some(StopReason::MaxIterations))), "{statuses:?}");
    assert_eq!(statuses.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn so_many_are_under_way_at_once_and_no_more() {
    for (parallel, most) in [(true, 2), (false, 1)] {
        let model = Team::new(|name, messages| match name {
            "boss" => boss(messages, (0..5).map(|number| hands("worker", &number.to_string())).collect()),
            _ => Does::SaysAfter(Duration::from_secs(3), task(messages)),
        });
        let members =
            vec![delegating("boss", &["worker"], |delegation| delegation.max_concurrent = 2), plain("worker")];
        let agent = team(&memory(), &model, members, Quotas::default());
        let mut new = asks("boss");
        new.options.parallel_tool_calls = parallel;
        let records = watch(agent.admission().start(new, None).await.unwrap()).await;
        assert_eq!(outcome(&records).output_text, "0; 1; 2; 3; 4");
        assert_eq!(model.busy.lock().1, most);
    }
}

#[tokio::test(start_paused = true)]
async fn who_stands_deepest_delegates_no_further() {
    let model = Team::new(|_, messages| {
        let told = results(messages);
        match (told.is_empty(), task(messages)) {
            (false, _) => Does::Says(told.join("; ")),
            (true, task) => Does::Calls(vec![hands("self", &format!("{task}+"))]),
        }
    });
    let members = vec![delegating("self", &["self"], |delegation| delegation.max_depth = 2)];
    let agent = team(&memory(), &model, members, Quotas::default());
    let (end, _) = run(&agent, "self").await;
    assert_eq!(end.status(), RunStatus::Completed);
    assert!(end.output_text.contains("no tool named"), "the third is offered no such tool: {}", end.output_text);
    let first: Vec<String> = model.asked.lock().iter().map(|(_, told)| told.clone()).collect();
    assert!(first.contains(&"question++".to_owned()) && !first.contains(&"question+++".to_owned()), "{first:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_takes_all_below_it_along() {
    let model = Team::new(|name, messages| match name {
        "boss" => boss(messages, vec![hands("middle", "a"), hands("middle", "b")]),
        "middle" => boss(messages, vec![hands("worker", "c")]),
        _ => Does::Hangs,
    });
    let members =
        vec![delegating("boss", &["middle"], |_| {}), delegating("middle", &["worker"], |_| {}), plain("worker")];
    let agent = team(&memory(), &model, members, Quotas::default());
    let root = agent.admission().start(asks("boss"), None).await.unwrap().head.id;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let all = runs(&agent).await;
    assert_eq!(all.len(), 5);
    assert_eq!(status(&agent, &root).await, RunStatus::RequiresAction, "it waits without a driver");
    agent.runs().cancel(&tenant(), &root).await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    for head in all {
        assert_eq!(status(&agent, &head.id).await, RunStatus::Cancelled, "{}", head.agent);
    }
}
