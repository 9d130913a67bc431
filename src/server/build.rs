//! Builds what the configuration describes: upstreams, tools and keys, as one generation.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;

use crate::agent::catalog::{Catalog, Upstream};
use crate::agent::{Generation, Naming, Policies, PromptLayers, Quotas};
use crate::config::{self, BreakerConfig, HttpUpstream, Settings, UpstreamKind};
use crate::hooks::{self, Hooks};
use crate::llm::Model;
use crate::llm::connect::connect;
use crate::llm::health::{Health, UpstreamHealth};
use crate::llm::http::reach;
use crate::llm::http::upstream::{Access, UpstreamError};
use crate::llm::queue::Queued;
use crate::llm::retry::{RetryPolicy, Retrying};
use crate::net::client::{CannotConnect, HttpClient, Reach};
use crate::server::kept::KeptUpstreams;
use crate::server::mcp::KeptServers;
use crate::server::tools::{self, ToolClients};
use crate::server::{health, prices};
use crate::telemetry::metrics::Metrics;
use crate::tools::{LiveTools, Tool};

/// Why a server, or a generation of its configuration, could not be built.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BuildError(String);

impl BuildError {
    pub(super) fn new(error: impl Display) -> Self {
        Self(error.to_string())
    }
}

impl From<UpstreamError> for BuildError {
    fn from(error: UpstreamError) -> Self {
        Self::new(error)
    }
}

/// The HTTP clients, which outlive a configuration as their open connections do.
#[derive(Debug, Default)]
pub(super) struct Clients {
    /// By the settings that are a client's.
    upstreams: HashMap<Reach, HttpClient>,
    tools: ToolClients,
    /// Made when a hook needs it.
    hooks: Option<HttpClient>,
    pub(super) kept: KeptUpstreams,
    pub(super) servers: KeptServers,
    /// Models of the program that the server is part of, by their upstreams.
    models: HashMap<String, Arc<dyn Model>>,
}

/// What a program has of its own that the server is part of.
#[derive(Debug, Default)]
pub struct Embedded {
    /// Tools.
    pub tools: Vec<Arc<dyn Tool>>,
    /// Models, by their upstreams.
    pub models: HashMap<String, Arc<dyn Model>>,
}

impl Clients {
    /// No clients yet; what upstreams do is counted so.
    pub(super) fn new(metrics: Metrics, Embedded { tools, models }: Embedded) -> Self {
        let tools = ToolClients::with(tools);
        let servers = KeptServers::new(metrics.mcp());
        Self { kept: KeptUpstreams::new(metrics), tools, servers, models, ..Self::default() }
    }

    /// What an upstream is reached with.
    fn access(
        &mut self,
        upstream: &config::Upstream,
        http: &HttpUpstream,
        health: &Arc<UpstreamHealth>,
    ) -> Result<Access, BuildError> {
        let (state, health) = (self.kept.pools(upstream), Some(health.clone()));
        Ok(Access { client: self.for_upstream(reach(http))?, state, health })
    }

    fn for_upstream(&mut self, reach: Reach) -> Result<HttpClient, BuildError> {
        if let Some(client) = self.upstreams.get(&reach) {
            return Ok(client.clone());
        }
        let client = HttpClient::new(&reach).map_err(BuildError::new)?;
        self.upstreams.insert(reach, client.clone());
        Ok(client)
    }

    fn for_hooks(&mut self) -> Result<HttpClient, CannotConnect> {
        if let Some(client) = &self.hooks {
            return Ok(client.clone());
        }
        Ok(self.hooks.insert(hooks::client()?).clone())
    }

    /// How many clients upstreams have.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.upstreams.len()
    }

    /// Forgets the clients that no upstream has any more.
    fn keep_used(&mut self, settings: &Settings) {
        let used: Vec<Reach> = settings.upstreams.iter().filter_map(|one| one.kind.http()).map(reach).collect();
        self.upstreams.retain(|reach, _| used.contains(reach));
    }
}

/// What is there already: the settings of a running server and what was built of them.
pub(super) struct Running<'a> {
    pub(super) settings: &'a Settings,
    pub(super) generation: &'a Generation,
}

/// Does what takes a while, such as reading the schemas of thousands of tools, in a thread of its own: the threads of the runtime
/// serve requests meanwhile.
pub(super) async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        // It is not cancelled but when the runtime ends.
        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
    }
}

/// Builds a generation. Takes a while, so it is done [`aside`]. An upstream that is the same as in `running` is taken over,
/// and what it was heard to have with it.
pub(super) fn generation(
    settings: &Settings,
    clients: &mut Clients,
    running: Option<&Running<'_>>,
) -> Result<Generation, BuildError> {
    let health = running.map(|running| running.generation.health.clone()).unwrap_or_default();
    let upstreams = settings.upstreams.iter().map(|upstream| {
        let same = running.filter(|running| running.settings.upstreams.contains(upstream));
        let same = same.and_then(|running| running.generation.catalog.upstream(&upstream.name));
        same.map_or_else(|| build_upstream(upstream, clients, &health).map(Arc::new), |same| Ok(same.clone()))
    });
    let upstreams = upstreams.collect::<Result<_, _>>()?;
    clients.keep_used(settings);
    let workspaces = tools::workspaces(settings).map_err(BuildError::new)?;
    let fixed = tools::registry(settings, workspaces.as_ref(), &mut clients.tools).map_err(BuildError::new)?;
    let sources = clients.servers.of(settings).map_err(BuildError::new)?;
    let naming = clients.servers.naming(settings).map_err(BuildError::new)?;
    let hooks = Hooks::new(&settings.hooks, || clients.for_hooks()).map_err(BuildError::new)?;
    Ok(Generation {
        catalog: Catalog::new(settings.agents.clone(), upstreams, settings.models.clone()),
        agents: Some(Arc::new(settings.agent_reader())),
        tools: Arc::new(LiveTools::new(fixed, sources)),
        servers: clients.servers.next().to_vec(),
        workspaces,
        naming: naming.map(|servers| Naming::new(servers, &settings.keys)),
        hooks,
        memory: settings.memory,
        skills: settings.skills.clone(),
        providers: settings.upstreams.iter().filter_map(|one| Some((one.name.clone(), one.kind.provider()?))).collect(),
        quotas: Quotas::new(&settings.keys),
        policies: Policies::new(settings.policy.clone(), &settings.keys),
        layers: PromptLayers::new(settings.layers.clone(), &settings.keys),
        keys: settings.keys.iter().map(|key| (key.hash, key.clone())).collect(),
        tokens: settings.tokens.clone(),
        health,
        requests_per_minute: settings.server.requests_per_minute,
        ..Generation::default()
    })
}

fn build_upstream(upstream: &config::Upstream, clients: &mut Clients, health: &Health) -> Result<Upstream, BuildError> {
    let (name, terms) = (upstream.name.clone(), prices::terms(upstream));
    if let UpstreamKind::Embedded(names) = &upstream.kind
        && let Some(model) = clients.models.get(&name)
    {
        // What fails inside the program fails for everyone at once, so the model is never left alone.
        let breaker = BreakerConfig { enabled: false, ..upstream.breaker };
        let health = health.of_upstream(&name, "", health::policy(&breaker));
        let model = Retrying::new(model.clone(), RetryPolicy::default(), health);
        return Ok(Upstream::new(name, Arc::new(model), Some(names.clone())).on(terms));
    }
    let Some(http) = upstream.kind.http() else {
        let model = connect(upstream, || Err(BuildError::new("it needs no client")))?;
        return Ok(Upstream::new(name, model, Some(vec!["demo".to_owned()])).on(terms));
    };
    let health = health.of_upstream(&name, &health::fingerprint(upstream), health::policy(&upstream.breaker));
    let mut model = connect(upstream, || clients.access(upstream, http, &health))?;
    if let Some(slots) = clients.kept.slots(upstream) {
        model = Arc::new(Queued::new(&name, model, slots));
    }
    let model = Retrying::new(model, RetryPolicy::default(), health);
    Ok(Upstream::new(name, Arc::new(model), http.models.clone()).on(terms).needed(upstream.needed))
}
