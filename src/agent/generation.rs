//! One generation of the configuration of runs and callers: a value that is replaced as a whole.
//!
//! A request takes the current generation and is served by it to its end. A driver keeps the upstream, the addresses
//! of tools and the quotas of the generation that it began with. What a model is offered is pinned for the whole run.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::watch;

use crate::agent::catalog::Catalog;
use crate::agent::context::offer::Offer;
use crate::agent::context::selection::{Patterns, Selection, Selections};
use crate::agent::context::server_tools::ServerTools;
use crate::agent::delegating::Delegating;
use crate::agent::naming::{Naming, owner};
use crate::agent::own_tool::OwnTool;
use crate::agent::policies::Policies;
use crate::agent::prompt_layers::PromptLayers;
use crate::agent::quotas::Quotas;
use crate::config::{AgentReader, KeyConfig, MemoryConfig, SkillsConfig, TokensConfig};
use crate::hooks::Hooks;
use crate::llm::health::Health;
use crate::telemetry::traces::Providers;
use crate::tools::mcp::{McpServer, RunServers};
use crate::tools::{LiveTools, Workspaces};
use crate::types::RunSpec;

/// Everything that can be replaced while the process runs.
#[derive(Debug, Default)]
pub struct Generation {
    /// Agents, upstreams and models.
    pub catalog: Catalog,
    /// Reads the agents of tenants; `None` if they may have none.
    pub agents: Option<Arc<AgentReader>>,
    /// The tools that agents can be given.
    pub tools: Arc<LiveTools>,
    /// The servers that some of them are of.
    pub servers: Vec<Arc<McpServer>>,
    /// Where some of them keep files, if they may.
    pub workspaces: Option<Arc<Workspaces>>,
    /// Who may name other servers in requests, and what opens these; `None` if nobody may.
    pub naming: Option<Naming>,
    /// What of them was selected lately.
    pub selections: Selections,
    /// The tools that runs answer themselves, and agents name as they name others.
    pub own_tools: Vec<Arc<dyn OwnTool>>,
    /// What begins runs for other runs.
    pub delegating: Option<Arc<dyn Delegating>>,
    /// The tools by which models come by skills; runs answer them too, and are offered them as they need.
    pub skill_tools: Vec<Arc<dyn OwnTool>>,
    /// How much each memory of an agent may have, if agents may remember anything.
    pub memory: Option<MemoryConfig>,
    /// The operator's skills.
    pub skills: SkillsConfig,
    /// What runs ask and tell at certain points.
    pub hooks: Hooks,
    /// What traces call the services of upstreams.
    pub providers: Providers,
    /// What the runs of each key may take together.
    pub quotas: Quotas,
    /// What the calls of runs are judged by, beside what agents say.
    pub policies: Policies,
    /// What their prompts have, beside what agents say.
    pub layers: PromptLayers,
    /// The keys that callers may show, by their SHA-256; if there are none, everyone may call.
    pub keys: HashMap<[u8; 32], KeyConfig>,
    /// What the tokens are signed with that keys give to pages; `None` if they give none.
    pub tokens: Option<TokensConfig>,
    /// How well the upstreams are; the same in all generations of a process.
    pub health: Arc<Health>,
    /// Most requests a minute from one address without a key; `None` without end.
    pub requests_per_minute: Option<u32>,
}

impl Generation {
    /// What these patterns select of its tools as they are now.
    pub(super) fn select(&self, patterns: &Patterns<'_>) -> Arc<Selection> {
        let permitted = self.own_tools.iter().filter(|tool| patterns.permit(&tool.definition().name, tool.effect()));
        let own = permitted.map(|tool| tool.definition());
        self.selections.get(patterns, &self.tools.current(), own)
    }

    /// The tool of this name that runs answer themselves.
    pub(super) fn own_tool(&self, name: &str) -> Option<&Arc<dyn OwnTool>> {
        self.own_tools.iter().chain(&self.skill_tools).find(|tool| tool.definition().name == name)
    }

    /// The tools that a run was accepted with, if they were needed lately or are configured as they were then.
    pub(super) fn known_offer(&self, spec: &RunSpec) -> Option<Arc<ServerTools>> {
        let first = first_of(spec);
        if let Some(known) = self.selections.offered(&spec.offer, first) {
            return Some(known);
        }
        let registry = self.tools.current();
        let offer = Offer::current(&registry, &spec.tools);
        (*offer.hash() == spec.offer).then(|| self.keep_offer(offer, first))
    }

    /// The servers that the request of a run named.
    pub(super) fn servers_of(&self, spec: &RunSpec) -> Option<RunServers> {
        let named = spec.servers.as_ref()?;
        let servers = self.naming.as_ref().map(|naming| naming.servers().clone());
        Some(RunServers::new(spec.id.clone(), owner(&spec.tenant, spec.key_name.as_deref()), named.clone(), servers))
    }

    /// The tools of this offer, which a run was accepted with.
    pub(super) fn accepted_offer(&self, spec: &RunSpec, offer: Offer) -> Arc<ServerTools> {
        self.keep_offer(offer, first_of(spec))
    }

    fn keep_offer(&self, offer: Offer, first: usize) -> Arc<ServerTools> {
        let servers = Arc::new(ServerTools::new(offer, first, &self.tools.current()));
        self.selections.keep(&servers);
        servers
    }
}

/// How many of a run's tools are offered from the start because of their agent.
fn first_of(spec: &RunSpec) -> usize {
    spec.search.map_or(spec.tools.len(), |search| search.first as usize)
}

/// The current generation of a process.
#[derive(Debug)]
pub(super) struct Generations(watch::Sender<Arc<Generation>>);

impl Generations {
    pub(super) fn new(first: Generation) -> Self {
        Self(watch::Sender::new(Arc::new(first)))
    }

    pub(super) fn current(&self) -> Arc<Generation> {
        self.0.borrow().clone()
    }

    pub(super) fn replace(&self, next: Generation) {
        self.0.send_replace(Arc::new(next));
    }

    /// Tells of every generation that takes the place of another.
    pub(super) fn subscribe(&self) -> watch::Receiver<Arc<Generation>> {
        self.0.subscribe()
    }

    /// Keeps the lists of models fresh, for ever. Upstreams that are new are asked at once.
    pub(super) async fn keep_models_fresh(&self) {
        let mut changes = self.0.subscribe();
        loop {
            let current = changes.borrow_and_update().clone();
            tokio::select! {
                () = current.catalog.keep_fresh() => {}
                // The generations themselves hold the sender.
                _ = changes.changed() => {}
            }
        }
    }
}
