//! What the logs of whole runs become as spans.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::value::RawValue;

use super::resume::{ended, found, leave, turns, undisturbed};
use super::support::{Echo, TestAgent};
use crate::agent::ledger::{keys, log};
use crate::store::Store;
use crate::store::memory::MemoryStore;
use crate::telemetry::traces::{Content, Providers, Span, SpanFold, Subject};
use crate::tools::{CallContext, Tool, ToolAnswer, ToolError, ToolSpec};
use crate::types::trace::SpanId;
use crate::types::{Effect, Event, Record, RunSpec, RunTrace, SpanKey};

fn spans(spec: &RunSpec, records: &[Record]) -> Vec<Span> {
    let mut fold = SpanFold::new(Subject::new(spec, Content::Off), Providers::default());
    for record in records {
        fold.apply(record);
    }
    fold.into_spans()
}

/// The spans as a tree, a line each, children in their order below their parent.
pub(super) fn tree(spans: &[Span]) -> String {
    fn add(spans: &[Span], parent: &Span, depth: usize, out: &mut String) {
        writeln!(out, "{}{}", "  ".repeat(depth), parent.name).expect("a string takes it");
        let mut children: Vec<_> = spans.iter().filter(|span| span.parent == Some(parent.id)).collect();
        children.sort_by_key(|span| span.start_ms);
        for child in children {
            add(spans, child, depth + 1, out);
        }
    }
    let mut out = String::new();
    add(spans, &spans[0], 0, &mut out);
    out
}

#[tokio::test(start_paused = true)]
async fn a_run_is_a_tree_of_spans() {
    let (spec, records) = undisturbed().await;
    let spans = spans(&spec, &records);
    let expected = "invoke_agent default\n  step 1\n    chat m\n    execute_tool echo\n    execute_tool echo\n  \
                    step 2\n    chat m\n";
    assert_eq!(tree(&spans), expected);
    assert!(spans.iter().all(|span| span.error.is_none()), "{spans:#?}");
    let chat = spans.iter().find(|span| span.name == "chat m").unwrap();
    assert_eq!(chat.id, SpanId::of(&spec.id, SpanKey::ModelCall(1)));
    let names: Vec<_> = chat.attributes.iter().map(|attribute| attribute.name).collect();
    for name in ["gen_ai.provider.name", "gen_ai.response.time_to_first_chunk", "gen_ai.usage.input_tokens"] {
        assert!(names.contains(&name), "{name} {names:?}");
    }
}

/// Wherever a replica died, another one goes on: spans of what was done before keep their ids, and what goes on is linked
/// to what it continues.
#[tokio::test(start_paused = true)]
async fn a_takeover_is_seen_and_changes_no_id() {
    let (spec, whole) = undisturbed().await;
    for cut in 1..whole.len() - 1 {
        let before: BTreeMap<_, _> = spans(&spec, &whole[..cut]).into_iter().map(|span| (span.id, span.name)).collect();
        let (agent, store) = found(&spec, &whole[..cut], Effect::Read).await;
        ended(&agent, &spec.id).await;
        let page = store.read_log(&keys::partition_of(&spec), &keys::events(&spec.id), 0, 1_000).await.unwrap();
        let records: Vec<Record> = page.entries.iter().map(|entry| log::decode(entry).unwrap()).collect();
        let after = spans(&spec, &records);
        let ids: BTreeSet<_> = after.iter().map(|span| span.id).collect();
        assert_eq!(ids.len(), after.len(), "cut at {cut}: {}", tree(&after));
        for (id, name) in &before {
            assert!(after.iter().any(|span| span.id == *id && span.name == *name), "{name} is lost, cut at {cut}");
        }
        let resumption = after.iter().find(|span| span.name == "resumption").expect("it is seen");
        assert_eq!(resumption.text("loopgate.resumption.cause"), Some("crash"));
        assert_eq!(resumption.links.len(), 1, "cut at {cut}");
        assert!(after.iter().any(|span| span.id == resumption.links[0]), "cut at {cut}");
        let calls = |which: &dyn Fn(&Span) -> bool| {
            after.iter().filter(|span| span.name.contains("tool") && which(span)).count()
        };
        let open = open_calls(&whole[..cut]);
        assert_eq!(calls(&|span| span.text("error.type") == Some("interrupted")), open, "cut at {cut}");
        assert_eq!(calls(&|span| !span.links.is_empty()), open, "they are made again, cut at {cut}");
        assert_eq!(calls(&|span| span.error.is_none()), 2, "cut at {cut}: {}", tree(&after));
        let answered = after.iter().filter(|span| span.name.starts_with("chat") && span.error.is_none()).count();
        assert_eq!(answered, 2, "cut at {cut}: {}", tree(&after));
    }
}

/// Answers as `echo` does, and notes which time it is called and which span is named as the parent.
#[derive(Debug)]
struct Told {
    echo: Echo,
    told: Arc<Mutex<Vec<(u32, SpanId)>>>,
}

#[async_trait::async_trait]
impl Tool for Told {
    fn spec(&self) -> &ToolSpec {
        self.echo.spec()
    }

    async fn call(&self, arguments: &RawValue, context: &CallContext) -> Result<ToolAnswer, ToolError> {
        self.told.lock().push((context.attempt, context.trace.as_ref().expect("it is traced").span));
        self.echo.call(arguments, context).await
    }
}

/// The call of a run that two or more replicas left in the middle of it is told a parent that the trace has, once.
#[tokio::test(start_paused = true)]
async fn a_tool_is_told_a_span_that_appears_whoever_left_the_run_before() {
    let (mut spec, whole) = undisturbed().await;
    spec.trace = Some(RunTrace::of_run(&spec.id, None));
    let began = whole.iter().position(|record| matches!(record.event, Event::ToolStarted { .. })).unwrap();
    for (left, hangs) in [(1, false), (2, false), (1, true), (2, true)] {
        let mut records = whole[..=began].to_vec();
        for _ in 1..left {
            let last = records.last().unwrap();
            records.push(Record { seq: last.seq + 1, event: Event::RunResumed { leg: None }, ..last.clone() });
        }
        let (store, told): (Arc<dyn Store>, _) = (Arc::new(MemoryStore::default()), Arc::default());
        let echo = Echo::new("echo", Effect::Read, if hangs { 0 } else { 1_000 });
        let others = [("save", Effect::Write), ("hang", Effect::Read)].map(|(name, effect)| Echo::new(name, effect, 0));
        let mut tools: Vec<Arc<dyn Tool>> = vec![Arc::new(Told { echo, told: Arc::clone(&told) })];
        tools.extend(others.map(|tool| Arc::new(tool) as _));
        let agent = TestAgent::builder().store(store.clone()).turns(turns()).tools(tools).build();
        leave(&store, &spec, &records).await;
        if hangs {
            agent.begin();
            while told.lock().is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            agent.runs().cancel(&spec.tenant, &spec.id).await.unwrap();
        }
        ended(&agent, &spec.id).await;
        let page = store.read_log(&keys::partition_of(&spec), &keys::events(&spec.id), 0, 1_000).await.unwrap();
        let records: Vec<Record> = page.entries.iter().map(|entry| log::decode(entry).unwrap()).collect();
        let spans = spans(&spec, &records);
        let ids: BTreeSet<_> = spans.iter().map(|span| span.id).collect();
        assert_eq!(ids.len(), spans.len(), "{}", tree(&spans));
        let told = told.lock().clone();
        assert_eq!(told[0].0, left + 1);
        for (attempt, parent) in told {
            let span = spans.iter().find(|span| span.id == parent).expect("it is there");
            let attempts = span.attributes.iter().find(|attribute| attribute.name == "loopgate.attempt").unwrap();
            assert_eq!((span.name.as_str(), &attempts.value), ("execute_tool echo", &attempt.into()));
        }
    }
}

/// How many calls have begun and have no result.
fn open_calls(records: &[Record]) -> usize {
    let count = |which: &dyn Fn(&Event) -> bool| records.iter().filter(|record| which(&record.event)).count();
    count(&|event| matches!(event, Event::ToolStarted { .. }))
        - count(&|event| matches!(event, Event::ToolFinished { .. }))
}
