//! Files of agents: texts that a model is told from the start, the same for all, or a copy for each user.

use std::fmt::Write;

use crate::agent::documents::change::{Change, Limits};
use crate::agent::documents::error::DocumentError;
use crate::agent::documents::{Collection, Documents, Kind, Named};
use crate::agent::error::StorageError;
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
    /// What a run's model is told of its agent's files; `None` if there are none. A user's first run makes the user's copies.
    pub async fn told_files(
        &self,
        tenant: &Tenant,
        (agent, user): (&str, Option<&str>),
        files: &AgentFiles,
    ) -> Result<Option<String>, StorageError> {
        let shared = self.searchable(tenant, &files_of(agent, None)).await?;
        let shared = shared.as_deref().map(|entry| entry.documents()).unwrap_or_default();
        let find = |all: &[Named], name: &str| all.iter().find(|file| file.name == name).cloned();
        let mut told: Vec<Named> = files.shared.iter().filter_map(|name| find(shared, name)).collect();
        let of = files_of(agent, user);
        if of.user.is_none() {
            told.extend(files.of_user.iter().filter_map(|name| find(shared, name)));
            return Ok(written(&told));
        }
        let own = if files.of_user.is_empty() { None } else { self.searchable(tenant, &of).await? };
        let own = own.as_deref().map(|entry| entry.documents()).unwrap_or_default();
        for name in &files.of_user {
            match (find(own, name), find(shared, name)) {
                (Some(copy), _) => told.push(copy),
                (None, Some(template)) => told.push(self.seed(tenant, &of, template).await?),
                (None, None) => {}
            }
        }
        Ok(written(&told))
    }

    /// Makes a user's copy of a file, unless another run has made it meanwhile. Where the copy cannot be kept, the file serves
    /// as it is.
    async fn seed(&self, tenant: &Tenant, of: &Collection, template: Named) -> Result<Named, StorageError> {
        let Named { name, text, .. } = &template;
        let change = Change { content: &text.content, version: Some(0), ..Change::default() };
        match self.put(tenant, of, name, (&change, &FILE_LIMITS)).await {
            Ok(copy) => Ok(copy),
            Err(DocumentError::Changed { .. }) => Ok(self.get(tenant, of, name).await?.unwrap_or(template)),
            Err(DocumentError::Storage(error)) => Err(error),
            Err(DocumentError::Store(error)) => Err(error.into()),
            Err(
                DocumentError::BadName
                | DocumentError::NotFound(_)
                | DocumentError::TooLong { .. }
                | DocumentError::TooMany { .. }
                | DocumentError::Full { .. }
                | DocumentError::Busy,
            ) => Ok(template),
        }
    }
}

fn written(files: &[Named]) -> Option<String> {
    let mut text = String::new();
    for Named { name, text: file, .. } in files.iter().filter(|file| !file.text.content.trim().is_empty()) {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n\n# {name}\n\n{}", file.content.trim());
    }
    (!text.is_empty()).then(|| text.trim_start().to_owned())
}
