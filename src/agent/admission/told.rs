//! What a run's model is told beside the conversation: the one place where the sections of its prompt are gathered. What they say is
//! pinned with the run.

use std::sync::Arc;

use crate::agent::admission::Admission;
use crate::agent::admission::named::described;
use crate::agent::admission::select::Selected;
use crate::agent::catalog::Resolved;
use crate::agent::context::prompt::compose::{Composed, compose};
use crate::agent::documents::recall::memory_of;
use crate::agent::error::StartError;
use crate::agent::generation::Generation;
use crate::agent::request::NewRun;
use crate::types::prompt::{Lasts, PRIORITY_CONTEXT, PRIORITY_SYSTEM, Prompt, Section, SectionOwner, TAG_SYSTEM};
use crate::types::session::Session;
use crate::types::{Message, Role};

/// What the sections of a run's prompt are made of.
pub(super) struct Given<'a> {
    /// The request.
    pub(super) new: &'a NewRun,
    /// Its session, if it has one that exists.
    pub(super) session: Option<&'a Session>,
    /// The agent and the model that it means.
    pub(super) resolved: &'a Resolved,
    /// The tools that it is offered.
    pub(super) selected: &'a Selected,
    /// The configuration that it is served by.
    pub(super) generation: &'a Generation,
    /// What it is told of its skills.
    pub(super) skills: Option<String>,
}

/// What a run's model is told beside the conversation.
#[derive(Default)]
pub(super) struct Told {
    /// Its instructions, ahead of the history.
    pub(super) system: Vec<Message>,
    /// What it is told besides, and of which sections all of it was made; `None` if no more than its agent's `system` and the
    /// instructions of its request.
    pub(super) prompt: Option<Arc<Prompt>>,
    /// What the caller should know.
    pub(super) warnings: Vec<String>,
}

/// Sections of a prompt, and what the caller should know of them.
#[derive(Default)]
pub(super) struct Gathered {
    pub(super) sections: Vec<Section>,
    pub(super) warnings: Vec<String>,
}

impl Admission {
    /// What a run's model is told beside the conversation.
    pub(super) async fn told(&self, given: Given<'_>) -> Result<Told, StartError> {
        let Gathered { mut sections, warnings } = self.gather(&given).await?;
        let system = given.resolved.settings.system.as_deref();
        let of_request = described(given.new).chain(given.new.system.iter().cloned());
        if sections.is_empty() {
            let of_agent = system.map(|text| Message::text(Role::System, text));
            return Ok(Told { system: of_agent.into_iter().chain(of_request).collect(), prompt: None, warnings });
        }
        sections.splice(0..0, system.map(of_agent));
        let Composed { system, prompt } = compose(sections, of_request.collect());
        Ok(Told { system, prompt: Some(Arc::new(prompt)), warnings })
    }

    /// All sections beside `system`, in the order that counts between those of the same priority. Nothing is read for a run whose
    /// agent, session and request ask for none.
    async fn gather(&self, given: &Given<'_>) -> Result<Gathered, StartError> {
        let mut gathered = Gathered::default();
        if let Some(skills) = &given.skills {
            gathered.sections.push(Section::of_run("skills", PRIORITY_CONTEXT, Lasts::Stable, skills.clone()));
        }
        if let Some(recalled) = self.recall(given).await? {
            gathered.sections.push(Section::of_run("memory", PRIORITY_CONTEXT, Lasts::Run, recalled));
        }
        Ok(gathered)
    }

    /// What a run's model is shown of its memory.
    async fn recall(&self, given: &Given<'_>) -> Result<Option<String>, StartError> {
        let Given { new, resolved, generation, .. } = given;
        let rules = &resolved.settings.rules.memory;
        if !rules.recalls || generation.memory.is_none() {
            return Ok(None);
        }
        let of = memory_of(rules.scope, &resolved.agent_name, new.options.sampling.user.as_deref());
        // Boxed, as most agents recall nothing.
        Ok(Box::pin(self.launcher.documents.recalled(&new.tenant, &of, rules, &new.messages)).await?)
    }
}

/// What an agent's `system` says.
fn of_agent(text: &str) -> Section {
    Section {
        name: "system".into(),
        priority: PRIORITY_SYSTEM,
        tags: vec![TAG_SYSTEM.to_owned()],
        owner: SectionOwner::Agent,
        lasts: Lasts::Stable,
        text: text.to_owned(),
    }
}
