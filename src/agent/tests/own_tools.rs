//! Tools that tell how far they are, and tools that need the run or the store.

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::value::RawValue;

use super::support::{Echo, Say, TestAgent, client_tool, outcome, request, shown, watch};
use crate::agent::NewRun;
use crate::agent::ledger::keys;
use crate::agent::own_tool::{OwnContext, OwnTool};
use crate::tools::{CallContext, Tool, ToolAnswer, ToolError, ToolSpec};
use crate::types::conversation::{Part, PartKind, Source};
use crate::types::guard::MAX_RESULT_BYTES;
use crate::types::json::RawValueEq;
use crate::types::offer::ToolDefinition;
use crate::types::tool::CallEnding;
use crate::types::{Effect, Event, StopReason, ToolCall, ToolOutcome, ToolProgress, TraceContext};

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
    new.trace = TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", None);
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
async fn a_run_answers_what_needs_it_in_its_place() {
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
    assert_eq!(order, ["recall Write", recalled, "echo Read", "{}", "recall Write", recalled]);
    assert_eq!((shown(&records).as_str(), outcome(&records).tool_calls), ("done", 3));
}

/// What an own tool does that does not answer as it should.
#[derive(Debug, Clone, Copy)]
enum Misbehaviour {
    Panic,
    Hang,
    Flood,
}

#[derive(Debug)]
struct Unruly(Arc<ToolDefinition>, Effect, Misbehaviour);

#[async_trait]
impl OwnTool for Unruly {
    fn definition(&self) -> &Arc<ToolDefinition> {
        &self.0
    }

    fn effect(&self) -> Effect {
        self.1
    }

    async fn answer(&self, _: &ToolCall, _: OwnContext<'_>) -> ToolOutcome {
        match self.2 {
            Misbehaviour::Panic => panic!("as told"),
            Misbehaviour::Hang => std::future::pending().await,
            Misbehaviour::Flood => {
                ToolOutcome { parts: vec![Part::text("x".repeat(100_000))], ..ToolOutcome::default() }
            }
        }
    }
}

/// A tool of the run that takes a number and misbehaves.
fn unruly(effect: Effect, misbehaviour: Misbehaviour) -> Arc<dyn OwnTool> {
    let schema = r#"{"type":"object","properties":{"n":{"type":"integer"}},"additionalProperties":false}"#;
    let parameters = Some(RawValueEq(RawValue::from_string(schema.into()).unwrap()));
    let definition = ToolDefinition { name: "unruly".into(), parameters, ..ToolDefinition::default() };
    Arc::new(Unruly(Arc::new(definition), effect, misbehaviour))
}

/// The results of a run whose model makes this call of `tool` and of a tool that there is not.
async fn results(tool: Arc<dyn OwnTool>, arguments: &'static str) -> (Vec<ToolOutcome>, StopReason) {
    let turns = vec![Say::Calls("", vec![("unruly", arguments), ("nope", "{}")]), Say::Text(&["done"])];
    let agent = TestAgent::builder().turns(turns).own_tools(vec![tool]).begin();
    let records = watch(agent.start(request(), None).await.unwrap()).await;
    let results = records.iter().filter_map(|record| match &record.event {
        Event::ToolFinished { outcome, .. } => Some(outcome.clone()),
        _ => None,
    });
    (results.collect(), outcome(&records).reason)
}

#[tokio::test(start_paused = true)]
async fn a_tool_of_the_run_is_bounded_like_any_other() {
    for (misbehaviour, told) in [
        (Misbehaviour::Panic, "The tool `unruly` crashed."),
        (Misbehaviour::Hang, "The tool `unruly` did not answer within 5000 ms."),
        (Misbehaviour::Flood, "bytes removed"),
    ] {
        let (found, reason) = results(unruly(Effect::Read, misbehaviour), "{}").await;
        assert!(found[0].text().contains(told) && reason == StopReason::Done, "{misbehaviour:?}: {found:?}");
        assert!(found[0].text().len() <= MAX_RESULT_BYTES);
        assert!(found[1].text().contains("The tools are: echo, hang, save, unruly."), "{}", found[1].text());
    }
    let (found, reason) = results(unruly(Effect::Write, Misbehaviour::Panic), "{}").await;
    assert!(found[0].ending == CallEnding::Lost && reason == StopReason::OutcomeUnknown, "{found:?}");
    let (found, _) = results(unruly(Effect::Write, Misbehaviour::Panic), r#"{"n": "x"}"#).await;
    assert!(found[0].text().contains("do not fit its schema"), "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn a_tool_of_the_run_is_offered_like_any_other() {
    let agent = TestAgent::builder().own_tools(vec![unruly(Effect::Read, Misbehaviour::Flood)]).begin();
    let offered = async |tools: Option<Vec<String>>| {
        watch(agent.start(NewRun { tools, ..request() }, None).await.unwrap()).await;
        let request = agent.model.requests.lock().pop().unwrap();
        request.tools.tools().any(|tool| tool.name == "unruly")
    };
    assert!(offered(None).await && offered(Some(vec!["unr*".into()])).await);
    assert!(!offered(Some(vec!["echo".into()])).await && !offered(Some(Vec::new())).await);
    let same_name = NewRun { client_tools: vec![client_tool("unruly")], ..request() };
    let refused = agent.start(same_name, None).await.unwrap_err().to_string();
    assert!(refused.contains("the server has a tool named"), "{refused}");
}
