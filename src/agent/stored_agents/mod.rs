//! Agents that tenants keep in the store, beside those of the file.
//!
//! A tenant's agents lie in one partition: an index, and a document for each version. A change is one commit, so no replica
//! sees half of one. Each process reads a tenant's index again when what it knows is older than [`MAX_AGE`], and an agent when its
//! version is another. A run pins what the agent was when the run was accepted.

mod change;
mod document;
mod error;
mod known;

use std::sync::Arc;

pub use change::Changer;
pub use document::{LONGEST_SETTINGS, StoredAgent};
pub use error::{AgentError, Unreadable};
pub use known::MAX_AGE;

use crate::agent::catalog::{Entry, Resolved};
use crate::agent::error::StartError;
use crate::agent::generation::{Generation, Generations};
use crate::agent::ledger::document::decode;
use crate::agent::ledger::keys;
use crate::agent::stored_agents::document::Index;
use crate::agent::stored_agents::known::{Known, KnownAgent};
use crate::config::AgentReader;
use crate::store::{Store, Unavailable};
use crate::types::Tenant;

/// The agents of tenants.
#[derive(Debug)]
pub struct StoredAgents {
    store: Arc<dyn Store>,
    generations: Arc<Generations>,
    known: Known,
}

impl StoredAgents {
    pub(super) fn new(store: Arc<dyn Store>, generations: Arc<Generations>) -> Self {
        Self { store, generations, known: Known::default() }
    }

    /// What `name` means to a tenant: an agent of the file, one of the tenant's own, or a model.
    pub async fn resolve(
        &self,
        generation: &Generation,
        tenant: &Tenant,
        name: &str,
        may_use: impl Fn(&str) -> bool,
    ) -> Result<Resolved, StartError> {
        match generation.agents.as_ref().filter(|reader| reader.may_be_stored(name)) {
            // Boxed, as it is rare: most names are of the file, or known to be of none of the tenant's agents.
            Some(reader) if !self.known.lacks(tenant, name) => {
                Box::pin(self.resolve_own(generation, reader, tenant, (name, may_use))).await
            }
            _ => generation.catalog.resolve(name, may_use).await,
        }
    }

    /// What an agent is for, by its own words if it has any; `None` if a tenant has none of this name.
    pub(in crate::agent) async fn description(
        &self,
        generation: &Generation,
        tenant: &Tenant,
        name: &str,
    ) -> Result<Option<Option<String>>, StartError> {
        if let Some(agent) = generation.catalog.agent(name) {
            return Ok(Some(agent.description.clone()));
        }
        match generation.agents.as_ref().filter(|reader| reader.may_be_stored(name)) {
            Some(reader) => Ok(self.find(reader, tenant, name).await?.map(|own| own.config.description.clone())),
            None => Ok(None),
        }
    }

    /// Whether this name may mean an agent of the tenant's own, as far as this process knows.
    pub(in crate::agent) fn may_have(&self, generation: &Generation, tenant: &Tenant, name: &str) -> bool {
        let may_be_stored = generation.agents.as_ref().is_some_and(|reader| reader.may_be_stored(name));
        may_be_stored && !self.known.lacks(tenant, name)
    }

    async fn resolve_own(
        &self,
        generation: &Generation,
        reader: &Arc<AgentReader>,
        tenant: &Tenant,
        (name, may_use): (&str, impl Fn(&str) -> bool),
    ) -> Result<Resolved, StartError> {
        match self.find(reader, tenant, name).await? {
            Some(own) => generation.catalog.resolve_agent(&own.config, Some(own.version)).await,
            None => generation.catalog.resolve(name, may_use).await,
        }
    }

    /// What requests of a tenant may name beside agents of the file and models.
    pub async fn entries(&self, tenant: &Tenant) -> Result<Vec<Entry>, Unavailable> {
        let index = self.index(tenant).await?;
        let generation = self.generations.current();
        let is_of_file = |name: &str| generation.agents.as_ref().is_some_and(|reader| reader.has(name));
        let names = index.agents().map(|(name, _)| name.to_owned()).filter(|name| !is_of_file(name));
        Ok(names.map(|name| Entry { id: name.clone(), owner: "loopgate".to_owned(), agent: name }).collect())
    }

    /// The newest versions of a tenant's agents, by name.
    pub async fn list(&self, tenant: &Tenant) -> Result<Vec<StoredAgent>, Unavailable> {
        let index = self.read_index(tenant).await?.1;
        let mut found = Vec::new();
        for (name, entry) in index.agents() {
            let version = entry.versions.last().copied().unwrap_or_default();
            found.extend(self.read(tenant, name, version).await?);
        }
        Ok(found)
    }

    /// The newest version of an agent; `None` if the tenant has none of this name.
    pub async fn get(&self, tenant: &Tenant, name: &str) -> Result<Option<StoredAgent>, Unavailable> {
        match self.read_index(tenant).await?.1.version(name) {
            Some(version) => self.read(tenant, name, version).await,
            None => Ok(None),
        }
    }

    /// The versions of an agent that are kept, the newest first, also if it was deleted.
    pub async fn versions(&self, tenant: &Tenant, name: &str) -> Result<Vec<StoredAgent>, Unavailable> {
        let index = self.read_index(tenant).await?.1;
        let mut found = Vec::new();
        for version in index.versions(name).iter().rev() {
            found.extend(self.read(tenant, name, *version).await?);
        }
        Ok(found)
    }

    /// One version of an agent; `None` if it is not kept.
    pub async fn version(&self, tenant: &Tenant, name: &str, version: u64) -> Result<Option<StoredAgent>, Unavailable> {
        self.read(tenant, name, version).await
    }

    /// An agent of a tenant's own; `None` if there is none of this name.
    async fn find(
        &self,
        reader: &Arc<AgentReader>,
        tenant: &Tenant,
        name: &str,
    ) -> Result<Option<Arc<KnownAgent>>, StartError> {
        let Some(version) = self.index(tenant).await?.version(name) else { return Ok(None) };
        if let Some(known) = self.known.agent(tenant, name, version, reader) {
            return Ok(Some(known));
        }
        let Some(settings) = self.read(tenant, name, version).await?.and_then(|agent| agent.settings) else {
            // It was changed so often since the index was read that the version is forgotten.
            self.known.forget(tenant);
            return Ok(None);
        };
        let read = reader
            .read(name, &settings)
            .map_err(|mistakes| StartError::AgentUnreadable { agent: name.to_owned(), why: mistakes.to_string() })?;
        Ok(Some(self.known.keep_agent(tenant, KnownAgent { version, config: read.config }, reader)))
    }

    /// A tenant's index, as it was a moment ago at most.
    async fn index(&self, tenant: &Tenant) -> Result<Arc<Index>, Unavailable> {
        if let Some(known) = self.known.index(tenant) {
            return Ok(known);
        }
        let (_, index) = self.read_index(tenant).await?;
        Ok(self.known.keep_index(tenant, index))
    }

    /// A tenant's index as it is, and the version of its document.
    async fn read_index(&self, tenant: &Tenant) -> Result<(u64, Index), Unavailable> {
        let document = self.store.get(&keys::agents_partition(tenant), &keys::agents_index()).await?;
        match document {
            Some(document) => Ok((document.version, decode(&document.value)?)),
            None => Ok((0, Index::default())),
        }
    }

    async fn read(&self, tenant: &Tenant, name: &str, version: u64) -> Result<Option<StoredAgent>, Unavailable> {
        let key = keys::agent_version(name, version);
        let document = self.store.get(&keys::agents_partition(tenant), &key).await?;
        document.map(|document| decode(&document.value)).transpose()
    }
}
