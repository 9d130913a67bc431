//! Which names of the configuration are counted by themselves.

use std::collections::BTreeSet;

use crate::config::{Settings, Upstream};
use crate::telemetry::metrics::Names;
use crate::tools::LiveTools;
use crate::types::Tenant;

/// The names of these settings, and of the tools that there are.
pub(super) fn names(settings: &Settings, tools: &LiveTools) -> Names {
    let fixed: Vec<_> = tools.current().iter().cloned().collect();
    let of_sources: Vec<_> =
        tools.sources().iter().filter_map(|source| source.tools()).flat_map(|tools| tools.to_vec()).collect();
    let tenants = settings.keys.iter().map(|key| key.tenant.clone()).chain([Tenant::default_tenant()]);
    Names {
        agents: settings.agents.keys().cloned().collect(),
        models: settings.upstreams.iter().flat_map(|upstream| models(settings, upstream)).collect(),
        tools: fixed.iter().chain(&of_sources).map(|tool| tool.spec().name.clone()).collect(),
        tenants: tenants.map(|tenant| tenant.as_str().to_owned()).collect(),
    }
}

/// The models that an upstream lists; if it lists none, those that are named elsewhere and may be its own.
fn models(settings: &Settings, upstream: &Upstream) -> BTreeSet<String> {
    let name = &upstream.name;
    let of_upstream = |model: &str| format!("{name}/{model}");
    let Some(http) = upstream.kind.http() else { return [of_upstream("demo")].into() };
    if let Some(listed) = &http.models {
        return listed.iter().map(|model| of_upstream(model)).collect();
    }
    let of_agents = settings.agents.values().filter_map(|agent| agent.model.as_ref());
    let named = of_agents.chain(settings.models.declared.keys());
    let prefix = of_upstream("");
    named.map(|model| of_upstream(model.strip_prefix(&prefix).unwrap_or(model))).collect()
}
