//! Files of agents: texts that a model is told from the start, the same for all, or a copy for each user.

use std::fmt::Write;
use std::sync::Arc;

use crate::agent::documents::change::{Change, Limits};
use crate::agent::documents::entry::Entry;
use crate::agent::documents::error::DocumentError;
use crate::agent::documents::{Collection, Documents, Kind, Named};
use crate::agent::error::StorageError;
use crate::store::Unavailable;
use crate::types::Tenant;
use crate::types::memory::AgentFiles;

/// How much the files of an agent may have, and the copies of each user.
pub const FILE_LIMITS: Limits = Limits { document: 64 << 10, documents: 64, bytes: 256 << 10 };

/// The files of an agent, or the copies that a user has of them.
#[must_use]
pub fn files_of(agent: &str, user: Option<&str>) -> Collection {
    let user = user.filter(|user| !user.is_empty()).map(str::to_owned);
    Collection { kind: Kind::Files, agent: Some(agent.to_owned()), user }
}

impl Documents {
    /// What a run's model is told of its agent's files; `None` if there are none. Where a user has no copy of a file yet, the file
    /// itself is told.
    pub async fn told_files(
        &self,
        tenant: &Tenant,
        (agent, user): (&str, Option<&str>),
        files: &AgentFiles,
    ) -> Result<Option<String>, Unavailable> {
        let (shared, own) = (files_of(agent, None), files_of(agent, user));
        let shared = self.searchable(tenant, &shared).await?;
        let has_copies = own.user.is_some() && !files.of_user.is_empty();
        let own = if has_copies { self.searchable(tenant, &own).await? } else { None };
        let find = |entry: &Option<Arc<Entry>>, name: &str| entry.as_ref()?.document(name).cloned();
        let of_all = files.shared.iter().filter_map(|name| find(&shared, name));
        let of_user = files.of_user.iter().filter_map(|name| find(&own, name).or_else(|| find(&shared, name)));
        Ok(written(of_all.chain(of_user)))
    }

    /// Makes the copies that a user lacks of an agent's files, each once, at whatever replica. Beyond a bound none is made: then the
    /// user goes on with the file itself.
    pub async fn seed_files(
        &self,
        tenant: &Tenant,
        (agent, user): (&str, &str),
        files: &AgentFiles,
    ) -> Result<(), Unavailable> {
        let of = files_of(agent, Some(user));
        let own = self.searchable(tenant, &of).await?;
        let is_there = |name: &str| own.as_ref().is_some_and(|entry| entry.document(name).is_some());
        let lacking: Vec<&String> = files.of_user.iter().filter(|name| !is_there(name)).collect();
        if lacking.is_empty() || of.user.is_none() {
            return Ok(());
        }
        let Some(shared) = self.searchable(tenant, &files_of(agent, None)).await? else { return Ok(()) };
        for template in lacking.into_iter().filter_map(|name| shared.document(name)) {
            let change = Change { content: &template.text.content, version: Some(0), ..Change::default() };
            match self.put(tenant, &of, &template.name, (&change, &FILE_LIMITS)).await {
                Ok(_) | Err(DocumentError::Changed { .. }) => {}
                Err(DocumentError::Store(error) | DocumentError::Storage(StorageError::Store(error))) => {
                    return Err(error);
                }
                Err(error) => {
                    tracing::warn!(%tenant, agent, file = template.name, %error, "a user gets no copy of a file of an agent");
                }
            }
        }
        Ok(())
    }
}

fn written(files: impl Iterator<Item = Named>) -> Option<String> {
    let mut text = String::new();
    for Named { name, text: file, .. } in files.filter(|file| !file.text.content.trim().is_empty()) {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n\n# {name}\n\n{}", file.content.trim());
    }
    (!text.is_empty()).then(|| text.trim_start().to_owned())
}
