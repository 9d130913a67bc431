//! What the operator should know of a configuration that is valid.

use super::prices;
use crate::config::{DEFAULT_AGENT, Settings};

/// All of it, a sentence each.
#[must_use]
pub fn remarks(settings: &Settings) -> Vec<String> {
    [prices::assumptions(settings), prices::refusals(settings), unsure_agents(settings)].concat()
}

/// The agents without a model of their own, where the configuration does not tell which one they run: the upstreams have to
/// list one model alone.
#[must_use]
pub fn unsure_agents(settings: &Settings) -> Vec<String> {
    if settings.upstreams.iter().all(|upstream| upstream.declared_models().is_some()) {
        return Vec::new();
    }
    let agents = settings.agents.values().filter(|agent| agent.model.is_none() && agent.name != DEFAULT_AGENT);
    let remark = |name: &String| {
        format!(
            "agents.{name}: it has no model, so its requests are refused unless the upstreams list one model alone; name \
             its model with `model`"
        )
    };
    agents.map(|agent| remark(&agent.name)).collect()
}

/// Writes all of it to the log.
pub(super) fn log(settings: &Settings) {
    for remark in remarks(settings) {
        tracing::warn!("{remark}");
    }
}
