//! What a run's model is told of its skills, and the tools by which it comes by the others.

use crate::agent::admission::Admission;
use crate::agent::admission::select::Selected;
use crate::agent::documents::skill_tools::needed;
use crate::agent::documents::skills::told;
use crate::agent::error::StartError;
use crate::agent::generation::Generation;
use crate::agent::request::NewRun;
use crate::types::offer::ToolChoice;
use crate::types::pattern::matches;
use crate::types::policy::Policy;

/// What a run's model is told of its skills.
#[derive(Debug)]
pub(super) struct Skilled {
    /// The text; `None` if there are none, or none that it could read.
    pub(super) text: Option<String>,
    /// What the caller should know.
    pub(super) warning: Option<String>,
}

impl Admission {
    /// What the model of a run is told that has the skills of these patterns. Where it is to ask for skills, it is offered the
    /// tools for that. If the policy denies these, or the request leaves them out, it is not told of what it could not read. `None`
    /// if there is nothing to tell anyone.
    pub(super) async fn skills(
        &self,
        (new, patterns): (&NewRun, &[String]),
        (generation, policy): (&Generation, Option<&Policy>),
        selected: &mut Selected,
    ) -> Result<Option<Box<Skilled>>, StartError> {
        if patterns.is_empty() {
            return Ok(None);
        }
        // Boxed, as most agents have no skills.
        Box::pin(self.told_skills((new, patterns), (generation, policy), selected)).await
    }

    async fn told_skills(
        &self,
        (new, patterns): (&NewRun, &[String]),
        (generation, policy): (&Generation, Option<&Policy>),
        selected: &mut Selected,
    ) -> Result<Option<Box<Skilled>>, StartError> {
        let config = &generation.skills;
        let skills = self.launcher.documents.skills(&new.tenant, &config.skills, patterns).await?;
        let Some(told) = told(&skills, config.inline_max, config.inline_tokens) else { return Ok(None) };
        let tools: Vec<_> = needed(&generation.skill_tools, told.access).collect();
        let is_taken = |name: &str| selected.has(name) || new.client_tools.iter().any(|tool| tool.name == name);
        if let Some(taken) = tools.iter().map(|tool| &tool.definition().name).find(|name| is_taken(name)) {
            let warning = format!(
                "the model is told of no skills: another tool has the name {taken:?} of the one that reads them"
            );
            return Ok(Some(Box::new(Skilled { text: None, warning: Some(warning) })));
        }
        let is_left_out = |name: &str| {
            new.options.tool_choice == ToolChoice::None
                || new.tools.as_ref().is_some_and(|wanted| !wanted.iter().any(|pattern| matches(pattern, name)))
        };
        let is_denied = tools.iter().any(|tool| {
            let name = &tool.definition().name;
            is_left_out(name) || policy.is_some_and(|policy| policy.always_denies(name, tool.effect()))
        });
        if is_denied {
            return Ok(None);
        }
        selected.add_own(tools.into_iter().map(|tool| tool.definition().clone()));
        Ok(Some(Box::new(Skilled { text: Some(told.text), warning: None })))
    }
}
