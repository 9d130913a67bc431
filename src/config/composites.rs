//! Whether agents are made of others that there are, and none of itself.

use std::collections::BTreeMap;

use super::agent::{AgentConfig, DEFAULT_AGENT};
use super::mistake::suggestion;
use super::reader::Section;

/// Refuses agents of the file that are made of others which the file does not have, or, by way of these, of themselves.
pub(super) fn check(root: &Section<'_>, agents: &BTreeMap<String, AgentConfig>) {
    let names: Vec<&str> = agents.keys().map(String::as_str).collect();
    for (name, agent) in agents {
        let Some(composite) = &agent.rules.composite else { continue };
        let path = format!("agents.{name}");
        if name == DEFAULT_AGENT {
            root.refuse_outside(&path, "`default` cannot be made of others: all agents inherit from it");
        }
        if let Some(unknown) = composite.agents().find(|of| !agents.contains_key(*of)) {
            root.refuse_outside(&path, format!("there is no agent `{unknown}`; {}", suggestion(unknown, &names)));
        } else if let Some(way) = way_back(agents, name, name, &mut vec![name]) {
            root.refuse_outside(&path, format!("is made of itself, by way of `{way}`"));
        }
    }
}

/// The agent among those that `of` is made of by which it is made of `name`, if it is. Those in `seen` are not looked at again.
fn way_back<'a>(
    agents: &'a BTreeMap<String, AgentConfig>,
    name: &str,
    of: &str,
    seen: &mut Vec<&'a str>,
) -> Option<&'a str> {
    let composite = agents.get(of)?.rules.composite.as_ref()?;
    for agent in composite.agents() {
        if seen.contains(&agent) {
            continue;
        }
        seen.push(agent);
        let inner = agents.get(agent).and_then(|agent| agent.rules.composite.as_ref());
        let closes = inner.is_some_and(|inner| inner.agents().any(|inner| inner == name));
        if closes || way_back(agents, name, agent, seen).is_some() {
            return Some(agent);
        }
    }
    None
}
