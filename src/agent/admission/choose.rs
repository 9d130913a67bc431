//! What a run may call, what its calls are judged by, and what it is told.

use std::sync::Arc;

use crate::agent::admission::select::Selected;
use crate::agent::admission::told::{Given, Told};
use crate::agent::admission::{Admission, composite, models, named, policy};
use crate::agent::catalog::Resolved;
use crate::agent::error::StartError;
use crate::agent::generation::Generation;
use crate::agent::naming::{AskedServers, Listed};
use crate::agent::request::NewRun;
use crate::types::History;
use crate::types::hook::PinnedHook;
use crate::types::policy::Policy;
use crate::types::rules::LoopRules;
use crate::types::session::Session;

/// What is chosen for a run.
pub(super) struct Chosen<'a> {
    pub(super) policy: Option<Arc<Policy>>,
    pub(super) hooks: Vec<PinnedHook>,
    pub(super) selected: Selected,
    /// The servers that its request names, as they are listed.
    pub(super) listed: Option<(&'a Arc<AskedServers>, &'a Listed)>,
    pub(super) told: Told,
    /// What the caller should know.
    pub(super) warnings: Vec<String>,
}

impl Admission {
    /// Chooses for a run of this agent, whose fallbacks are left out that cannot take its messages.
    pub(super) async fn choose<'a>(
        &self,
        new: &'a NewRun,
        generation: &Generation,
        (session, history): (Option<&Session>, &History),
        resolved: &mut Resolved,
    ) -> Result<Chosen<'a>, StartError> {
        composite::refuse_unfit(new, resolved)?;
        let hooks = generation.hooks.pinned(&resolved.agent_name, new.options.sampling.user.as_deref());
        let policy = policy::of_run(new, &resolved.settings, generation, &hooks, None)?;
        let selected = Selected::new(generation, &resolved.settings, new, policy.as_ref())?;
        let given = Given::new(new, session, (resolved, &selected, generation, None));
        let rules = &resolved.settings.rules;
        let waits = new.servers.is_some() || !rules.skills.is_empty() || has_targets(rules) || !given.is_plain();
        let (told, warnings) = (given.plain(), Vec::new());
        let begun = Chosen { policy, hooks, selected, listed: None, told, warnings };
        // Boxed, as most runs wait for nothing here.
        let chosen =
            if waits { Box::pin(self.ask_for(begun, new, generation, (session, resolved))).await? } else { begun };
        check(chosen, new, (generation, history), resolved)
    }

    /// What lies elsewhere: tools of servers that the request names, skills, and sections of the prompt.
    async fn ask_for<'a>(
        &self,
        mut chosen: Chosen<'a>,
        new: &'a NewRun,
        generation: &Generation,
        (session, resolved): (Option<&Session>, &Resolved),
    ) -> Result<Chosen<'a>, StartError> {
        let Chosen { policy, hooks, selected, listed: of_servers, told, warnings } = &mut chosen;
        if resolved.settings.rules.composite.is_some() {
            // Its agents have their own prompts.
            self.offer_parts((new, resolved), (generation, policy.as_deref()), selected).await?;
            return Ok(chosen);
        }
        if let Some(asked) = &new.servers {
            let listed = named::listed(asked, new, generation).await?;
            let layer = named::layer(listed);
            *policy = policy::of_run(new, &resolved.settings, generation, hooks, layer.as_ref())?;
            selected.join(listed, &resolved.settings, policy.as_deref());
            *of_servers = Some((asked, listed));
        }
        let rules = &resolved.settings.rules;
        let judged = (generation, policy.as_deref());
        warnings.extend(self.offer_delegates((new, &rules.delegation), judged, selected).await?);
        warnings.extend(self.offer_handoffs((new, rules, &resolved.agent_name), judged, selected).await?);
        let patterns = &*rules.skills;
        let skills = self.skills((new, patterns), (generation, policy.as_deref()), selected).await?;
        let of_skills = skills.as_ref().and_then(|skills| skills.text.as_deref());
        *told = self.told(Given::new(new, session, (resolved, selected, generation, of_skills))).await?;
        warnings.extend(skills.and_then(|skills| skills.warning));
        Ok(chosen)
    }
}

/// Whether an agent with these rules has others do something.
fn has_targets(rules: &LoopRules) -> bool {
    !rules.delegation.to.is_empty() || !rules.handoff.to.is_empty() || rules.composite.is_some()
}

fn check<'a>(
    mut chosen: Chosen<'a>,
    new: &NewRun,
    (generation, history): (&Generation, &History),
    resolved: &mut Resolved,
) -> Result<Chosen<'a>, StartError> {
    chosen.selected.check_names(new)?;
    // A model that summarises is sent texts alone, whatever the session has.
    let (texts, all) = (History::default(), history);
    let sent = if new.compacts() { &texts } else { all };
    // What those of its agents cannot do is said where they are asked.
    if resolved.settings.rules.composite.is_none() {
        chosen.warnings.extend(models::leave_able(resolved, new, sent, generation)?);
    }
    chosen.warnings.extend(chosen.selected.unheard());
    Ok(chosen)
}
