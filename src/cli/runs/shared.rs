//! What the commands about runs share: the run as the server shows it, requests about it, and exit codes.

use clap::Args;
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::Value;

use super::super::client::{Client, ErrorText, RequestError, Target};
use super::super::process::Failure;
use super::super::story::{Ending, Usage};

/// Exit codes of `follow` and of `ask`, by how the run ended. All commands have 0 for success, 1 for other errors, 2 for a command line
/// that cannot be read and 78 for a wrong configuration.
mod exit {
    pub(super) const FAILED: u8 = 3;
    pub(super) const CANCELLED: u8 = 4;
    /// A limit ended the run.
    pub(super) const INCOMPLETE: u8 = 5;
    /// The run waits for its client.
    pub(super) const WAITS: u8 = 6;
    /// There is no such run, or its events are no longer kept.
    pub(super) const NOT_FOUND: u8 = 7;
    /// The server does not answer.
    pub(super) const NO_CONNECTION: u8 = 8;
}

/// A run of a server.
#[derive(Debug, Args)]
pub(super) struct Named {
    /// The run, such as run_019a0000000070008000000000000000
    #[arg(value_name = "RUN")]
    pub(super) id: String,

    #[command(flatten)]
    pub(super) target: Target,
}

/// A failed request, with the exit code that it has.
pub(in crate::cli) fn failure(error: &RequestError) -> Failure {
    let code = match error {
        RequestError::Unreachable { .. } => exit::NO_CONNECTION,
        RequestError::Refused { status, .. } if matches!(*status, StatusCode::NOT_FOUND | StatusCode::GONE) => {
            exit::NOT_FOUND
        }
        RequestError::Refused { .. } | RequestError::Malformed { .. } | RequestError::Ended { .. } => 1,
    };
    Failure { code, ..Failure::new(error) }
}

/// The exit code of a command that saw a run end so.
pub(in crate::cli) fn code_of(status: &str) -> u8 {
    match status {
        "completed" => 0,
        "cancelled" => exit::CANCELLED,
        "incomplete" => exit::INCOMPLETE,
        "requires_action" => exit::WAITS,
        _ => exit::FAILED,
    }
}

/// A run as the server shows it.
#[derive(Debug, Deserialize)]
pub(in crate::cli) struct Run {
    pub(in crate::cli) id: String,
    pub(in crate::cli) status: String,
    /// Where runs of several tenants are shown.
    pub(in crate::cli) tenant: Option<String>,
    pub(in crate::cli) session_id: Option<String>,
    pub(in crate::cli) model: String,
    pub(in crate::cli) created_ms: u64,
    pub(in crate::cli) ended_ms: Option<u64>,
    pub(in crate::cli) stop_reason: Option<String>,
    pub(in crate::cli) agent: Option<Ending>,
    pub(in crate::cli) usage: Option<Usage>,
    pub(in crate::cli) error: Option<ErrorText>,
    pub(in crate::cli) progress: Option<Progress>,
}

/// How far a run under way came.
#[derive(Debug, Deserialize)]
pub(in crate::cli) struct Progress {
    pub(in crate::cli) step: u32,
    pub(in crate::cli) iterations: u32,
    pub(in crate::cli) tool_calls: u32,
    /// A server of an earlier version tells none of the following.
    #[serde(default)]
    pub(in crate::cli) tools: Vec<OpenCall>,
    pub(in crate::cli) replica: Option<String>,
    pub(in crate::cli) last_event: Option<LastEvent>,
}

#[derive(Debug, Deserialize)]
pub(in crate::cli) struct OpenCall {
    pub(in crate::cli) name: String,
    pub(in crate::cli) started_ms: u64,
}

#[derive(Debug, Deserialize)]
pub(in crate::cli) struct LastEvent {
    pub(in crate::cli) seq: u64,
    pub(in crate::cli) r#type: String,
    pub(in crate::cli) at_ms: u64,
}

impl Run {
    pub(in crate::cli) fn is_under_way(&self) -> bool {
        matches!(self.status.as_str(), "queued" | "in_progress")
    }
}

/// Reads what the server shows of a run.
pub(super) fn read(run: &Value) -> Result<Run, Failure> {
    serde::Deserialize::deserialize(run).map_err(Failure::new)
}

pub(in crate::cli) const RUNS: [&str; 2] = ["v1", "runs"];

/// A request about one run.
pub(super) fn about(client: &Client, method: Method, id: &str, what: &[&str]) -> reqwest::RequestBuilder {
    client.request(method, &[&RUNS[..], &[id], what].concat(), &[])
}
