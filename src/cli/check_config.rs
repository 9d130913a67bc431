//! `loopgate check-config`.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;

use super::process::{Failure, env, say};
use super::text::count;
use crate::config::{Change, Counts, KeyConfig, Options, Settings};
use crate::server::remarks::remarks;
use crate::types::pattern::matches;

/// Read the configuration and name every mistake with its line.
#[derive(Debug, Args)]
pub(super) struct CheckConfig {
    #[command(flatten)]
    options: Options,

    /// Also say what a reload would change in a server that runs by this file
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
}

pub(super) fn run(check: &CheckConfig) -> Result<(), Failure> {
    let settings = Settings::load(&check.options, &env).map_err(Failure::config)?;
    say(format_args!(
        "The configuration is valid: {} ({}), {}, {}, {}.",
        count(settings.upstreams.len(), "upstream"),
        settings.upstream_origin,
        count(settings.agents.len(), "agent"),
        tools(&settings),
        count(settings.keys.len(), "key"),
    ));
    for remark in remarks(&settings).into_iter().chain(notes(&settings)) {
        say(remark);
    }
    if let Some(old) = &check.against {
        let options = Options { config: Some(old.clone()), ..check.options.clone() };
        let running = Settings::load(&options, &env).map_err(Failure::config)?;
        say(describe(&running.changes_to(&settings)));
    }
    Ok(())
}

/// How many tools are declared, and what brings others.
pub(super) fn tools(settings: &Settings) -> String {
    let mut tools = count(settings.tools.len(), "HTTP tool");
    let brought = [(settings.openapi.len(), "OpenAPI document"), (settings.mcp.len(), "MCP server")];
    for (number, kind) in brought.into_iter().filter(|(number, _)| *number > 0) {
        tools.push_str(", ");
        tools.push_str(&count(number, kind));
    }
    tools
}

/// What is valid, and yet does nothing.
fn notes(settings: &Settings) -> Vec<String> {
    let is_offered =
        |tool: &str| settings.agents.values().any(|agent| agent.tools.iter().any(|pattern| matches(pattern, tool)));
    let may_name = |key: &KeyConfig, agent: &String| key.agents.as_ref().is_none_or(|agents| agents.contains(agent));
    let is_named = |agent: &String| settings.keys.is_empty() || settings.keys.iter().any(|key| may_name(key, agent));
    let tools = settings.tools.iter().filter(|tool| !is_offered(&tool.name));
    let agents = settings.agents.keys().filter(|agent| !is_named(agent));
    tools
        .map(|tool| format!("Note: no agent is offered the tool `{}`; see the `tools` of agents.", tool.name))
        .chain(agents.map(|agent| format!("Note: no key may use the agent `{agent}`; see the `agents` of keys.")))
        .collect()
}

/// What a reload changes, one change a line.
fn describe(changes: &[Change]) -> String {
    let mut text = String::new();
    for (counts, title) in
        [(Counts::AtReload, "A reload (SIGHUP) changes:"), (Counts::AtRestart, "Only a restart changes:")]
    {
        let changes: Vec<_> = changes.iter().filter(|change| change.counts == counts).collect();
        if !changes.is_empty() {
            text.push_str(title);
        }
        for change in &changes {
            write!(text, "\n  {change}").expect("writing to a string cannot fail");
        }
        if !changes.is_empty() {
            text.push('\n');
        }
    }
    if text.is_empty() { "A reload changes nothing.".to_owned() } else { text.trim_end().to_owned() }
}
