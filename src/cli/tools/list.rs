//! `loopgate tools list`.

use clap::Args;
use serde_json::{Value, json};

use super::super::process::{Failure, complain, output_width, say};
use super::super::table::{Column, lines};
use super::super::text::{clean_json, line};
use super::shared::{agents_with, load};
use crate::config::{OnDefinition, Options, Settings};
use crate::tools::definitions::own_name;
use crate::tools::{RegisteredTool, Registry, Source};
use crate::types::pattern::matches;

/// Most characters of a cell.
const MOST_SHOWN: usize = 128;
/// So many digits of a hash tell one definition from another.
const DIGITS: usize = 12;

const COLUMNS: [Column; 7] = [
    ("TOOL", None),
    ("KIND", None),
    ("EFFECT", None),
    ("AGENTS", Some(8)),
    ("DEFINITION", None),
    ("PIN", None),
    ("DESCRIPTION", Some(16)),
];

/// List tools.
#[derive(Debug, Args)]
pub(in crate::cli) struct List {
    /// Only tools of this name; `*` stands for any characters
    #[arg(default_value = "*", hide_default_value = true, value_name = "NAME")]
    pattern: String,

    /// Only tools of this agent
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,

    /// Print everything as JSON, the schemas of arguments included
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    options: Options,
}

pub(super) async fn run(list: &List) -> Result<(), Failure> {
    let (settings, opened) = load(&list.options).await?;
    // What they offer is known.
    opened.close().await;
    show(list, &settings, &opened.registry)
}

fn show(list: &List, settings: &Settings, registry: &Registry) -> Result<(), Failure> {
    if let Some(agent) = list.agent.as_ref().filter(|agent| !settings.agents.contains_key(*agent)) {
        return Err(Failure::new(format_args!("the configuration has no agent named {agent:?}")));
    }
    let is_wanted = |tool: &&std::sync::Arc<RegisteredTool>| {
        let (name, agent) = (&tool.spec().name, list.agent.as_deref());
        matches(&list.pattern, name) && agent.is_none_or(|agent| agents_with(settings, name).contains(&agent))
    };
    let tools: Vec<_> = registry.iter().filter(is_wanted).collect();
    if list.json {
        let tools: Vec<_> = tools.into_iter().map(|tool| object(tool, settings)).collect();
        say(clean_json(&serde_json::to_string_pretty(&json!({"tools": tools})).map_err(Failure::new)?));
        return Ok(());
    }
    if tools.is_empty() {
        complain("There is no such tool.");
        return Ok(());
    }
    let rows: Vec<_> = tools.into_iter().map(|tool| row(tool, settings)).collect();
    for line in lines(&COLUMNS, &rows, output_width()) {
        say(line);
    }
    Ok(())
}

/// What the configuration says of the definition of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pin {
    /// The tool is declared here, and has no source that could change it.
    Fixed,
    /// The configuration pins this definition.
    Pinned,
    /// The configuration pins another one: no agent has the tool.
    NotPinned,
    /// Which definition counts is known to the server: the first, until another one is accepted.
    First,
    /// The same, and also the first is held back until it is accepted.
    Hold,
}

impl Pin {
    fn of(tool: &RegisteredTool, settings: &Settings) -> Self {
        let name = &tool.spec().name;
        if tool.spec().source != Source::Mcp {
            return Self::Fixed;
        }
        let of_server = settings.mcp.iter().find_map(|server| Some((server, own_name(&server.name, name)?)));
        let Some((server, own)) = of_server else { return Self::Fixed };
        match server.pins.pins.get(own) {
            Some(hash) if hash == tool.pin() => Self::Pinned,
            Some(_) => Self::NotPinned,
            None if server.pins.new_tools == OnDefinition::Hold => Self::Hold,
            None => Self::First,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Fixed => "-",
            Self::Pinned => "pinned",
            Self::NotPinned => "held: not_pinned",
            Self::First => "first",
            Self::Hold => "held if new",
        }
    }
}

fn row(tool: &RegisteredTool, settings: &Settings) -> Vec<String> {
    let spec = tool.spec();
    let agents = agents_with(settings, &spec.name).join(" ");
    let agents = if agents.is_empty() { "-".to_owned() } else { agents };
    let mut hash = tool.pin().to_owned();
    hash.truncate(DIGITS);
    let (kind, effect) = (spec.source.as_str().to_owned(), spec.effect.as_str().to_owned());
    let pin = Pin::of(tool, settings).as_str().to_owned();
    [spec.name.clone(), kind, effect, agents, hash, pin, spec.description.clone()]
        .map(|cell| line(&cell, MOST_SHOWN))
        .to_vec()
}

fn object(tool: &RegisteredTool, settings: &Settings) -> Value {
    let spec = tool.spec();
    json!({
        "name": spec.name,
        "description": spec.description,
        "source": spec.source.as_str(),
        "effect": spec.effect,
        "agents": agents_with(settings, &spec.name),
        "definition_sha256": tool.pin(),
        "pin": Pin::of(tool, settings).as_str(),
        "timeout_ms": spec.timeout.map(|timeout| timeout.as_millis()),
        "parameters": spec.parameters,
    })
}
