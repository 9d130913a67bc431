//! What the logs of whole runs become as spans.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::resume::{ended, found, undisturbed};
use crate::agent::ledger::{keys, log};
use crate::telemetry::traces::{Content, Span, SpanFold, Subject};
use crate::types::trace::SpanId;
use crate::types::{Effect, Event, Record, RunSpec, SpanKey};

fn spans(spec: &RunSpec, records: &[Record]) -> Vec<Span> {
    let mut fold = SpanFold::new(Subject::new(spec, Content::Off));
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

/// How many calls have begun and have no result.
fn open_calls(records: &[Record]) -> usize {
    let count = |which: &dyn Fn(&Event) -> bool| records.iter().filter(|record| which(&record.event)).count();
    count(&|event| matches!(event, Event::ToolStarted { .. }))
        - count(&|event| matches!(event, Event::ToolFinished { .. }))
}
