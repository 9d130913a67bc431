//! Which models a run may call in place of the one that its request named.

use super::{Called, Catalog};
use crate::config::AgentConfig;

impl Catalog {
    /// The models that an agent calls in place of this one, which the agent or a request called `name`. One that cannot be
    /// found is left out: no run fails for it.
    pub(super) async fn fallbacks(&self, agent: &AgentConfig, called: &Called, name: &str) -> Vec<Called> {
        let mut found: Vec<Called> = Vec::new();
        for name in self.fallback_names(agent, called, name) {
            // Boxed, as few runs have fallbacks.
            match Box::pin(self.called(name)).await {
                Ok(fallback) => {
                    let is_known = std::iter::once(called).chain(&found).any(|known| known.is_same(&fallback));
                    found.extend((!is_known).then_some(fallback));
                }
                Err(error) => tracing::warn!(fallback = name, %error, "a fallback cannot be asked"),
            }
        }
        found
    }

    /// An agent's own model has the agent's fallbacks, and else those of the model. A model that a request names has its
    /// own, and else those of the default agent.
    fn fallback_names<'c>(&'c self, agent: &'c AgentConfig, called: &Called, name: &str) -> &'c [String] {
        let of_agent = agent.fallbacks.as_deref();
        if let Some(names) = of_agent.filter(|_| agent.model.is_some()) {
            return names;
        }
        if self.models.declared.values().all(|model| model.fallbacks.is_empty()) {
            return of_agent.unwrap_or_default();
        }
        let full_name = format!("{}/{}", called.upstream, called.model_name);
        let of_model =
            [full_name.as_str(), name, &called.model_name].into_iter().find_map(|name| self.models.declared.get(name));
        let of_model = of_model.map(|model| model.fallbacks.as_slice()).filter(|names| !names.is_empty());
        of_model.or(of_agent).unwrap_or_default()
    }
}

impl Called {
    fn is_same(&self, other: &Self) -> bool {
        self.upstream == other.upstream && self.model_name == other.model_name
    }
}
