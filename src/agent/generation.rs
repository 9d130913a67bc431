//! One generation of the configuration of runs and callers: a value that is replaced as a whole.
//!
//! A request takes the current generation and is served by it to its end. A driver keeps the upstream, the addresses
//! of tools and the quotas of the generation that it began with. What a model is offered is pinned for the whole run.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::watch;

use crate::agent::catalog::Catalog;
use crate::agent::context::offer::{CurrentOffers, Offer};
use crate::agent::own_tool::OwnTool;
use crate::agent::quotas::Quotas;
use crate::config::KeyConfig;
use crate::llm::health::Health;
use crate::telemetry::traces::Providers;
use crate::tools::Registry;
use crate::tools::mcp::McpServer;

/// Everything that can be replaced while the process runs.
#[derive(Debug, Default)]
pub struct Generation {
    /// Agents, upstreams and models.
    pub catalog: Catalog,
    /// The tools that agents can be given.
    pub tools: Registry,
    /// The servers that some of them are of, which run as long as a generation has them.
    pub servers: Vec<Arc<McpServer>>,
    /// What of them was offered lately.
    pub offers: CurrentOffers,
    /// The tools that runs answer themselves.
    pub own_tools: Vec<Arc<dyn OwnTool>>,
    /// What traces call the services of upstreams.
    pub providers: Providers,
    /// What the runs of each key may take together.
    pub quotas: Quotas,
    /// The keys that callers may show, by their SHA-256; if there are none, everyone may call.
    pub keys: HashMap<[u8; 32], KeyConfig>,
    /// How well the upstreams are; the same in all generations of a process.
    pub health: Arc<Health>,
    /// Most requests a minute from one address without a key; `None` without end.
    pub requests_per_minute: Option<u32>,
}

impl Generation {
    /// The server's tools of these names, as they are configured in it.
    pub(super) fn offer(&self, names: &[String]) -> Offer {
        self.offers.get(&self.tools, names)
    }
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
