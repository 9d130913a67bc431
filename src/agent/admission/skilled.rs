//! What a run's model is told of its skills, and the tools by which it comes by the others.

use crate::agent::admission::Admission;
use crate::agent::admission::select::Selected;
use crate::agent::documents::skill_tools::needed;
use crate::agent::documents::skills::told;
use crate::agent::error::StartError;
use crate::agent::generation::Generation;
use crate::types::Tenant;
use crate::types::policy::Policy;

impl Admission {
    /// What the model of a run is told that has the skills of these patterns; `None` if there are none. Where it is to ask for
    /// skills, it is offered the tools for that. If the policy denies these, it is not told of what it could not read.
    pub(super) async fn skills(
        &self,
        (tenant, patterns): (&Tenant, &[String]),
        (generation, policy): (&Generation, Option<&Policy>),
        selected: &mut Selected,
    ) -> Result<Option<String>, StartError> {
        if patterns.is_empty() {
            return Ok(None);
        }
        // Boxed, as most agents have no skills.
        Box::pin(self.told_skills((tenant, patterns), (generation, policy), selected)).await
    }

    async fn told_skills(
        &self,
        (tenant, patterns): (&Tenant, &[String]),
        (generation, policy): (&Generation, Option<&Policy>),
        selected: &mut Selected,
    ) -> Result<Option<String>, StartError> {
        let config = &generation.skills;
        let skills = self.launcher.documents.skills(tenant, &config.skills, patterns).await?;
        let Some(told) = told(&skills, config.inline_max, config.inline_tokens) else { return Ok(None) };
        let tools: Vec<_> = needed(&generation.skill_tools, told.access).collect();
        let is_denied = tools.iter().any(|tool| {
            let name = &tool.definition().name;
            policy.is_some_and(|policy| policy.always_denies(name, tool.effect())) || selected.has(name)
        });
        if is_denied {
            return Ok(None);
        }
        selected.add_own(tools.into_iter().map(|tool| tool.definition().clone()));
        Ok(Some(told.text))
    }
}
