//! `chain`, `parallel` and `consolidate`: agents that are made of others.

use std::sync::Arc;

use super::delegation::AgentName;
use super::reader::Section;
use crate::types::composite::Composite;
use crate::types::run::OnLimit;

/// Most agents that one is made of.
const MOST_AGENTS: usize = 16;
/// What is said of the model of an agent, and of what it is told and may call: a composite agent has none.
const OF_MODELS: &[&str] = &[
    "model",
    "fallbacks",
    "hedge_after",
    "system",
    "tools",
    "max_offered_tools",
    "always_offered",
    "delegates",
    "planning",
    "reflection",
    "loop_guard",
    "context",
    "memory",
    "skills",
    "prompt",
    "layers",
    "guardrails",
];

/// Reads of which agents one is made; `None` if it has a model of its own.
pub(super) fn read(name: &str, section: &mut Section<'_>) -> Option<Arc<Composite>> {
    let chain: Option<Vec<AgentName>> = section.optional(
        "chain",
        "The agents that this one is made of: one works after the other, each told what the one before it answered \
         ([composite agents](delegation.md#composite-agents)). It has no model of its own then.",
    );
    let parallel: Option<Vec<AgentName>> = section.optional(
        "parallel",
        "The agents that this one is made of: all work at the same time. It has no model of its own then.",
    );
    let consolidate: Option<AgentName> = section.optional(
        "consolidate",
        "The agent that makes one answer of those of `parallel`. Without it, the answer has all of them, each under the name of its \
         agent.",
    );
    if chain.is_some() && parallel.is_some() {
        section
            .refuse("parallel", "an agent has `chain` or `parallel`, not both: make one of them an agent of its own");
    }
    if parallel.is_none() && consolidate.is_some() {
        section.refuse("consolidate", "there is nothing to make one answer of: name agents in `parallel` too");
    }
    let names = |agents: Vec<AgentName>| agents.into_iter().map(|AgentName(name)| name).collect();
    let (key, composite) = match (chain, parallel) {
        (Some(agents), _) => ("chain", Composite::Chain(names(agents))),
        (None, Some(agents)) => {
            let consolidate = consolidate.map(|AgentName(name)| name);
            ("parallel", Composite::Parallel { agents: names(agents), consolidate })
        }
        (None, None) => return None,
    };
    check(name, section, (key, &composite));
    Some(Arc::new(composite))
}

fn check(name: &str, section: &Section<'_>, (key, composite): (&str, &Composite)) {
    let count = match composite {
        Composite::Chain(agents) | Composite::Parallel { agents, .. } => agents.len(),
    };
    if count == 0 || count > MOST_AGENTS {
        section.refuse(key, format!("names {count} agents; it may be 1 to {MOST_AGENTS}"));
    }
    if composite.agents().any(|agent| agent == name) {
        section.refuse(key, format!("`{name}` cannot be made of itself"));
    }
    for of_models in OF_MODELS.iter().filter(|of_models| section.is_written(of_models)) {
        let what = format!(
            "an agent with `{key}` has no model of its own, so this does nothing: leave it out, and say it of the agents that \
             `{key}` names"
        );
        section.refuse(of_models, what);
    }
}

/// Refuses a closing answer of an agent that has no model which could give it.
pub(super) fn refuse_synthesis(section: &Section<'_>, composite: Option<&Composite>, on_limit: OnLimit) {
    if composite.is_some() && on_limit == OnLimit::Synthesize {
        section.refuse("on_limit", "an agent that is made of others has no model that could give a closing answer");
    }
}
