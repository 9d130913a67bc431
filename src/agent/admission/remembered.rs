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

    /// Adds these sections, if the agent has any.
    pub(super) async fn add_documents(&self, given: Given<'_>, sections: &mut Vec<Section>) -> Result<(), StartError> {
        if let Some(skills) = given.skills {
            sections.push(Section::of_run("skills", PRIORITY_CONTEXT, Lasts::Stable, skills.to_owned()));
        }
        let Given { new, resolved, generation, .. } = given;
        let (files, user) = (&resolved.settings.rules.files, new.options.sampling.user.as_deref());
        if *files != AgentFiles::default() {
            let told = self.launcher.documents.told_files(&new.tenant, (&resolved.agent_name, user), files);
            let told = Box::pin(told).await?;
            sections.extend(told.map(|text| Section::of_run("files", PRIORITY_LAYER, Lasts::Stable, text)));
        }
        let rules = &resolved.settings.rules.memory;
        if !rules.recalls || generation.memory.is_none() {
            return Ok(());
        }
        let of = memory_of(rules.scope, &resolved.agent_name, user);
        // Boxed, as most agents recall nothing.
        let recalled = Box::pin(self.launcher.documents.recalled(&new.tenant, &of, rules, &new.messages)).await?;
        sections.extend(recalled.map(|text| Section::of_run("memory", PRIORITY_CONTEXT, Lasts::Run, text)));
        Ok(())
    }
}
