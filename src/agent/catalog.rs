//! What a request's `model` may name: agents, and the models of upstreams.

mod composite;
mod fallbacks;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use parking_lot::RwLock;
use tokio::sync::{OnceCell, SetError};

use crate::agent::error::StartError;
use crate::config::{AgentConfig, DEFAULT_AGENT, Models, Tier, nearest};
use crate::llm::offered::OfferedModel;
use crate::llm::pricing::{ModelFacts, Terms, priced};
use crate::llm::{DeltaStream, Model, ModelError, ModelErrorKind, ModelRequest};
use crate::types::price::{PriceOrigin, StepModel};

/// How often upstreams are asked for their models. Not a setting: a reload asks at once, and `models` declares
/// them where asking is unwanted.
const REFRESH_EVERY: Duration = Duration::from_secs(60);

/// Agents, upstreams and what is known of models.
#[derive(Debug, Default)]
pub struct Catalog {
    agents: BTreeMap<String, AgentConfig>,
    upstreams: Vec<Arc<Upstream>>,
    models: Models,
}

/// A named upstream.
#[derive(Debug)]
pub struct Upstream {
    name: String,
    model: Arc<dyn Model>,
    listed: Listed,
    terms: Terms,
    is_needed: bool,
}

#[derive(Debug)]
enum Listed {
    Declared(Arc<[OfferedModel]>),
    /// Asked of the upstream: once by the first who needs it, then again and again beside requests.
    /// `None` inside means that it could not say.
    Asked(OnceCell<RwLock<Option<Arc<[OfferedModel]>>>>),
}

/// A model or agent that a request named.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The agent whose settings apply.
    pub agent_name: String,
    /// Its settings.
    pub settings: AgentConfig,
    /// The model that it calls.
    pub called: Called,
    /// The models that it calls in place of that one, in order.
    pub fallbacks: Vec<Called>,
    /// The version of the agent, if it is one of the store.
    pub agent_version: Option<u64>,
}

/// A model of an upstream.
#[derive(Debug, Clone)]
pub struct Called {
    /// The upstream.
    pub upstream: String,
    /// The model's name there.
    pub model_name: String,
    /// What is known of the model.
    pub facts: ModelFacts,
    /// Where its price comes from.
    pub price_origin: PriceOrigin,
    /// What other tiers of service cost, where that is known.
    pub tiers: Option<Arc<[Tier]>>,
    /// What its upstream charges besides.
    pub terms: Terms,
}

/// An entry of the list of models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What a request's `model` says.
    pub id: String,
    /// The upstream, or `loopgate` for an agent.
    pub owner: String,
    /// The agent that it runs as.
    pub agent: String,
}

impl Called {
    /// The model as a run pins it.
    pub(super) fn into_step_model(self) -> StepModel {
        let Self { upstream, model_name: model, facts, price_origin, .. } = self;
        StepModel { upstream, model, price: facts.price, price_origin }
    }
}

impl Upstream {
    /// An upstream; its models are asked of it where they are not declared.
    #[must_use]
    pub fn new(name: String, model: Arc<dyn Model>, declared: Option<Vec<String>>) -> Self {
        let named = |models: Vec<String>| models.iter().map(|model| OfferedModel::from(model.as_str())).collect();
        let listed = declared.map_or_else(|| Listed::Asked(OnceCell::new()), |models| Listed::Declared(named(models)));
        Self { name, model, listed, terms: Terms::default(), is_needed: false }
    }

    /// The same upstream on these terms.
    #[must_use]
    pub fn on(self, terms: Terms) -> Self {
        Self { terms, ..self }
    }

    /// The same upstream; a server is not ready without it if it `is_needed`.
    #[must_use]
    pub fn needed(self, is_needed: bool) -> Self {
        Self { is_needed, ..self }
    }

    /// What is known of its charges beside the prices of its models.
    #[must_use]
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Its models; `None` if it cannot say.
    async fn models(&self) -> Option<Arc<[OfferedModel]>> {
        match &self.listed {
            Listed::Declared(models) => Some(models.clone()),
            Listed::Asked(known) => {
                let known = known.get_or_init(|| async { RwLock::new(self.ask().await) }).await;
                known.read().clone()
            }
        }
    }

    /// Asks again. What was known stays if the upstream does not answer this time.
    async fn refresh(&self) {
        if let Listed::Asked(known) = &self.listed
            && let Some(models) = self.ask().await
            && let Err(SetError::AlreadyInitializedError(models)) = known.set(RwLock::new(Some(models)))
            && let Some(known) = known.get()
        {
            let models = models.into_inner();
            *known.write() = models;
        }
    }

    async fn ask(&self) -> Option<Arc<[OfferedModel]>> {
        match self.model.list_models().await {
            Ok(models) => Some(models.into()),
            Err(error) => {
                tracing::warn!(upstream = self.name, %error, "the upstream does not list its models");
                None
            }
        }
    }
}

impl Catalog {
    /// A catalog of these.
    #[must_use]
    pub fn new(agents: BTreeMap<String, AgentConfig>, upstreams: Vec<Arc<Upstream>>, models: Models) -> Self {
        Self { agents, upstreams, models }
    }

    /// Keeps the lists of models fresh, for ever.
    pub async fn keep_fresh(&self) {
        loop {
            futures_util::future::join_all(self.upstreams.iter().map(|upstream| upstream.refresh())).await;
            tokio::time::sleep(REFRESH_EVERY).await;
        }
    }

    /// What `name` means: an agent, `upstream/model`, or a model that just one upstream has. Where it means nothing, the
    /// error names what is like it of what `may_use` allows.
    pub async fn resolve(&self, name: &str, may_use: impl Fn(&str) -> bool) -> Result<Resolved, StartError> {
        if let Some(agent) = self.agents.get(name).filter(|agent| is_named(agent)) {
            return self.resolve_agent(agent, None).await;
        }
        let Some(agent) = self.agents.get(DEFAULT_AGENT) else { return Err(self.not_found(name, may_use).await) };
        match self.resolved(agent, None, name).await {
            Err(StartError::ModelNotFound { .. }) => {}
            resolved => return resolved,
        }
        Err(self.not_found(name, may_use).await)
    }

    /// What an agent runs, of this version if it is one of the store.
    pub async fn resolve_agent(&self, agent: &AgentConfig, version: Option<u64>) -> Result<Resolved, StartError> {
        if agent.rules.composite.is_some() {
            return Ok(Resolved::composite(agent, version));
        }
        let name = || agent.name.clone();
        let model = self.model_of(agent).await.ok_or_else(|| StartError::AgentWithoutModel(name()))?;
        self.resolved(agent, version, &model).await.map_err(|error| {
            let is_gone = matches!(error, StartError::ModelNotFound { .. });
            if is_gone { StartError::AgentModelNotFound { agent: name(), model } } else { error }
        })
    }

    /// The error for a name that means nothing to a caller who may use these agents.
    pub async fn not_found(&self, name: &str, may_use: impl Fn(&str) -> bool) -> StartError {
        let entries = self.list().await;
        let usable = entries.iter().filter(|entry| may_use(&entry.agent));
        let names = usable.flat_map(|entry| [Some(&*entry.id), entry.id.split_once('/').map(|(_, bare)| bare)]);
        let nearest = nearest(name, names.flatten()).map(str::to_owned);
        StartError::ModelNotFound { name: cut(name), nearest }
    }

    /// What an agent runs: its own model, or the only one that there is.
    async fn model_of(&self, agent: &AgentConfig) -> Option<String> {
        match &agent.model {
            Some(model) => Some(model.clone()),
            None => match &*self.models().await {
                [only] => Some(only.id.clone()),
                _ => None,
            },
        }
    }

    async fn resolved(&self, agent: &AgentConfig, version: Option<u64>, model: &str) -> Result<Resolved, StartError> {
        let called = self.called(model).await?;
        let fallbacks = self.fallbacks(agent, &called, model).await;
        let (agent_name, settings) = (agent.name.clone(), agent.clone());
        Ok(Resolved { agent_name, settings, called, fallbacks, agent_version: version })
    }

    /// A model of an upstream, by whichever name the configuration gives it.
    pub async fn called(&self, model: &str) -> Result<Called, StartError> {
        let (upstream, OfferedModel { name: model_name, sizes }) = self.locate(model).await?;
        let names = [&format!("{}/{model_name}", upstream.name), model, &model_name];
        let priced = priced(&self.models, &upstream.terms, names, sizes);
        Ok(Called {
            upstream: upstream.name.clone(),
            model_name,
            facts: priced.facts,
            price_origin: priced.source.origin(),
            tiers: priced.source.tiers().cloned(),
            terms: upstream.terms.clone(),
        })
    }

    /// Everything that `model` may name: agents that have a model first.
    pub async fn list(&self) -> Vec<Entry> {
        let models = self.models().await;
        let has_model =
            |agent: &&AgentConfig| agent.model.is_some() || models.len() == 1 || agent.rules.composite.is_some();
        let agents = self.agents.values().filter(|agent| is_named(agent)).filter(has_model).map(|agent| Entry {
            id: agent.name.clone(),
            owner: "loopgate".to_owned(),
            agent: agent.name.clone(),
        });
        agents.chain(models.iter().cloned()).collect()
    }

    /// The models of the upstreams.
    async fn models(&self) -> Vec<Entry> {
        let mut entries = Vec::new();
        for upstream in &self.upstreams {
            for model in upstream.models().await.iter().flat_map(|models| models.iter()) {
                entries.push(Entry {
                    id: format!("{}/{}", upstream.name, model.name),
                    owner: upstream.name.clone(),
                    agent: DEFAULT_AGENT.to_owned(),
                });
            }
        }
        entries
    }

    /// The agent of this name.
    #[must_use]
    pub fn agent(&self, name: &str) -> Option<&AgentConfig> {
        self.agents.get(name)
    }

    /// Whether any agent has rules for the calls of its runs.
    pub(super) fn has_policies(&self) -> bool {
        self.agents.values().any(|agent| !agent.policy.says_nothing())
    }

    /// The longest that a run of any agent may take.
    #[must_use]
    pub fn longest_timeout(&self) -> Duration {
        self.agents.values().map(|agent| agent.limits.timeout).max().unwrap_or_default()
    }

    /// The upstream of this name, with the models that it was last heard to have.
    #[must_use]
    pub fn upstream(&self, name: &str) -> Option<&Arc<Upstream>> {
        self.upstreams.iter().find(|upstream| upstream.name == name)
    }

    /// The upstreams without which a server is not ready.
    pub fn needed(&self) -> impl Iterator<Item = &str> {
        self.upstreams.iter().filter(|upstream| upstream.is_needed).map(|upstream| upstream.name.as_str())
    }

    /// The upstream of a run; one that is no longer configured fails every call.
    #[must_use]
    pub fn model(&self, upstream: &str) -> Arc<dyn Model> {
        match self.upstream(upstream) {
            Some(upstream) => upstream.model.clone(),
            None => Arc::new(Gone(upstream.to_owned())),
        }
    }

    async fn locate(&self, model: &str) -> Result<(&Upstream, OfferedModel), StartError> {
        let find = |listed: &[OfferedModel], name: &str| listed.iter().find(|known| known.name == name).cloned();
        if let Some((prefix, rest)) = model.split_once('/')
            && let Some(upstream) = self.upstream(prefix)
        {
            let found = match upstream.models().await {
                Some(listed) => find(&listed, rest),
                None => (!rest.is_empty()).then(|| rest.into()),
            };
            return found.map(|found| (&**upstream, found)).ok_or_else(|| not_found(model));
        }
        let mut candidates = Vec::new();
        let mut silent = Vec::new();
        for upstream in &self.upstreams {
            match upstream.models().await {
                Some(models) => candidates.extend(find(&models, model).map(|found| (upstream, found))),
                None => silent.push(upstream),
            }
        }
        match (candidates.as_slice(), silent.as_slice()) {
            ([(upstream, found)], _) => Ok((upstream, found.clone())),
            // The only upstream there is, and it cannot say what it has: it will refuse what it has not.
            ([], [upstream]) if self.upstreams.len() == 1 && !model.is_empty() => Ok((upstream, model.into())),
            ([], _) => Err(not_found(model)),
            (several, _) => {
                let names: Vec<_> = several.iter().map(|(upstream, _)| format!("{}/{model}", upstream.name)).collect();
                Err(StartError::ModelAmbiguous { name: model.to_owned(), candidates: names.join(", ") })
            }
        }
    }
}

/// Whether requests may name the agent. `default` without a model stands for the models that they name.
fn is_named(agent: &AgentConfig) -> bool {
    agent.model.is_some() || agent.name != DEFAULT_AGENT
}

fn not_found(model: &str) -> StartError {
    StartError::ModelNotFound { name: cut(model), nearest: None }
}

/// As much of a name as an error repeats.
fn cut(name: &str) -> String {
    name.chars().take(100).collect()
}

/// An upstream that a stored run names and the configuration no longer has.
#[derive(Debug)]
struct Gone(String);

impl Gone {
    fn error(&self) -> ModelError {
        let message = format!("the upstream {} is no longer configured", self.0);
        ModelError::new(ModelErrorKind::Rejected, message)
    }
}

impl Model for Gone {
    fn stream(&self, _request: ModelRequest) -> DeltaStream {
        futures_util::stream::iter([Err(self.error())]).boxed()
    }

    fn list_models(&self) -> BoxFuture<'_, Result<Vec<OfferedModel>, ModelError>> {
        std::future::ready(Err(self.error())).boxed()
    }
}
