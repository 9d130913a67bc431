//! `loopgate tools check`.

use std::time::Duration;

use clap::Args;
use tokio::time::timeout;

use super::super::doctor::finding::Finding;
use super::super::doctor::report::report;
use super::super::doctor::tools;
use super::super::process::{Failure, env};
use super::super::text::count;
use super::shared::agents_with;
use crate::config::{Options, Settings};
use crate::server::tools::{Made, ToolClients, ToolsError, each, fetch_documents, open, workspaces};
use crate::tools::mcp::McpServer;
use crate::tools::{Registry, RegistryError, Source, ToolSource};

/// How long the looking may take. Not a setting: what takes longer is broken, and says so.
const MOST_TIME: Duration = Duration::from_secs(60);

/// Look at every tool.
#[derive(Debug, Args)]
pub(in crate::cli) struct Check {
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    options: Options,
}

pub(super) async fn run(check: &Check) -> Result<(), Failure> {
    let mut settings = Settings::load(&check.options, &env).map_err(Failure::config)?;
    // What could not be fetched is told of each document by itself.
    let _ = fetch_documents(&mut settings).await;
    let mut findings = declared(&settings);
    let looking = async { (tools::check(&settings).await, together(&settings).await) };
    if let Ok((reached, together)) = timeout(MOST_TIME, looking).await {
        findings.extend(reached.into_iter().chain(together));
    } else {
        let advice = "Something that it waits for hangs: a name server, or a server that has tools.";
        findings.push(Finding::fail("tools", format!("not known within {} s", MOST_TIME.as_secs())).advice(advice));
    }
    // What was found of one tool stands together, in the order in which it was looked at.
    findings.sort_by(|one, other| one.area.cmp(&other.area));
    report(&findings, check.json)
}

/// Each tool by itself.
fn declared(settings: &Settings) -> Vec<Finding> {
    let (workspaces, mut findings) = match workspaces(settings) {
        Ok(workspaces) => (workspaces, Vec::new()),
        Err(error) => {
            let advice = "Make the directory, or mount its volume. A server does not start without it.";
            (None, vec![Finding::fail("workspace", error.to_string()).advice(advice)])
        }
    };
    let made = each(settings, workspaces.as_ref(), &mut ToolClients::default());
    findings.extend(made.into_iter().map(|made| judge(made, settings)));
    findings
}

fn judge(Made { name, tool }: Made, settings: &Settings) -> Finding {
    let area = format!("tools.{name}");
    let registry = tool.and_then(|tool| Registry::new([tool]).map_err(|error| error.to_string()));
    let registry = match registry {
        Ok(registry) => registry,
        Err(error) => {
            return Finding::fail(area, error).advice("A server does not start with it: mend its declaration.");
        }
    };
    let source = registry.get(&name).map(|tool| tool.spec().source);
    let agents = agents_with(settings, &name);
    match agents.as_slice() {
        [] if source != Some(Source::Builtin) => Finding::warn(area, "its schema is valid, and no agent has it")
            .advice("Name it in the `tools` of an agent."),
        [] => Finding::ok(area, "its schema is valid; no agent has it"),
        agents => {
            let (many, names) = (count(agents.len(), "agent"), agents.join(", "));
            Finding::ok(area, format!("its schema is valid; {many} may call it: {names}"))
        }
    }
}

/// What only shows once all tools are there: those of servers, and that no two have one name.
async fn together(settings: &Settings) -> Vec<Finding> {
    match open(settings).await {
        Err(ToolsError::Unregistered(error @ RegistryError::Duplicate { .. })) => {
            vec![Finding::fail("tools", error.to_string()).advice("Give one of them another name.")]
        }
        // The others are found with the tool.
        Err(_) => Vec::new(),
        Ok(opened) => {
            let findings = opened.servers.iter().map(|server| judge_server(server, settings)).collect();
            opened.close().await;
            findings
        }
    }
}

fn judge_server(server: &McpServer, settings: &Settings) -> Finding {
    let area = format!("mcp.{}", server.name());
    let Some(tools) = server.tools() else {
        let why = server.trouble().unwrap_or_else(|| "it did not list its tools".to_owned());
        return Finding::fail(area, why)
            .advice("Calls of its tools fail until it can be used; a server starts without it.");
    };
    let listed = count(tools.len(), "tool");
    let left_out = server.left_out();
    if let Some((tool, why)) = left_out.first() {
        let which = if tool.is_empty() { why.clone() } else { format!("{tool:?}: {why}") };
        let message = format!("it lists {listed}, and others that cannot be offered, such as {which}");
        return Finding::warn(area, message).advice("Leave them out with `exclude`, or mend the server.");
    }
    if tools.iter().all(|tool| agents_with(settings, &tool.spec().name).is_empty()) {
        let name = server.name();
        return Finding::warn(area, format!("it lists {listed}, and no agent has one"))
            .advice(format!("Name them in the `tools` of an agent, such as \"{name}__*\"."));
    }
    Finding::ok(area, format!("it lists {listed}"))
}
