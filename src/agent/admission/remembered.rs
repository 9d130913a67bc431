//! What a run's prompt has of documents: files of its agent, skills, and what is remembered.

use crate::agent::admission::Admission;
use crate::agent::admission::told::Given;
use crate::agent::documents::recall::memory_of;
use crate::agent::error::StartError;
use crate::types::RunSpec;
use crate::types::memory::AgentFiles;
use crate::types::prompt::{Lasts, PRIORITY_CONTEXT, PRIORITY_LAYER, Section};

impl Admission {
    /// Makes the copies of its agent's files that the user of a new run lacks.
    pub(super) async fn seed_files(&self, spec: &RunSpec) -> Result<(), StartError> {
        let (files, user) = (&spec.rules.files, spec.options.sampling.user.as_deref());
        let Some(user) = user.filter(|user| !files.of_user.is_empty() && !user.is_empty()) else { return Ok(()) };
        Ok(Box::pin(self.launcher.documents.seed_files(&spec.tenant, (&spec.agent, user), files)).await?)
    }

    /// The sections of documents of a run's prompt. Nothing is read for an agent that has none.
    pub(super) async fn documents(&self, given: Given<'_>) -> Result<Vec<Section>, StartError> {
        if !given.has_documents() {
            return Ok(Vec::new());
        }
        let Given { new, resolved, skills, .. } = given;
        let (rules, documents) = (&resolved.settings.rules, &self.launcher.documents);
        let (agent, user) = (&*resolved.agent_name, new.options.sampling.user.as_deref());
        let mut sections = Vec::new();
        if rules.files != AgentFiles::default() {
            let told = documents.told_files(&new.tenant, (agent, user), &rules.files).await?;
            sections.extend(told.map(|text| Section::of_run("files", PRIORITY_LAYER, Lasts::Stable, text)));
        }
        let skills = skills.map(str::to_owned);
        sections.extend(skills.map(|text| Section::of_run("skills", PRIORITY_CONTEXT, Lasts::Stable, text)));
        if given.recalls() {
            let of = memory_of(rules.memory.scope, agent, user);
            let told = documents.recalled(&new.tenant, &of, &rules.memory, &new.messages).await?;
            sections.extend(told.map(|text| Section::of_run("memory", PRIORITY_CONTEXT, Lasts::Run, text)));
        }
        Ok(sections)
    }
}
