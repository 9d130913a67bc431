//! Checks that there is whom guardrails ask: models of upstreams, and hooks.

use std::collections::BTreeMap;

use super::agent::AgentConfig;
use super::fallbacks::find_upstream;
use super::hook::HookConfig;
use super::mistake::suggestion;
use super::reader::Section;
use super::upstream::Upstream;
use crate::types::guard::GuardrailRule;

/// Refuses guardrails that ask models or hooks which are not there: every text would fail them.
pub(super) fn check(
    root: &Section<'_>,
    agents: &BTreeMap<String, AgentConfig>,
    upstreams: &[Upstream],
    hooks: &[HookConfig],
) {
    let mut wrong = agents.iter().filter_map(|(name, agent)| Some((name, mistake(agent, upstreams, hooks)?)));
    // Other agents inherit it from the default one, as a rule.
    if let Some((name, what)) = wrong.next() {
        root.refuse_outside(&format!("agents.{name}.guardrails"), what);
    }
}

/// Which of an agent's guardrails asks whom there is not, if one does.
pub(super) fn mistake(agent: &AgentConfig, upstreams: &[Upstream], hooks: &[HookConfig]) -> Option<String> {
    agent.guards.guardrails.iter().find_map(|rail| {
        let found = match &rail.rule {
            GuardrailRule::Webhook { hook, .. } => find_hook(hook, hooks),
            GuardrailRule::Model(judge) => find_upstream(&judge.model, upstreams),
            GuardrailRule::Regex { .. } | GuardrailRule::MaxLength { .. } => Ok(()),
        };
        found.err().map(|what| format!("the guardrail `{}`: {what}", rail.name))
    })
}

fn find_hook(name: &str, hooks: &[HookConfig]) -> Result<(), String> {
    match hooks.iter().find(|hook| hook.name == name) {
        Some(hook) if hook.is_of_guardrails() => Ok(()),
        Some(_) => Err(format!("the hook `{name}` stands elsewhere; a guardrail asks one with on = \"guardrail\"")),
        None => {
            let known: Vec<&str> =
                hooks.iter().filter(|hook| hook.is_of_guardrails()).map(|hook| hook.name.as_str()).collect();
            if known.is_empty() {
                return Err(format!("there is no hook `{name}`; declare [hooks.{name}] with on = \"guardrail\""));
            }
            Err(format!("there is no hook `{name}`; {}", suggestion(name, &known)))
        }
    }
}
