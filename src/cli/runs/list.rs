//! `loopgate runs list`.

use std::io::{IsTerminal, stdout};
use std::num::NonZeroUsize;

use clap::Args;
use serde::Deserialize;
use serde_json::Value;

use super::super::client::{Client, Target};
use super::super::process::{Failure, complain, output_width, say, takes_colours};
use super::super::table::{Column, lines};
use super::super::text::{clean_json, line};
use super::super::when;
use super::shared::{RUNS, Run, failure, read};
use crate::types::clock::now_ms;

/// Runs that are asked for at a time; the server gives no more.
const PAGE: usize = 100;
/// Most characters of a cell.
const MOST_SHOWN: usize = 128;

/// The first of them is there if runs of several tenants are shown.
const COLUMNS: [Column; 8] = [
    ("TENANT", Some(8)),
    ("RUN", None),
    ("STATUS", None),
    ("AGE", None),
    ("TOOK", None),
    ("MODEL", Some(8)),
    ("SESSION", Some(8)),
    ("WHY", Some(8)),
];

/// List runs, the newest first.
#[derive(Debug, Args)]
pub(in crate::cli) struct List {
    /// Only runs with this status: queued, in_progress, requires_action, completed, incomplete, cancelled, failed
    #[arg(long, value_name = "STATUS")]
    status: Option<String>,

    /// Only runs that asked for this agent or model
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,

    /// Only runs of this session
    #[arg(long, value_name = "ID")]
    session: Option<String>,

    /// Only runs that began since then: how long ago, such as 30m, 2h or 7d, or a day or time (UTC)
    #[arg(long, value_name = "WHEN", value_parser = |text: &str| when::since(text, now_ms()))]
    since: Option<u64>,

    /// At most this many
    #[arg(long, value_name = "COUNT", default_value = "20")]
    limit: NonZeroUsize,

    /// Print each run as JSON on one line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    target: Target,
}

#[derive(Deserialize)]
struct Page {
    data: Vec<Value>,
    last_id: Option<String>,
    has_more: bool,
}

pub(super) async fn run(list: &List) -> Result<(), Failure> {
    let client = list.target.client()?;
    let found = find(list, &client).await?;
    if list.json {
        for (run, _) in &found {
            say(clean_json(&run.to_string()));
        }
        return Ok(());
    }
    if found.is_empty() {
        complain("There is no such run.");
        return Ok(());
    }
    let (now, width) = (now_ms(), output_width());
    let colours = takes_colours(stdout().is_terminal());
    let rows: Vec<_> = found.iter().map(|(_, run)| row(run, now)).collect();
    let statuses = std::iter::once("").chain(found.iter().map(|(_, run)| run.status.as_str()));
    let hidden = usize::from(found.iter().all(|(_, run)| run.tenant.is_none()));
    let rows: Vec<_> = rows.iter().map(|cells| cells[hidden..].to_vec()).collect();
    for (line, status) in lines(&COLUMNS[hidden..], &rows, width).iter().zip(statuses) {
        match colour(status).filter(|_| colours) {
            Some(colour) => say(format_args!("\x1b[{colour}m{line}\x1b[0m")),
            None => say(line),
        }
    }
    Ok(())
}

/// Reads pages until there are enough runs. What the server does not filter by is filtered here.
async fn find(list: &List, client: &Client) -> Result<Vec<(Value, Run)>, Failure> {
    let limit = list.limit.get();
    let has_filter = list.agent.is_some();
    let page = if has_filter { PAGE } else { limit.min(PAGE) }.to_string();
    let (mut found, mut after) = (Vec::new(), None::<String>);
    loop {
        let mut query = vec![("limit", page.as_str())];
        let asked = [("status", &list.status), ("session_id", &list.session), ("after", &after)];
        query.extend(asked.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?))));
        let page: Page = client.get(&RUNS, &query).await.map_err(|error| failure(&error))?;
        for value in page.data {
            let run = read(&value)?;
            // The newest come first.
            if list.since.is_some_and(|since| run.created_ms < since) {
                return Ok(found);
            }
            if list.agent.as_ref().is_none_or(|agent| run.model == *agent) {
                found.push((value, run));
            }
            if found.len() == limit {
                return Ok(found);
            }
        }
        match page.last_id.filter(|last| page.has_more && after.as_ref() != Some(last)) {
            Some(last) => after = Some(last),
            None => return Ok(found),
        }
    }
}

fn row(run: &Run, now: u64) -> Vec<String> {
    let took = if run.is_under_way() { None } else { run.ended_ms.map(|ended| ended.saturating_sub(run.created_ms)) };
    [
        run.tenant.clone().unwrap_or_default(),
        run.id.clone(),
        run.status.clone(),
        when::duration(now.saturating_sub(run.created_ms)),
        took.map(when::duration).unwrap_or_default(),
        run.model.clone(),
        run.session_id.clone().unwrap_or_default(),
        run.stop_reason.clone().unwrap_or_default(),
    ]
    .map(|cell| line(&cell, MOST_SHOWN))
    .to_vec()
}

/// The colour that a status has on a terminal.
fn colour(status: &str) -> Option<u8> {
    match status {
        "queued" | "in_progress" => Some(36),
        "failed" => Some(31),
        "incomplete" | "requires_action" => Some(33),
        "cancelled" => Some(2),
        _ => None,
    }
}
