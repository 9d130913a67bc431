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
use crate::server::tools::{Made, ToolClients, ToolsError, each, fetch_documents, open};
use crate::tools::{Registry, RegistryError, Source};

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
    each(settings, &mut ToolClients::default()).into_iter().map(|made| judge(made, settings)).collect()
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

/// What only shows once all tools are there.
async fn together(settings: &Settings) -> Option<Finding> {
    match open(settings).await {
        Err(ToolsError::Unregistered(error @ RegistryError::Duplicate { .. })) => {
            Some(Finding::fail("tools", error.to_string()).advice("Give one of them another name."))
        }
        // The others are found with the tool.
        Ok(_) | Err(_) => None,
    }
}
