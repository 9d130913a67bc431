//! A scripted model, an echo tool, and an agent made of them.

mod echo;
mod requests;
mod scripted;
mod team;
mod told;
mod windowed;

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

pub(crate) use self::echo::Echo;
pub(super) use self::requests::{client_tool, request, request_with, with_options};
pub(crate) use self::scripted::{Say, Scripted};
pub(super) use self::team::{Does, Member, Team, said, team};
pub(crate) use self::told::tell_to_stop;
pub(super) use self::windowed::{Flushes, Summaries, Windowed};
use crate::agent::catalog::Upstream;
use crate::agent::error::StartError;
use crate::agent::own_tool::OwnTool;
use crate::agent::ownership::registry::Replica;
use crate::agent::{Agent, Catalog, Generation, NewRun, Quotas, RequestKey, Retention, Started};
use crate::config::{
    AgentConfig, DEFAULT_AGENT, HookConfig, LimitsConfig, MemoryConfig, ModelConfig, Models, PromptConfig, ShareConfig,
    SkillsConfig,
};
use crate::hooks::{self, Hooks};
use crate::llm::Model;
use crate::llm::health::Health;
use crate::llm::health::breaker::BreakerPolicy;
use crate::llm::retry::{RetryPolicy, Retrying};
use crate::store::Store;
use crate::store::memory::MemoryStore;
use crate::tools::{Registry, Tool};
use crate::types::approval::ApprovalTerms;
use crate::types::context::ContextRules;
use crate::types::guard::Guards;
use crate::types::rules::{LoopGuardRules, LoopRules};
use crate::types::run::OnLimit;
use crate::types::{Effect, Event, Outcome, Price, Record};

/// What is kept for how long.
pub(crate) const RETENTION: Retention = Retention {
    run: Duration::from_secs(600),
    wait: Duration::from_secs(3600),
    session: Duration::from_secs(600),
    history_bytes: 1 << 20,
    ended_bytes: None,
    inbox_bytes: 1 << 20,
    tenant_bytes: 1 << 30,
    usage: Duration::from_secs(86_400),
    usage_rows: 1_000,
    run_bytes: 1 << 30,
};

/// When the models of a guarded agent are left alone.
const BREAKER: BreakerPolicy =
    BreakerPolicy { failures: 5, window_ms: 30_000, cooldown_ms: 5_000, most_cooldown_ms: 120_000, retry_percent: 10 };

/// An agent, which this is used as, and what it works with.
#[derive(Clone)]
pub(crate) struct TestAgent {
    agent: Agent,
    pub(crate) model: Arc<Scripted>,
    /// The models `spare/s0`, `spare/s1` … that its runs fall back to, each of an upstream `spareN` of its own.
    pub(crate) spares: Vec<Arc<Scripted>>,
    pub(crate) journal: Arc<Mutex<Vec<String>>>,
    /// The fences that calls of `hang` were given.
    pub(crate) fences: Arc<Mutex<Vec<u64>>>,
}

impl Deref for TestAgent {
    type Target = Agent;

    fn deref(&self) -> &Agent {
        &self.agent
    }
}

impl TestAgent {
    /// What [`Admission::start`](crate::agent::Admission::start) does.
    pub(crate) async fn start(&self, new: NewRun, key: Option<&RequestKey>) -> Result<Started, StartError> {
        self.admission().start(new, key).await
    }

    /// An agent over a store of its own, whose model says `done`, with the tools `echo` (read), `save`
    /// (write) and `hang`.
    pub(crate) fn builder() -> TestAgentBuilder {
        TestAgentBuilder::default()
    }

    /// What other replicas know it by.
    pub(crate) fn replica(&self) -> &Replica {
        &self.agent.rooms.ownership.replica
    }
}

/// What a [`TestAgent`] is made of.
#[derive(Default)]
pub(crate) struct TestAgentBuilder {
    store: Option<Arc<dyn Store>>,
    turns: Vec<Say>,
    spares: Vec<(Vec<Say>, ModelConfig)>,
    is_guarded: bool,
    hedge_after: Option<Duration>,
    rules: Option<LoopRules>,
    echo: Option<Effect>,
    tools: Option<Vec<Arc<dyn Tool>>>,
    own_tools: Vec<Arc<dyn OwnTool>>,
    memory: Option<MemoryConfig>,
    skills: SkillsConfig,
    quotas: Quotas,
    hooks: Vec<HookConfig>,
    retention: Option<Retention>,
    approval: ApprovalTerms,
    guards: Option<Guards>,
    windowed: Option<(Arc<Windowed>, u64)>,
    system: Option<String>,
    prompt: PromptConfig,
    shared: ShareConfig,
}

impl TestAgentBuilder {
    /// What all its runs share.
    pub(crate) fn shared(self, shared: ShareConfig) -> Self {
        Self { shared, ..self }
    }

    /// How its calls are approved.
    pub(crate) fn approval(self, approval: ApprovalTerms) -> Self {
        Self { approval, ..self }
    }

    /// What its runs are held to.
    pub(crate) fn guards(self, guards: Guards) -> Self {
        Self { guards: Some(guards), ..self }
    }

    /// What its prompts have beside these instructions.
    pub(crate) fn prompt(self, system: &str, prompt: PromptConfig) -> Self {
        Self { system: Some(system.to_owned()), prompt, ..self }
    }

    /// Has it ask this model instead, which it believes to take so many tokens.
    pub(super) fn windowed(self, model: &Arc<Windowed>, window: u64) -> Self {
        Self { windowed: Some((model.clone(), window)), ..self }
    }

    /// Its store, which others may hold too.
    pub(crate) fn store(self, store: Arc<dyn Store>) -> Self {
        Self { store: Some(store), ..self }
    }

    /// What its model plays.
    pub(crate) fn turns(self, turns: Vec<Say>) -> Self {
        Self { turns, ..self }
    }

    /// Adds a model `s` of an upstream `spareN` that plays these turns, to which its runs fall back.
    pub(crate) fn spare(mut self, turns: Vec<Say>, config: ModelConfig) -> Self {
        self.spares.push((turns, config));
        self
    }

    /// Has its models left alone while they fail, as those of a server are.
    pub(crate) fn guarded(self) -> Self {
        Self { is_guarded: true, ..self }
    }

    /// Has a second model asked beside one that says nothing for so long.
    pub(crate) fn hedge_after(self, patience: Duration) -> Self {
        Self { hedge_after: Some(patience), ..self }
    }

    /// The rules of its runs' loops.
    pub(crate) fn rules(self, rules: LoopRules) -> Self {
        Self { rules: Some(rules), ..self }
    }

    /// The effect that `echo` has.
    pub(crate) fn echo(self, echo: Effect) -> Self {
        Self { echo: Some(echo), ..self }
    }

    /// The tools that it has instead.
    pub(crate) fn tools(self, tools: Vec<Arc<dyn Tool>>) -> Self {
        Self { tools: Some(tools), ..self }
    }

    /// The tools that its runs answer themselves.
    pub(crate) fn own_tools(self, own_tools: Vec<Arc<dyn OwnTool>>) -> Self {
        Self { own_tools, ..self }
    }

    /// How much its memories may have.
    pub(crate) fn memory(self, memory: MemoryConfig) -> Self {
        Self { memory: Some(memory), ..self }
    }

    /// What it knows how to do.
    pub(crate) fn skills(self, skills: SkillsConfig) -> Self {
        Self { skills, ..self }
    }

    /// What its keys may take.
    pub(crate) fn quotas(self, quotas: Quotas) -> Self {
        Self { quotas, ..self }
    }

    /// The hooks that its runs are subject to.
    pub(crate) fn hooks(self, hooks: Vec<HookConfig>) -> Self {
        Self { hooks, ..self }
    }

    /// How long it keeps things, if not as [`RETENTION`] says.
    pub(crate) fn retention(self, retention: Retention) -> Self {
        Self { retention: Some(retention), ..self }
    }

    /// The agent. It takes up no runs of others and keeps no leases before it begins.
    pub(crate) fn build(self) -> TestAgent {
        let model = Scripted::new(self.turns);
        let (spares, configs): (Vec<_>, Vec<_>) = self.spares.into_iter().unzip();
        let spares: Vec<_> = spares.into_iter().map(Scripted::new).collect();
        let echo = Echo::new("echo", self.echo.unwrap_or(Effect::Read), 1_000);
        let hang = Echo::new("hang", Effect::Read, 0);
        let (journal, fences) = (echo.journal.clone(), hang.fences.clone());
        let tools = self
            .tools
            .unwrap_or_else(|| vec![Arc::new(echo), Arc::new(Echo::new("save", Effect::Write, 1_000)), Arc::new(hang)]);
        let health = Arc::<Health>::default();
        let guarded = |name: &str, model: &Arc<Scripted>| -> Arc<dyn Model> {
            let model: Arc<dyn Model> = model.clone();
            if !self.is_guarded {
                return model;
            }
            let health = health.of_upstream(name, "", BREAKER);
            Arc::new(Retrying::new(model, RetryPolicy::default(), health))
        };
        let behind: Vec<_> =
            (0..).zip(&spares).map(|(number, spare)| guarded(&format!("spare{number}"), spare)).collect();
        let asked: Arc<dyn Model> = match &self.windowed {
            Some((windowed, _)) => windowed.clone(),
            None => guarded("scripted", &model),
        };
        let generation = Generation {
            catalog: with_shares(
                self.shared,
                asked,
                (
                    (self.system.as_deref(), self.hedge_after, self.approval),
                    (self.rules.unwrap_or_else(unguarded), self.guards.unwrap_or_else(uncut), self.prompt),
                ),
                behind.into_iter().zip(configs),
                self.windowed.as_ref().map_or(200_000, |(_, window)| *window),
            ),
            health: health.clone(),
            tools: Arc::new(Registry::new(tools).unwrap().into()),
            own_tools: self.own_tools,
            memory: self.memory,
            skills: self.skills,
            quotas: self.quotas,
            hooks: Hooks::new(&self.hooks, hooks::client).unwrap(),
            ..Generation::default()
        };
        let store = self.store.unwrap_or_else(|| Arc::new(MemoryStore::default()));
        let agent = Agent::new(store, generation, self.retention.unwrap_or(RETENTION));
        TestAgent { agent, model, spares, journal, fences }
    }

    /// The agent, which has begun.
    pub(crate) fn begin(self) -> TestAgent {
        let agent = self.build();
        agent.begin();
        agent
    }
}

/// One agent, which may use all tools and asks this model.
pub(crate) fn catalog(model: Arc<dyn Model>) -> Catalog {
    instructed(model, None)
}

/// Guards by which no message is too long, as tests fill models and memory with single ones.
fn uncut() -> Guards {
    Guards { max_message_chars: u32::MAX, ..Guards::default() }
}

/// The same agent with these instructions.
pub(crate) fn instructed(model: Arc<dyn Model>, system: Option<&str>) -> Catalog {
    let prompt = PromptConfig { request_layers: true, ..PromptConfig::default() };
    let rules = (unguarded(), Guards::default(), prompt);
    with_spares(model, ((system, None, ApprovalTerms::default()), rules), [], 200_000)
}

/// Rules by which a model may call the same tool again and again, and is sent all that was said.
pub(crate) fn unguarded() -> LoopRules {
    LoopRules { loop_guard: LoopGuardRules::off(), context: ContextRules::off(), ..LoopRules::default() }
}

/// The instructions of an agent, how long its model may say nothing, and how its calls are approved.
type Terms<'a> = (Option<&'a str>, Option<Duration>, ApprovalTerms);

/// The same, with models to fall back to.
fn with_spares(
    model: Arc<dyn Model>,
    terms: (Terms<'_>, (LoopRules, Guards, PromptConfig)),
    spares: impl IntoIterator<Item = (Arc<dyn Model>, ModelConfig)>,
    window: u64,
) -> Catalog {
    with_shares(ShareConfig::default(), model, terms, spares, window)
}

/// The same, whose runs share this.
fn with_shares(
    shared: ShareConfig,
    model: Arc<dyn Model>,
    ((system, hedge_after, approval), (rules, guards, prompt)): (Terms<'_>, (LoopRules, Guards, PromptConfig)),
    spares: impl IntoIterator<Item = (Arc<dyn Model>, ModelConfig)>,
    window: u64,
) -> Catalog {
    let limits = LimitsConfig {
        max_iterations: 20,
        max_tool_calls: None,
        timeout: Duration::from_secs(60),
        tool_timeout: Duration::from_secs(5),
        token_budget: None,
        cost_budget: None,
        shared,
    };
    let price = Some(Price::from_usd(3.0, 3.0, 15.0));
    let mut models = BTreeMap::from([(
        "m".into(),
        ModelConfig { price, context_window: Some(window), max_output_tokens: Some(8_192), ..ModelConfig::default() },
    )]);
    let mut upstreams = vec![Arc::new(Upstream::new("scripted".into(), model, None))];
    let mut fallbacks = Vec::new();
    for (number, (spare, facts)) in spares.into_iter().enumerate() {
        let name = format!("spare{number}");
        fallbacks.push(format!("{name}/s"));
        models.insert(format!("{name}/s"), facts);
        upstreams.push(Arc::new(Upstream::new(name, spare, Some(vec!["s".into()]))));
    }
    let config = AgentConfig {
        name: DEFAULT_AGENT.into(),
        description: None,
        model: None,
        fallbacks: Some(fallbacks),
        system: system.map(Into::into),
        tools: vec!["*".into()],
        hedge_after,
        max_offered_tools: 64,
        always_offered: Vec::new(),
        on_limit: OnLimit::Stop,
        streams: false,
        rules: Arc::new(rules),
        trace_content: true,
        limits,
        policy: Arc::default(),
        approval,
        guards: Arc::new(guards),
        prompt: Arc::new(prompt),
    };
    let models = Models { declared: models, ..Models::default() };
    Catalog::new(BTreeMap::from([(DEFAULT_AGENT.into(), config)]), upstreams, models)
}

/// All public records of a run that goes on now.
pub(crate) async fn watch(started: Started) -> Vec<Record> {
    let mut follower = started.follower;
    let mut records = Vec::new();
    while let Some(page) = follower.next().await.unwrap() {
        records.extend(page.into_iter().map(|record| (*record).clone()));
    }
    records
}

/// How the last record says the run ended.
pub(crate) fn outcome(records: &[Record]) -> Outcome {
    match records.last().map(|record| &record.event) {
        Some(Event::RunFinished(outcome)) => (**outcome).clone(),
        other => panic!("the last event is {other:?}"),
    }
}

/// All answer text that was shown.
pub(crate) fn shown(records: &[Record]) -> String {
    let texts = records.iter().filter_map(|record| match &record.event {
        Event::TextDelta { text, .. } => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}
