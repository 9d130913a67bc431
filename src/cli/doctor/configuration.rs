//! The configuration by itself: that it is valid, that its prices are known, that its durations fit together. Pure.

use std::time::Duration;

use super::super::check_config::tools;
use super::super::text::count;
use super::finding::Finding;
use crate::config::{ConfigErrors, Settings, StoreUrl};
use crate::server::prices;
use crate::server::remarks::unsure_agents;

const AREA: &str = "configuration";

/// Load balancers keep idle connections for so long, as a rule.
const COMMON_KEEP_ALIVE: Duration = Duration::from_secs(60);
/// A client that lost its connection comes back within so long.
const COME_BACK: Duration = Duration::from_secs(60);

/// The mistakes of a configuration that cannot be used.
pub(super) fn mistakes(ConfigErrors(mistakes): &ConfigErrors) -> Vec<Finding> {
    let advice = "Mend it, then run this command again: the other checks need a valid configuration.";
    mistakes.iter().map(|mistake| Finding::fail(AREA, mistake.to_string()).advice(advice)).collect()
}

/// What a valid configuration says.
pub(super) fn check(settings: &Settings) -> Vec<Finding> {
    let Settings { upstreams, agents, keys, upstream_origin, .. } = settings;
    let message = format!(
        "valid: {} ({upstream_origin}), {}, {}, {}",
        count(upstreams.len(), "upstream"),
        count(agents.len(), "agent"),
        tools(settings),
        count(keys.len(), "key")
    );
    let mut findings = vec![Finding::ok(AREA, message)];
    if settings.found_no_upstream() {
        let advice = "Set a variable such as OPENAI_API_KEY or ANTHROPIC_API_KEY, or declare an upstream under [upstreams.NAME].";
        findings.push(Finding::warn(AREA, "no upstream is named, so only the demo model answers").advice(advice));
    }
    if keys.is_empty() && !settings.server.listen.ip().to_canonical().is_loopback() {
        let message = format!("everyone who reaches {} may use this server: there are no keys", settings.server.listen);
        findings.push(Finding::warn(AREA, message).advice("Declare keys: `loopgate key new NAME` prints one."));
    }
    findings.extend(unsure_agents(settings).into_iter().map(|remark| Finding::warn(AREA, remark)));
    findings.extend(check_prices(settings));
    findings.extend(check_durations(settings));
    findings
}

fn check_prices(settings: &Settings) -> Vec<Finding> {
    let refused = prices::refusals(settings).into_iter().map(|remark| Finding::fail("prices", remark));
    let assumed = prices::assumptions(settings).into_iter().map(|remark| Finding::warn("prices", remark));
    let findings: Vec<_> = refused.chain(assumed).collect();
    let has_budget = settings.agents.values().any(|agent| agent.limits.cost_budget.is_some())
        || settings.keys.iter().any(|key| key.quota.cost_budget.is_some());
    if findings.is_empty() && has_budget {
        return vec![Finding::ok("prices", "known for the models of all agents under a cost budget")];
    }
    findings
}

/// Durations that are valid one by one and do not fit together.
fn check_durations(settings: &Settings) -> Vec<Finding> {
    let (server, store, mut odd) = (&settings.server, &settings.store, Vec::new());
    let mut note = |message: String, advice: &str| odd.push(Finding::warn("durations", message).advice(advice));
    for agent in settings.agents.values() {
        let (name, limits) = (&agent.name, &agent.limits);
        if limits.tool_timeout > limits.timeout {
            let message =
                format!("agents.{name}: a tool call may take longer ({:?}) than its run", limits.tool_timeout);
            note(message, "Choose a `limits.tool_timeout` that is shorter than `limits.timeout`.");
        }
        for upstream in &settings.upstreams {
            let Some(http) = upstream.kind.http() else { continue };
            if http.first_byte_timeout > limits.timeout {
                let message = format!(
                    "upstreams.{} may be silent for longer than a run of agents.{name} may take",
                    upstream.name
                );
                note(message, "Choose a `first_byte_timeout` that is shorter than the agent's `limits.timeout`.");
            }
        }
    }
    for tool in &settings.tools {
        let longest = settings.agents.values().map(|agent| agent.limits.timeout).max().unwrap_or_default();
        if tool.timeout.is_some_and(|timeout| timeout > longest) {
            let message = format!("tools.{}: a call may take longer than any run", tool.name);
            note(message, "Choose a `timeout` that is shorter than the `limits.timeout` of agents.");
        }
    }
    if server.keep_alive < COMMON_KEEP_ALIVE {
        let message = format!(
            "server.keep_alive is {:?}, less than most load balancers keep idle connections",
            server.keep_alive
        );
        note(message, "Choose more than the idle timeout of what stands before this server.");
    }
    if server.drain_delay.is_some_and(|delay| delay.is_zero()) && matches!(store.url, StoreUrl::Redis(_)) {
        let message =
            "server.drain_delay is 0s: load balancers send requests to a replica that is already draining".to_owned();
        note(message, "Choose as long as your load balancer takes to notice a failing /readyz.");
    }
    if store.run_ttl < COME_BACK {
        let message =
            format!("store.run_ttl is {:?}: a client that comes back after that finds its run gone", store.run_ttl);
        note(message, "Choose at least as long as clients may take to come back.");
    }
    if store.session_ttl < store.run_ttl {
        let message = "store.session_ttl is shorter than store.run_ttl: runs outlive their conversations".to_owned();
        note(message, "Choose a session_ttl that is at least as long as run_ttl.");
    }
    if odd.is_empty() { vec![Finding::ok("durations", "fit together")] } else { odd }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Options;

    fn found(config: &str) -> Vec<String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), config).unwrap();
        let options = Options { config: Some(file.path().into()), ..Options::default() };
        let settings = Settings::load(&options, &|_| None).unwrap();
        check_durations(&settings).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn durations_that_do_not_fit_together_are_named() {
        assert_eq!(found(""), ["fit together"]);
        for (config, words) in [
            ("[agents.a.limits]\ntimeout = \"10s\"\ntool_timeout = \"20s\"\n", "a tool call may take longer (20s)"),
            (
                "[upstreams.u]\nbase_url = \"http://h\"\n[agents.a.limits]\ntimeout = \"10s\"\ntool_timeout = \"5s\"\n",
                "upstreams.u may be silent",
            ),
            (
                "[tools.t]\ndescription = \"d\"\nurl = \"http://h\"\ntimeout = \"30d\"\n",
                "tools.t: a call may take longer",
            ),
            ("[server]\nkeep_alive = \"5s\"\n", "server.keep_alive is 5s"),
            ("[server]\ndrain_delay = \"0s\"\n[store]\nurl = \"redis://h\"\n", "server.drain_delay is 0s"),
            ("[store]\nrun_ttl = \"1s\"\n", "store.run_ttl is 1s"),
            ("[store]\nsession_ttl = \"1h\"\n", "runs outlive"),
        ] {
            let found = found(config);
            assert!(found.iter().any(|message| message.contains(words)), "{words}: {found:?}");
        }
    }
}
