//! `loopgate agents list` and `show`.

use clap::Args;
use http::Method;
use serde_json::Value;

use super::super::client::Target;
use super::super::process::{Failure, output_width, say};
use super::super::table::{Column, lines};
use super::super::text::{clean_json, line};
use super::super::when::time;
use super::request::send;

/// Most characters of a cell.
const MOST_SHOWN: usize = 128;

const COLUMNS: [Column; 5] =
    [("AGENT", None), ("ORIGIN", None), ("VERSION", None), ("CHANGED", None), ("MODEL", Some(12))];

/// List agents.
#[derive(Debug, Args)]
pub(in crate::cli) struct List {
    /// Print everything as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    target: Target,
}

/// Show an agent.
#[derive(Debug, Args)]
pub(in crate::cli) struct Show {
    /// The agent
    #[arg(value_name = "NAME")]
    name: String,

    #[command(flatten)]
    target: Target,
}

pub(super) async fn list(list: &List) -> Result<(), Failure> {
    let answer: Value = list.target.client()?.get(&["v1", "agents"], &[]).await.map_err(Failure::new)?;
    if list.json {
        say(clean_json(&serde_json::to_string_pretty(&answer).map_err(Failure::new)?));
        return Ok(());
    }
    let rows: Vec<_> = answer["data"].as_array().into_iter().flatten().map(row).collect();
    for line in lines(&COLUMNS, &rows, output_width()) {
        say(line);
    }
    Ok(())
}

pub(super) async fn show(show: &Show) -> Result<(), Failure> {
    let answer = send(&show.target.client()?, Method::GET, &show.name, None).await.map_err(Failure::new)?;
    say(clean_json(&serde_json::to_string_pretty(&answer).map_err(Failure::new)?));
    Ok(())
}

fn row(agent: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let version = agent["version"].as_u64().map(|version| version.to_string()).unwrap_or_default();
    let changed = agent["changed_ms"].as_u64().map(time).unwrap_or_default();
    let mistake = agent["mistake"].as_str().map(|mistake| format!("cannot be used: {mistake}"));
    let model = mistake.unwrap_or_else(|| text(&agent["effective"]["model"]));
    [text(&agent["id"]), text(&agent["origin"]), version, changed, model].map(|cell| line(&cell, MOST_SHOWN)).to_vec()
}
