//! What hooks say is in the log, and what they are told is stored with what it tells.

mod approvals;
mod delivery;
mod told;
mod withheld;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::resume::{leave, log_of};
use super::support::{Say, TestAgent, outcome, request, unguarded, watch};
use crate::agent::NewRun;
use crate::agent::ledger::due::{self, DueKind};
use crate::agent::ledger::{keys, log};
use crate::config::{HookAction, HookCommand, HookConfig, Secret};
use crate::store::memory::MemoryStore;
use crate::store::{Order, Partition, Scan, Store};
use crate::types::hook::{HookDecision, HookPoint, HookRan};
use crate::types::rules::{LoopRules, ToolErrors};
use crate::types::{Effect, ErrorKind, Event, Record, RunSpec, RunStatus};

pub(super) fn hook(name: &str, point: HookPoint, action: HookAction) -> HookConfig {
    let is_asked = !matches!(point, HookPoint::RunEnd | HookPoint::BudgetWarning);
    HookConfig {
        name: name.to_owned(),
        points: vec![point],
        tools: vec!["*".to_owned()],
        agents: vec!["*".to_owned()],
        users: None,
        is_asked: is_asked && !matches!(action, HookAction::Log | HookAction::Metric | HookAction::Notify(_)),
        action,
        timeout: Duration::from_secs(5),
        fails_open: false,
        retry_for: Duration::from_secs(60),
    }
}

pub(super) fn program(script: &str) -> HookAction {
    HookAction::Command(HookCommand {
        program: "/bin/sh".to_owned(),
        arguments: vec!["-c".to_owned(), script.to_owned()],
        env: vec![("PATH".to_owned(), Secret::new("/usr/bin:/bin"))],
        directory: None,
        max_output: 1 << 16,
    })
}

fn calls(name: &'static str, arguments: &'static str) -> Vec<Say> {
    vec![Say::Calls("", vec![(name, arguments)]), Say::Text(&["done"])]
}

fn ran(records: &[Record]) -> Vec<HookRan> {
    let all = records.iter().filter_map(|record| match &record.event {
        Event::HookRan(ran) => Some((**ran).clone()),
        _ => None,
    });
    all.collect()
}

fn result(records: &[Record]) -> (String, bool) {
    let mut all = records.iter().filter_map(|record| match &record.event {
        Event::ToolFinished { outcome, .. } => Some((outcome.text().into_owned(), outcome.is_error)),
        _ => None,
    });
    let only = all.next().expect("the call has a result");
    assert!(all.next().is_none(), "and no second one");
    only
}

#[tokio::test]
async fn hooks_are_asked_in_their_order_about_what_the_one_before_left() {
    let set = serde_json::from_str(r#"{"n": 7}"#).unwrap();
    let hooks = vec![
        hook("a", HookPoint::BeforeTool, HookAction::Rewrite { arguments: Some(set), result: None }),
        hook(
            "b",
            HookPoint::BeforeTool,
            program(r#"grep -q '"input":{"n":7}' && echo '{"additionalContext": "seven"}'"#),
        ),
        hook("c", HookPoint::AfterTool, HookAction::Rewrite { arguments: None, result: Some("[hidden]".to_owned()) }),
    ];
    let agent = TestAgent::builder().hooks(hooks).turns(calls("echo", r#"{"n":1}"#)).begin();
    let records = watch(agent.start(request(), None).await.unwrap()).await;
    assert_eq!(*agent.journal.lock(), [r#"{"n":7}"#], "the tool is called with what the hook set");
    let told = "The arguments of this call were changed before it was made, to {\"n\":7}\n[hidden]\n[hook b] seven";
    assert_eq!(result(&records), (told.to_owned(), false));
    let names: Vec<_> =
        ran(&records).iter().map(|ran| (ran.hook.to_string(), ran.point.as_str(), ran.failed)).collect();
    let asked = |name: &str, point| (name.to_owned(), point, false);
    assert_eq!(names, [asked("a", "before_tool"), asked("b", "before_tool"), asked("c", "after_tool")]);
}

#[tokio::test]
async fn the_first_hook_that_refuses_is_the_last_that_is_asked() {
    let hooks = vec![
        hook("a", HookPoint::BeforeTool, program("exit 1")),
        hook("b", HookPoint::BeforeTool, HookAction::Block("never".to_owned())),
    ];
    let agent = TestAgent::builder().hooks(hooks).turns(calls("save", "{}")).begin();
    let records = watch(agent.start(request(), None).await.unwrap()).await;
    let ran = ran(&records);
    assert_eq!((ran.len(), ran[0].failed, ran[0].reply.decision), (1, true, HookDecision::Deny));
    assert_eq!(result(&records), ("The call was not made: The hook `a` gave no answer.".to_owned(), true));
    assert_eq!(outcome(&records).status(), RunStatus::Completed);
}

#[tokio::test]
async fn a_run_that_a_hook_refuses_has_failed_before_any_model_call() {
    let hooks = vec![hook("a", HookPoint::RunStart, HookAction::Block("Closed.".to_owned()))];
    let agent = TestAgent::builder().hooks(hooks).turns(vec![Say::Text(&["?"])]).begin();
    let outcome = outcome(&watch(agent.start(request(), None).await.unwrap()).await);
    let error = outcome.error.as_ref().map(|error| (error.kind, error.message.as_str()));
    assert_eq!(error, Some((ErrorKind::HookDenied, "The run was refused: Closed.")));
    assert_eq!((outcome.iterations, agent.model.requests.lock().len()), (0, 0));
}

#[tokio::test]
async fn a_result_that_a_hook_calls_an_error_ends_the_run_where_that_is_the_rule() {
    let ends = LoopRules {
        tool_errors: ToolErrors { ends_run: vec!["*".into()], fallback_results: Vec::new() },
        ..unguarded()
    };
    for (rules, status) in [(unguarded(), RunStatus::Completed), (ends, RunStatus::Failed)] {
        let hooks =
            vec![hook("a", HookPoint::AfterTool, program(r#"echo '{"continue": false, "stopReason": "odd"}'"#))];
        let agent = TestAgent::builder().hooks(hooks).rules(rules).turns(calls("echo", "{}")).begin();
        let records = watch(agent.start(request(), None).await.unwrap()).await;
        assert_eq!(result(&records), ("{}\n[hook a] odd".to_owned(), true));
        assert_eq!(outcome(&records).status(), status);
    }
}

/// The log is cut at every place, as if its replica had died there, and another replica goes on.
#[tokio::test]
async fn a_run_that_is_resumed_asks_no_hook_twice_and_calls_no_tool_twice() {
    let dir = tempfile::tempdir().unwrap();
    let asked = dir.path().join("asked");
    let says = |name: &str| {
        program(&format!("echo {name} >> {}; echo '{{\"additionalContext\": \"{name}\"}}'", asked.display()))
    };
    let hooks = || {
        vec![
            hook("start", HookPoint::RunStart, says("start")),
            hook("before", HookPoint::BeforeTool, says("before")),
            hook("after", HookPoint::AfterTool, says("after")),
        ]
    };
    let replica = |store: &Arc<dyn Store>| {
        let builder = TestAgent::builder().store(store.clone()).hooks(hooks());
        builder.echo(Effect::Write).turns(calls("echo", "{}")).build()
    };
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let (spec, whole) = log_of(&replica(&store), &store).await;
    assert_eq!(std::fs::read_to_string(&asked).unwrap(), "start\nbefore\nafter\n");
    let has = |records: &[Record], of: fn(&Event) -> bool| records.iter().any(|record| of(&record.event));
    assert!(has(&whole, |event| matches!(event, Event::ToolAnswered { .. })), "what it answered is stored at once");
    for cut in 1..whole.len() {
        let begun = &whole[..cut];
        let _ = std::fs::remove_file(&asked);
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let agent = replica(&store);
        leave(&store, &spec, begun).await;
        agent.begin();
        let records = ended(&store, &spec).await;
        let names = std::fs::read_to_string(&asked).unwrap_or_default();
        let known: Vec<_> = ran(begun).iter().map(|ran| ran.hook.to_string()).collect();
        assert!(names.lines().all(|name| !known.iter().any(|known| known == name)), "{names} were known at {cut}");
        let made = has(begun, |event| matches!(event, Event::ToolStarted { .. }));
        assert_eq!(agent.journal.lock().len(), usize::from(!made), "at {cut}");
        let answered = has(begun, |event| matches!(event, Event::ToolAnswered { .. }));
        // Of a call whose outcome is unknown there is no answer to ask about.
        assert_eq!(ran(&records).len(), if answered || !made { 3 } else { 2 }, "at {cut}");
        if answered || !made {
            assert_eq!(
                result(&records),
                ("{}\n[hook after] after\n[hook before] before".to_owned(), false),
                "at {cut}"
            );
        }
    }
}

/// The log of a run, once it has ended.
async fn ended(store: &Arc<dyn Store>, spec: &RunSpec) -> Vec<Record> {
    let until = tokio::time::Instant::now() + Duration::from_secs(20);
    loop {
        let page = store.read_log(&keys::partition_of(spec), &keys::events(&spec.id), 0, 1_000).await.unwrap();
        let records: Vec<Record> = page.entries.iter().map(|entry| log::decode(entry).unwrap()).collect();
        if matches!(records.last().map(|record| &record.event), Some(Event::RunFinished(_))) {
            return records;
        }
        assert!(tokio::time::Instant::now() < until, "the run did not end: {records:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
