//! Whether agents delegate to others that there are.

use std::collections::BTreeMap;

use super::agent::AgentConfig;
use super::mistake::suggestion;
use super::reader::Section;

/// Refuses agents of the file that delegate to others which the file does not have.
pub(super) fn check(root: &Section<'_>, agents: &BTreeMap<String, AgentConfig>) {
    let names: Vec<&str> = agents.keys().map(String::as_str).collect();
    for (name, agent) in agents {
        if let Some(unknown) = agent.rules.delegation.to.iter().find(|to| !agents.contains_key(*to)) {
            let what = format!("there is no agent `{unknown}`; {}", suggestion(unknown, &names));
            root.refuse_outside(&format!("agents.{name}.delegates"), what);
        }
    }
}
