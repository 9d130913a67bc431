//! Which layers agents have of others.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::agent::{AgentConfig, DEFAULT_AGENT};
use super::mistake::suggestion;
use super::reader::Section;
use crate::types::prompt::PromptLayer;

/// Gives each agent the layers of its parents. Reports parents that are not there, and circles.
pub(super) fn inherit_layers(root: &Section<'_>, agents: &mut BTreeMap<String, AgentConfig>) {
    let chains: Vec<_> = agents.keys().map(|name| (name.clone(), chain(root, agents, name))).collect();
    let all: Vec<Vec<PromptLayer>> = chains
        .iter()
        .map(|(_, chain)| chain.iter().rev().flat_map(|name| agents[name].prompt.layers.clone()).collect())
        .collect();
    for ((name, _), layers) in chains.into_iter().zip(all) {
        if let Some(agent) = agents.get_mut(&name).filter(|agent| agent.prompt.layers != layers) {
            Arc::make_mut(&mut agent.prompt).layers = layers;
        }
    }
}

/// Gives an agent that is read after these the layers of its parent, which has those of its own parents.
pub(super) fn inherit_layers_of(
    section: &Section<'_>,
    agents: &BTreeMap<String, AgentConfig>,
    agent: &mut AgentConfig,
) {
    let parent = agent.prompt.parent.as_deref().unwrap_or(DEFAULT_AGENT);
    let Some(parent) = agents.get(parent) else {
        let known: Vec<&str> = agents.keys().map(String::as_str).collect();
        let what = format!("there is no agent `{parent}`; {}", suggestion(parent, &known));
        return section.refuse_outside("prompt.parent", what);
    };
    let reveals = |name: &str| agents.get(name).is_some_and(|agent| agent.prompt.reveal);
    if agent.prompt.reveal && !(parent.prompt.reveal && reveals(DEFAULT_AGENT)) {
        let what = "may be true only where the agents of the file that this one inherits from have it";
        section.refuse_outside("prompt.reveal", what.to_owned());
    }
    if !parent.prompt.layers.is_empty() {
        let layers = parent.prompt.layers.iter().chain(&agent.prompt.layers).cloned().collect();
        Arc::make_mut(&mut agent.prompt).layers = layers;
    }
}

/// An agent and its parents, nearest first.
fn chain(root: &Section<'_>, agents: &BTreeMap<String, AgentConfig>, agent: &str) -> Vec<String> {
    let mut chain = vec![agent.to_owned()];
    loop {
        let last = chain.last().map_or(agent, String::as_str);
        let inherited = (last != DEFAULT_AGENT).then_some(DEFAULT_AGENT);
        let Some(parent) = agents[last].prompt.parent.as_deref().or(inherited) else { return chain };
        let path = format!("agents.{last}.prompt.parent");
        if !agents.contains_key(parent) {
            let known: Vec<&str> = agents.keys().map(String::as_str).collect();
            if last == agent {
                root.refuse_outside(&path, format!("there is no agent `{parent}`; {}", suggestion(parent, &known)));
            }
            return chain;
        }
        if chain.iter().any(|name| name == parent) {
            // Each agent of the circle finds it, and one of them tells it.
            if chain.iter().min().is_some_and(|first| first == agent) {
                root.refuse_outside(&path, format!("is a circle: {} → {parent}", chain.join(" → ")));
            }
            return chain;
        }
        chain.push(parent.to_owned());
    }
}
