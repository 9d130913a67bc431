//! What a session's agent is now, by which a copy is compared with the place where it is restored.

use std::collections::BTreeSet;

use crate::agent::context::selection::Patterns;
use crate::agent::generation::Generation;

/// The agent that a session names, as a configuration has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// The upstream and its model, with a slash between them.
    pub model: String,
    /// The names of the server's tools that it has.
    pub tools: BTreeSet<String>,
}

impl Environment {
    /// The agent of this name; `None` if there is none, or if it has no model.
    pub async fn of(generation: &Generation, agent: &str) -> Option<Self> {
        let resolved = generation.catalog.resolve(agent, |_| true).await.ok()?;
        let selection = generation.select(&Patterns::of(&resolved.settings, None, None));
        let own = selection.own.iter().map(|tool| tool.name.clone());
        let tools = selection.servers.names().map(str::to_owned).chain(own).collect();
        let model = format!("{}/{}", resolved.called.upstream, resolved.called.model_name);
        Some(Self { model, tools })
    }
}
