//! What a process knows of tenants' agents, so that a request rarely asks the store.

use std::sync::Arc;
use std::time::Duration;

use moka::Entry;
use moka::sync::Cache;
use tokio::time::Instant;

use crate::agent::stored_agents::document::Index;
use crate::config::{AgentConfig, AgentReader};
use crate::types::Tenant;

/// How old what a process knows of a tenant's agents may be: so soon a change counts on every replica.
pub const MAX_AGE: Duration = Duration::from_secs(3);
/// Of so many tenants something is known at a time.
const TENANTS: u64 = 10_000;
/// So many agents are kept as they were read.
const AGENTS: u64 = 1_000;

/// An agent as it was read.
#[derive(Debug)]
pub struct KnownAgent {
    /// Its version.
    pub version: u64,
    /// What it is.
    pub config: AgentConfig,
}

/// An agent, and what it was read against.
#[derive(Debug, Clone)]
struct Kept {
    agent: Arc<KnownAgent>,
    reader: Arc<AgentReader>,
}

/// An index, and when it was read.
#[derive(Debug, Clone)]
struct Aged {
    index: Arc<Index>,
    read_at: Instant,
}

/// What is known.
#[derive(Debug)]
pub struct Known {
    indexes: Cache<Tenant, Aged>,
    agents: Cache<(Tenant, String), Kept>,
}

impl Default for Known {
    fn default() -> Self {
        Self { indexes: Cache::new(TENANTS), agents: Cache::new(AGENTS) }
    }
}

impl Known {
    /// The index of a tenant, if it was read lately.
    pub fn index(&self, tenant: &Tenant) -> Option<Arc<Index>> {
        let known = self.indexes.get(tenant).filter(|known| known.read_at.elapsed() < MAX_AGE)?;
        Some(known.index)
    }

    /// Whether a tenant is known to have no agent of this name.
    pub fn lacks(&self, tenant: &Tenant, name: &str) -> bool {
        self.index(tenant).is_some_and(|index| index.version(name).is_none())
    }

    /// Keeps an index that was read or made just now, unless a newer one was a moment ago: the read began before a change. One that
    /// has been newer for longer is of a store that has lost writes.
    pub fn keep_index(&self, tenant: &Tenant, index: Index) -> Arc<Index> {
        let read = Aged { index: Arc::new(index), read_at: Instant::now() };
        let is_newer = |known: &Aged| known.read_at.elapsed() < MAX_AGE && known.index.is_newer_than(&read.index);
        let newest = |known: Option<Entry<Tenant, Aged>>| match known {
            Some(known) if is_newer(known.value()) => known.into_value(),
            _ => read.clone(),
        };
        self.indexes.entry(tenant.clone()).and_upsert_with(newest).into_value().index
    }

    /// Has the index of a tenant be read again.
    pub fn forget(&self, tenant: &Tenant) {
        self.indexes.invalidate(tenant);
    }

    /// This version of an agent, if it was read against the same configuration.
    pub fn agent(
        &self,
        tenant: &Tenant,
        name: &str,
        version: u64,
        reader: &Arc<AgentReader>,
    ) -> Option<Arc<KnownAgent>> {
        let kept = self.agents.get(&(tenant.clone(), name.to_owned()))?;
        (kept.agent.version == version && Arc::ptr_eq(&kept.reader, reader)).then_some(kept.agent)
    }

    /// Keeps an agent as it was read.
    pub fn keep_agent(&self, tenant: &Tenant, agent: KnownAgent, reader: &Arc<AgentReader>) -> Arc<KnownAgent> {
        let agent = Arc::new(agent);
        let kept = Kept { agent: agent.clone(), reader: reader.clone() };
        self.agents.insert((tenant.clone(), agent.config.name.clone()), kept);
        agent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_the_store_has_counts_also_if_it_is_older_than_what_is_known_for_long() {
        let (known, tenant) = (Known::default(), Tenant::default_tenant());
        let older = Index::default().change("clerk", Some(serde_json::Map::new()), 1, None).unwrap().index;
        let newer = older.change("clerk", None, 2, None).unwrap().index;
        known.keep_index(&tenant, newer.clone());
        assert_eq!(*known.keep_index(&tenant, older.clone()), newer, "a read that began before the change");
        tokio::time::advance(MAX_AGE).await;
        assert_eq!(*known.keep_index(&tenant, older.clone()), older, "the store lost the change");
        assert_eq!(known.index(&tenant).as_deref(), Some(&older));
    }
}
