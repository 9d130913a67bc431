//! What a run's prompt has of documents: files of its agent, skills, and what is remembered.

use std::sync::Arc;

use crate::agent::admission::told::Given;
use crate::agent::admission::{Admission, Started};
use crate::agent::documents::recall::memory_of;
use crate::agent::error::StartError;
use crate::types::RunSpec;
use crate::types::memory::AgentFiles;
use crate::types::prompt::{Lasts, OF_DOCUMENTS, PRIORITY_CONTEXT, PRIORITY_LAYER, Section};

impl Admission {
    /// A run that was started, once its user has the copies of its agent's files. The run is stored and was told the files
    /// themselves, so if the store does not answer, the user's next run makes the copies.
    pub(super) async fn seeded(&self, started: Started, spec: Arc<RunSpec>) -> Started {
        let (files, user) = (&spec.rules.files, spec.options.sampling.user.as_deref());
        let Some(user) = user.filter(|user| !user.is_empty()) else { return started };
        let made = self.launcher.documents.seed_files(&spec.tenant, (&spec.agent, user), files).await;
        if let Err(error) = made {
            tracing::warn!(run = %spec.id, %error, "the copies of an agent's files could not be made for a user yet");
        }
        started
    }

    /// The sections of documents of a run's prompt. Nothing is read for an agent that has none.
    pub(super) async fn documents(&self, given: Given<'_>) -> Result<Vec<Section>, StartError> {
        if !given.has_documents() {
            return Ok(Vec::new());
        }
        let Given { new, resolved, skills, .. } = given;
        let (rules, documents) = (&resolved.settings.rules, &self.launcher.documents);
        let (agent, user) = (&*resolved.agent_name, new.options.sampling.user.as_deref());
        let [of_files, of_skills, of_memory] = OF_DOCUMENTS;
        let mut sections = Vec::new();
        if rules.files != AgentFiles::default() {
            let told = documents.told_files(&new.tenant, (agent, user), &rules.files).await?;
            sections.extend(told.map(|text| Section::of_run(of_files, PRIORITY_LAYER, Lasts::Stable, text)));
        }
        let skills = skills.map(str::to_owned);
        sections.extend(skills.map(|text| Section::of_run(of_skills, PRIORITY_CONTEXT, Lasts::Stable, text)));
        if given.recalls() {
            let of = memory_of(rules.memory.scope, agent, user);
            let told = documents.recalled(&new.tenant, &of, &rules.memory, &new.messages).await?;
            sections.extend(told.map(|text| Section::of_run(of_memory, PRIORITY_CONTEXT, Lasts::Run, text)));
        }
        Ok(sections)
    }
}
