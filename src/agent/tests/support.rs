//! A scripted model, an echo tool, and an agent made of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;

use crate::agent::catalog::Upstream;
use crate::agent::own_tool::OwnTool;
use crate::agent::{Agent, Catalog, Generation, NewRun, Quotas, Retention, Started};
use crate::config::{AgentConfig, DEFAULT_AGENT, LimitsConfig};
use crate::llm::openai::messages::parts;
use crate::llm::{Delta, DeltaStream, Model, ModelCall, ModelError, ModelErrorKind, ModelRequest, ModelTurn};
use crate::store::Store;
use crate::store::memory::MemoryStore;
use crate::tools::{CallContext, Registry, Source, Tool, ToolAnswer, ToolError, ToolSpec};
use crate::types::conversation::Part;
use crate::types::offer::{ToolChoice, ToolDefinition};
use crate::types::run::{OnConflict, OnDisconnect, OnLimit, OnUnknownOutcome};
use crate::types::{CallId, Conversation, Effect, Event, Message, Outcome, Record, Role, RunId, Tenant, Usage};

/// What the model does in one turn.
#[derive(Debug, Clone)]
pub(super) enum Say {
    /// Streams the pieces and answers.
    Text(&'static [&'static str]),
    /// Calls tools, after some text.
    Calls(&'static str, Vec<(&'static str, &'static str)>),
    /// Streams the pieces and breaks off.
    Break(&'static [&'static str]),
    /// Streams the pieces, then nothing more.
    Stall(&'static [&'static str]),
    /// Streams a text in pieces of which calls are written as text, until its length limit.
    Rambled(&'static [&'static str]),
    /// Streams the pieces, then fails once the request's time is up, as a real one does.
    Deadline(&'static [&'static str]),
    /// Streams a text in pieces of which a call is written as text.
    Written(&'static [&'static str]),
}

impl Say {
    /// What it streams, and the turn that this makes if it ends well.
    fn deltas(&self, closing: bool) -> Vec<Result<Delta, ModelError>> {
        let (pieces, calls) = match self {
            Self::Calls(_, _) if closing => return vec![Ok(finished("closing", &[], "stop"))],
            Self::Calls("", calls) => (vec![], calls.as_slice()),
            Self::Calls(text, calls) => (vec![*text], calls.as_slice()),
            Self::Text(pieces)
            | Self::Break(pieces)
            | Self::Stall(pieces)
            | Self::Rambled(pieces)
            | Self::Deadline(pieces)
            | Self::Written(pieces) => (pieces.to_vec(), [].as_slice()),
        };
        let mut deltas: Vec<_> = pieces.iter().map(|text| Ok(Delta::Text((*text).into()))).collect();
        match self {
            Self::Text(_) | Self::Written(_) => deltas.push(Ok(finished(&pieces.concat(), &[], "stop"))),
            Self::Calls(_, _) => deltas.push(Ok(finished(&pieces.concat(), calls, "tool_calls"))),
            Self::Rambled(_) => deltas.push(Ok(finished(&pieces.concat(), &[], "length"))),
            Self::Break(_) | Self::Stall(_) | Self::Deadline(_) => {}
        }
        deltas
    }
}

/// The end of a turn.
fn finished(text: &str, calls: &[(&str, &str)], finish_reason: &str) -> Delta {
    let call = |(name, arguments): &(&str, &str)| ModelCall { name: (*name).into(), arguments: (*arguments).into() };
    let usage = Usage { prompt_tokens: 10, completion_tokens: 5, ..Usage::default() };
    let calls = calls.iter().map(call).collect();
    let turn = ModelTurn { usage: Some(usage), finish_reason: finish_reason.into(), ..ModelTurn::of("", text, calls) };
    Delta::Finished(Box::new(turn))
}

/// Plays its turns by how many assistant messages the request has; the last one again and again.
#[derive(Debug)]
pub(super) struct Scripted {
    turns: Vec<Say>,
    pub(super) requests: Mutex<Vec<ModelRequest>>,
    /// How often a turn that breaks has broken.
    breaks: AtomicUsize,
}

impl Scripted {
    pub(super) fn new(turns: Vec<Say>) -> Arc<Self> {
        Arc::new(Self { turns, requests: Mutex::default(), breaks: AtomicUsize::new(0) })
    }
}

impl Model for Scripted {
    fn stream(&self, request: ModelRequest) -> DeltaStream {
        assert_paired(&request.conversation);
        let turn = request.conversation.iter().filter(|message| message.role == Role::Assistant).count();
        let turn = self.turns.get(turn).or(self.turns.last()).cloned().unwrap_or(Say::Text(&["done"]));
        let (closing, deadline) = (request.tools.is_empty(), request.deadline);
        self.requests.lock().push(request);
        let broken = |kind, message: &str| {
            Err(ModelError { kind, message: message.to_owned(), status: None, retry_after: None })
        };
        let mut deltas = turn.deltas(closing);
        match turn {
            Say::Break(_) => {
                self.breaks.fetch_add(1, Ordering::Relaxed);
                deltas.push(broken(ModelErrorKind::Transient, "it broke"));
            }
            Say::Deadline(_) => {
                let late = async move {
                    tokio::time::sleep_until(deadline).await;
                    broken(ModelErrorKind::Timeout, "time is up")
                };
                return futures_util::stream::iter(deltas).chain(futures_util::stream::once(late)).boxed();
            }
            Say::Stall(_) => {
                return futures_util::stream::iter(deltas).chain(futures_util::stream::pending()).boxed();
            }
            Say::Text(_) | Say::Calls(..) | Say::Rambled(_) | Say::Written(_) => {}
        }
        // One delta at a time, as from a socket: each is recorded by itself.
        futures_util::stream::iter(deltas)
            .then(|delta| async {
                tokio::task::yield_now().await;
                delta
            })
            .boxed()
    }

    fn list_models(&self) -> BoxFuture<'_, Result<Vec<String>, ModelError>> {
        Box::pin(std::future::ready(Ok(vec!["m".to_owned()])))
    }

    fn recovers_text_tool_calls(&self) -> bool {
        self.turns.iter().any(|turn| matches!(turn, Say::Written(_) | Say::Rambled(_)))
    }
}

/// Every assistant call has exactly one result before the next message of another kind.
fn assert_paired(conversation: &Conversation) {
    let mut open: Vec<CallId> = Vec::new();
    for message in conversation.iter() {
        let parts = parts(message).unwrap();
        if message.role == Role::Tool {
            for result in parts.list.iter().filter_map(Part::as_result) {
                let place = open.iter().position(|open| *open == result.call).expect("a result without its call");
                open.remove(place);
            }
        } else {
            assert!(open.is_empty(), "calls without results before {message:?}");
            open = parts.list.iter().filter_map(Part::as_call).map(|call| call.id.clone()).collect();
        }
    }
    assert!(open.is_empty(), "calls without results at the end");
}

/// Answers with its arguments, and keeps a journal.
#[derive(Debug)]
pub(super) struct Echo {
    spec: ToolSpec,
    pub(super) journal: Arc<Mutex<Vec<String>>>,
    fences: Arc<Mutex<Vec<u64>>>,
    /// A call needs a permit to end; `hang` has none.
    permits: Arc<Semaphore>,
}

impl Echo {
    pub(super) fn new(name: &str, effect: Effect, permits: usize) -> Self {
        let parameters = r#"{"type":"object","properties":{"n":{"type":"integer"}},"additionalProperties":false}"#;
        let spec = ToolSpec {
            name: name.into(),
            description: "Says its arguments.".into(),
            parameters: RawValue::from_string(parameters.into()).unwrap(),
            effect,
            timeout: None,
            source: Source::Builtin,
        };
        Self { spec, journal: Arc::default(), fences: Arc::default(), permits: Arc::new(Semaphore::new(permits)) }
    }
}

impl Echo {
    /// The same tool, described and to be called otherwise.
    pub(super) fn defined(mut self, description: &str, parameters: &str) -> Self {
        self.spec.description = description.into();
        self.spec.parameters = RawValue::from_string(parameters.into()).unwrap();
        self
    }
}

#[async_trait]
impl Tool for Echo {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, arguments: &RawValue, context: &CallContext) -> Result<ToolAnswer, ToolError> {
        self.fences.lock().push(context.fence);
        self.journal.lock().push(arguments.get().to_owned());
        let _permit = self.permits.acquire().await.unwrap();
        Ok(ToolAnswer::text(arguments.get()))
    }
}

/// An agent and what it works with.
pub(super) struct Bench {
    pub(super) agent: Agent,
    pub(super) model: Arc<Scripted>,
    pub(super) journal: Arc<Mutex<Vec<String>>>,
    /// The fences that calls of `hang` were given.
    pub(super) fences: Arc<Mutex<Vec<u64>>>,
}

/// An agent whose model plays `turns`, with the tools `echo` (read), `save` (write) and `hang`.
pub(super) fn bench(turns: Vec<Say>) -> Bench {
    let bench = bench_over(Arc::new(MemoryStore::default()), turns, Effect::Read);
    bench.agent.begin();
    bench
}

/// The same over a store that others may hold too; `echo` has this effect.
pub(super) fn bench_over(store: Arc<dyn Store>, turns: Vec<Say>, effect: Effect) -> Bench {
    bench_within(store, turns, effect, Quotas::default())
}

/// The same with keys that have these quotas.
pub(super) fn bench_within(store: Arc<dyn Store>, turns: Vec<Say>, effect: Effect, quotas: Quotas) -> Bench {
    let model = Scripted::new(turns);
    let catalog = catalog(model.clone());
    let echo = Echo::new("echo", effect, 1_000);
    let journal = echo.journal.clone();
    let hang = Echo::new("hang", Effect::Read, 0);
    let fences = hang.fences.clone();
    let tools: Vec<Arc<dyn Tool>> =
        vec![Arc::new(echo), Arc::new(Echo::new("save", Effect::Write, 1_000)), Arc::new(hang)];
    let keep = Retention {
        run: Duration::from_secs(600),
        wait: Duration::from_secs(3600),
        session: Duration::from_secs(600),
        history_bytes: 1 << 20,
    };
    let generation = Generation { catalog, tools: Registry::new(tools).unwrap(), quotas, ..Generation::default() };
    Bench { agent: Agent::new(store, generation, keep), model, journal, fences }
}

/// An agent whose model plays `turns`, with these tools and those that its runs answer themselves.
pub(super) fn agent_with(turns: Vec<Say>, tools: Vec<Arc<dyn Tool>>, own_tools: Vec<Arc<dyn OwnTool>>) -> Agent {
    let keep = Retention {
        run: Duration::from_secs(600),
        wait: Duration::from_secs(3600),
        session: Duration::from_secs(600),
        history_bytes: 1 << 20,
    };
    let (catalog, tools) = (catalog(Scripted::new(turns)), Registry::new(tools).unwrap());
    let agent = Agent::new(
        Arc::new(MemoryStore::default()),
        Generation { catalog, tools, own_tools, ..Generation::default() },
        keep,
    );
    agent.begin();
    agent
}

/// One agent, which may use all tools and asks this model.
pub(crate) fn catalog(model: Arc<dyn Model>) -> Catalog {
    instructed(model, None)
}

/// The same agent with these instructions.
pub(super) fn instructed(model: Arc<dyn Model>, system: Option<&str>) -> Catalog {
    let limits = LimitsConfig {
        max_iterations: 20,
        timeout: Duration::from_secs(60),
        tool_timeout: Duration::from_secs(5),
        token_budget: None,
        cost_budget: None,
    };
    let config = AgentConfig {
        name: DEFAULT_AGENT.into(),
        model: None,
        system: system.map(Into::into),
        tools: vec!["*".into()],
        on_limit: OnLimit::Stop,
        limits,
    };
    let upstream = Upstream::new("scripted".into(), model, None);
    Catalog::new(BTreeMap::from([(DEFAULT_AGENT.into(), config)]), vec![Arc::new(upstream)], BTreeMap::new())
}

/// A tool that the client executes.
pub(super) fn client_tool(name: &str) -> Arc<ToolDefinition> {
    Arc::new(ToolDefinition { name: name.into(), ..ToolDefinition::default() })
}

/// An ordinary request.
pub(super) fn request() -> NewRun {
    NewRun {
        id: RunId::mint(),
        tenant: Tenant::default_tenant(),
        key_name: None,
        generation: None,
        allowed_agents: None,
        model: Some("m".into()),
        session: None,
        run: None,
        system: Vec::new(),
        messages: vec![Message::text(Role::User, "question")],
        answers_from: 0,
        answered: Vec::new(),
        client_tools: Vec::new(),
        tool_choice: ToolChoice::Auto,
        sampling: Arc::default(),
        trace: None,
        max_output_tokens: None,
        parallel_tool_calls: true,
        tools: None,
        limits: crate::agent::LimitsPatch::default(),
        on_limit: None,
        on_conflict: OnConflict::Reject,
        on_disconnect: OnDisconnect::Continue,
        on_unknown_outcome: OnUnknownOutcome::Fail,
        reconnect_grace_ms: 15_000,
        hide_intermediate_text: false,
        stream_tool_arguments: false,
        max_discards: 2,
    }
}

/// An ordinary request with these limits.
pub(super) fn request_with(limits: crate::agent::LimitsPatch) -> NewRun {
    NewRun { limits, ..request() }
}

/// All public records of a run that goes on now.
pub(super) async fn watch(started: Started) -> Vec<Record> {
    let mut follower = started.follower;
    let mut records = Vec::new();
    while let Some(page) = follower.next().await.unwrap() {
        records.extend(page.into_iter().map(|record| (*record).clone()));
    }
    records
}

/// How the last record says the run ended.
pub(super) fn outcome(records: &[Record]) -> Outcome {
    match records.last().map(|record| &record.event) {
        Some(Event::RunFinished(outcome)) => (**outcome).clone(),
        other => panic!("the last event is {other:?}"),
    }
}

/// All answer text that was shown.
pub(super) fn shown(records: &[Record]) -> String {
    let texts = records.iter().filter_map(|record| match &record.event {
        Event::TextDelta { text, .. } => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}
