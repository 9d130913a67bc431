//! Tools that tell how far they are, and tools that need the run or the store.

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::value::RawValue;

use super::support::{Echo, Say, TestAgent, outcome, request, shown, watch};
use crate::agent::ledger::keys;
use crate::agent::own_tool::{OwnContext, OwnTool};
use crate::tools::{CallContext, Tool, ToolAnswer, ToolError, ToolSpec};
use crate::types::conversation::{Part, PartKind, Source};
use crate::types::offer::ToolDefinition;
use crate::types::{Effect, Event, ToolCall, ToolOutcome, ToolProgress};

/// Tells how far it is and answers with a picture.
#[derive(Debug)]
struct Camera {
    spec: ToolSpec,
    seen: Arc<Mutex<Vec<CallContext>>>,
}

#[async_trait]
impl Tool for Camera {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, _: &RawValue, context: &CallContext) -> Result<ToolAnswer, ToolError> {
        self.seen.lock().push(context.clone());
        for (done, message) in [(1.0, "focus"), (2.0, "shoot")] {
            let message = Some(message.to_owned());
            context.progress.report(ToolProgress { done: Some(done), total: Some(2.0), message });
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
        let source = Source::Base64 { media_type: "image/png".into(), data: "AAAA".into() };
        let parts = vec![Part::text("here"), PartKind::Image { source, detail: None }.into()];
        Ok(ToolAnswer { parts, bytes: 3, status: Some(200), ..ToolAnswer::default() })
    }
}

#[tokio::test(start_paused = true)]
async fn progress_is_recorded_between_call_and_result() {
    let seen = Arc::default();
    let spec = Echo::new("camera", Effect::Read, 1).spec().clone();
    let camera = Arc::new(Camera { spec, seen: Arc::clone(&seen) });
    let turns = vec![Say::Calls("", vec![("camera", "{}")]), Say::Text(&["seen"])];
    let mut new = request();
    new.options.sampling =
        Arc::new(crate::types::sampling::Sampling { user: Some("ada".into()), ..Default::default() });
    new.trace = Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into());
    let records =
        watch(TestAgent::builder().turns(turns).tools(vec![camera]).begin().start(new.clone(), None).await.unwrap())
            .await;
    let told: Vec<String> = records
        .iter()
        .filter_map(|record| match &record.event {
            Event::ToolStarted { call, .. } => Some(format!("{} begins", call.name)),
            Event::ToolProgress { name, progress, .. } => Some(format!("{name}: {}", progress.message.clone()?)),
            Event::ToolFinished { name, outcome, .. } => Some(format!("{name} says {}", outcome.text())),
            _ => None,
        })
        .collect();
    assert_eq!(
        told,
        ["camera begins", "camera: focus", "camera: shoot", "camera says here\n[image, image/png, 3 bytes]"]
    );
    let context = seen.lock().pop().unwrap();
    assert_eq!((context.tenant, context.user.as_deref(), context.attempt), (new.tenant, Some("ada"), 1));
    assert_eq!((context.agent.as_str(), context.trace), ("default", new.trace));
    let measured = records.iter().find_map(|record| match &record.event {
        Event::ToolFinished { outcome, .. } => Some((outcome.bytes, outcome.status, outcome.latency_ms)),
        _ => None,
    });
    assert_eq!(measured, Some((3, Some(200), 2_000)));
}

/// Says what it knows of the run, and whether the store has it.
#[derive(Debug)]
struct Recall {
    definition: Arc<ToolDefinition>,
    effect: Effect,
}

#[async_trait]
impl OwnTool for Recall {
    fn definition(&self) -> &Arc<ToolDefinition> {
        &self.definition
    }

    fn effect(&self) -> Effect {
        self.effect
    }

    async fn answer(&self, call: &ToolCall, context: OwnContext<'_>) -> ToolOutcome {
        let spec = context.run.spec();
        let head = context.store.get(&keys::partition_of(spec), &keys::head(&spec.id)).await.unwrap();
        let text = format!("{} messages, stored: {}", context.run.messages().len(), head.is_some());
        assert_eq!(call.name, "recall");
        ToolOutcome { parts: vec![Part::text(text)], ..ToolOutcome::default() }
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_answers_what_needs_it_after_what_does_not() {
    let definition = Arc::new(ToolDefinition { name: "recall".into(), ..ToolDefinition::default() });
    let recall = Arc::new(Recall { definition, effect: Effect::Write });
    let turns = vec![Say::Calls("", vec![("recall", "{}"), ("echo", "{}"), ("recall", "{}")]), Say::Text(&["done"])];
    let agent = TestAgent::builder()
        .turns(turns)
        .tools(vec![Arc::new(Echo::new("echo", Effect::Read, 1))])
        .own_tools(vec![recall])
        .begin();
    let records = watch(agent.start(request(), None).await.unwrap()).await;
    let order: Vec<String> = records
        .iter()
        .filter_map(|record| match &record.event {
            Event::ToolStarted { call, effect, .. } => Some(format!("{} {effect:?}", call.name)),
            Event::ToolFinished { outcome, .. } => Some(outcome.text().into_owned()),
            _ => None,
        })
        .collect();
    let recalled = "2 messages, stored: true";
    assert_eq!(order, ["echo Read", "{}", "recall Write", recalled, "recall Write", recalled]);
    assert_eq!((shown(&records).as_str(), outcome(&records).tool_calls), ("done", 3));
}
