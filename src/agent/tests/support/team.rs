//! Agents that delegate to each other, and a model that plays all of them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use super::scripted::assert_paired;
use super::{Echo, RETENTION, instructed};
use crate::agent::catalog::Upstream;
use crate::agent::{Agent, Catalog, Generation, Quotas};
use crate::config::{AgentConfig, ModelConfig, Models};
use crate::llm::offered::OfferedModel;
use crate::llm::openai::messages::json;
use crate::llm::{Delta, DeltaStream, Model, ModelCall, ModelError, ModelRequest, ModelTurn};
use crate::store::Store;
use crate::tools::{Registry, Tool};
use crate::types::{Effect, Message, Price, Role, TurnEnd, Usage};

/// What the model does in one turn.
#[derive(Debug, Clone)]
pub(in crate::agent::tests) enum Does {
    Says(String),
    /// The same after so long.
    SaysAfter(Duration, String),
    /// Calls these tools with these arguments.
    Calls(Vec<(String, String)>),
    Hangs,
}

/// What an agent does, by its name and what it was told: the messages behind its instructions.
type Script = Box<dyn Fn(&str, &[Message]) -> Does + Send + Sync>;

/// Plays all agents. Each call takes 100 tokens of input and 10 of output.
pub(in crate::agent::tests) struct Team {
    script: Script,
    /// Each call: who was asked, and what the last message said.
    pub(in crate::agent::tests) asked: Mutex<Vec<(String, String)>>,
    /// The tools that each call was offered.
    pub(in crate::agent::tests) offered: Mutex<Vec<(String, Vec<String>)>>,
    /// How many calls are under way, and how many were at most.
    pub(in crate::agent::tests) busy: Arc<Mutex<(usize, usize)>>,
}

/// One of the agents.
pub(in crate::agent::tests) struct Member {
    pub(in crate::agent::tests) name: &'static str,
    pub(in crate::agent::tests) change: Box<dyn FnOnce(&mut AgentConfig)>,
}

impl Member {
    pub(in crate::agent::tests) fn new(name: &'static str, change: impl FnOnce(&mut AgentConfig) + 'static) -> Self {
        Self { name, change: Box::new(change) }
    }
}

impl fmt::Debug for Team {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Team").finish_non_exhaustive()
    }
}

impl Team {
    pub(in crate::agent::tests) fn new(script: impl Fn(&str, &[Message]) -> Does + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            script: Box::new(script),
            asked: Mutex::default(),
            offered: Mutex::default(),
            busy: Arc::default(),
        })
    }
}

/// A replica with these agents, which have the tools `echo` and `save`.
pub(in crate::agent::tests) fn team(
    store: &Arc<dyn Store>,
    model: &Arc<Team>,
    members: Vec<Member>,
    quotas: Quotas,
) -> Agent {
    let template = instructed(model.clone(), None).agent("default").unwrap().clone();
    let agents = members.into_iter().map(|member| {
        let mut config = AgentConfig {
            name: member.name.to_owned(),
            model: Some("m".to_owned()),
            system: Some(format!("You are {}.", member.name)),
            ..template.clone()
        };
        (member.change)(&mut config);
        (member.name.to_owned(), config)
    });
    let agents: BTreeMap<_, _> = agents.chain([("default".to_owned(), template.clone())]).collect();
    let price = Some(Price::from_usd(1.0, 1.0, 1.0));
    let facts = ModelConfig { price, context_window: Some(8_000), max_output_tokens: Some(500), ..Default::default() };
    let models = Models { declared: BTreeMap::from([("m".to_owned(), facts)]), ..Models::default() };
    let upstream = Arc::new(Upstream::new("scripted".into(), model.clone(), Some(vec!["m".into()])));
    let tools: Vec<Arc<dyn Tool>> =
        vec![Arc::new(Echo::new("echo", Effect::Read, 1_000)), Arc::new(Echo::new("save", Effect::Write, 1_000))];
    let generation = Generation {
        catalog: Catalog::new(agents, vec![upstream], models),
        tools: Arc::new(Registry::new(tools).unwrap().into()),
        quotas,
        ..Generation::default()
    };
    let agent = Agent::new(store.clone(), generation, RETENTION);
    agent.begin();
    agent
}

/// What a message says.
pub(in crate::agent::tests) fn said(message: &Message) -> String {
    let value: serde_json::Value = serde_json::from_str(json(message)).unwrap();
    match &value["content"] {
        serde_json::Value::String(text) => text.clone(),
        parts => parts.as_array().into_iter().flatten().filter_map(|part| part["text"].as_str()).collect(),
    }
}

impl Model for Team {
    fn stream(&self, request: ModelRequest) -> DeltaStream {
        assert_paired(&request.conversation);
        let messages: Vec<Message> = request.conversation.iter().cloned().collect();
        let system = messages.first().filter(|message| message.role == Role::System).map(said);
        let system = system.unwrap_or_default();
        let name = system.split("You are ").nth(1).and_then(|rest| rest.split('.').next()).unwrap_or("?").to_owned();
        let rest = &messages[1..];
        let last = rest.last().map(said).unwrap_or_default();
        self.asked.lock().push((name.clone(), last));
        let tools = request.tools.tools().map(|tool| tool.name.clone()).collect();
        self.offered.lock().push((name.clone(), tools));
        let usage = Usage { prompt_tokens: 100, completion_tokens: 10, ..Usage::default() };
        let (after, turn) = match (self.script)(&name, rest) {
            Does::Says(text) => (Duration::from_millis(1), ModelTurn::of("", &text, Vec::new())),
            Does::SaysAfter(after, text) => (after, ModelTurn::of("", &text, Vec::new())),
            Does::Calls(calls) => {
                let calls = calls.into_iter().map(|(name, arguments)| ModelCall { name, arguments });
                let turn = ModelTurn::of("", "", calls.collect());
                (Duration::from_millis(1), ModelTurn { end: TurnEnd::ToolCalls, ..turn })
            }
            Does::Hangs => return futures_util::stream::pending().boxed(),
        };
        let busy = self.busy.clone();
        let answering = async move {
            {
                let (now, most) = &mut *busy.lock();
                *now += 1;
                *most = (*most).max(*now);
            }
            tokio::time::sleep(after).await;
            busy.lock().0 -= 1;
            Ok::<_, ModelError>(Delta::Finished(Box::new(ModelTurn { usage: Some(usage), ..turn })))
        };
        futures_util::stream::once(answering).boxed()
    }

    fn list_models(&self) -> BoxFuture<'_, Result<Vec<OfferedModel>, ModelError>> {
        Box::pin(std::future::ready(Ok(vec!["m".into()])))
    }

    fn may_answer_in_one_piece(&self) -> bool {
        true
    }
}
