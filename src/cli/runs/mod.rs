//! `loopgate runs`: what the runs of a server do and did.

mod cancel;
mod follow;
mod list;
mod show;
mod table;
mod when;

use clap::{Args, Subcommand};
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::Value;

use super::client::{RequestError, Target};
use super::process::{Failure, runtime};
use super::story::{Ending, Usage};

/// Exit codes of `follow`, by how the run ended. All commands have 0 for success, 1 for other errors, 2 for a command line
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

const EXIT_CODES: &str = "Exit codes:\n  \
    0  done; `follow`: the run completed\n  \
    1  another error, such as a key that is not accepted\n  \
    2  the command line cannot be read\n  \
    3  the followed run failed\n  \
    4  the followed run was cancelled\n  \
    5  a limit ended the followed run\n  \
    6  the followed run waits for its client\n  \
    7  there is no such run, or it is no longer kept\n  \
    8  the server does not answer\n \
    78  the configuration is wrong";

/// List, show, follow and cancel the runs of a server.
#[derive(Debug, Subcommand)]
#[command(after_help = EXIT_CODES)]
pub(super) enum Runs {
    /// List runs, the newest first
    #[command(after_help = EXIT_CODES)]
    List(list::List),
    /// Say what happened in a run
    #[command(after_help = EXIT_CODES)]
    Show(show::Show),
    /// Watch a run until it ends
    #[command(after_help = EXIT_CODES)]
    Follow(follow::Follow),
    /// Cancel a run and wait until it has stopped
    #[command(after_help = EXIT_CODES)]
    Cancel(cancel::Cancel),
}

/// A run of a server.
#[derive(Debug, Args)]
struct Named {
    /// The run, such as run_019a0000000070008000000000000000
    #[arg(value_name = "RUN")]
    id: String,

    #[command(flatten)]
    target: Target,
}

pub(super) fn run(runs: &Runs) -> Result<(), Failure> {
    runtime()?.block_on(async {
        match runs {
            Runs::List(list) => list::run(list).await,
            Runs::Show(show) => show::run(show).await,
            Runs::Follow(follow) => follow::run(follow).await,
            Runs::Cancel(cancel) => cancel::run(cancel).await,
        }
    })
}

/// A failed request, with the exit code that it has.
fn failure(error: &RequestError) -> Failure {
    let code = match error {
        RequestError::Unreachable { .. } => exit::NO_CONNECTION,
        RequestError::Refused { status, .. } if matches!(*status, StatusCode::NOT_FOUND | StatusCode::GONE) => {
            exit::NOT_FOUND
        }
        RequestError::Refused { .. } | RequestError::Malformed { .. } => 1,
    };
    Failure { code, ..Failure::new(error) }
}

/// The exit code of a command that saw a run end so.
fn code_of(status: &str) -> u8 {
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
struct Run {
    id: String,
    status: String,
    session_id: Option<String>,
    model: String,
    created_ms: u64,
    ended_ms: Option<u64>,
    stop_reason: Option<String>,
    agent: Option<Ending>,
    usage: Option<Usage>,
    error: Option<super::client::ErrorText>,
}

impl Run {
    fn is_under_way(&self) -> bool {
        matches!(self.status.as_str(), "queued" | "in_progress")
    }
}

/// Reads what the server shows of a run.
fn read(run: &Value) -> Result<Run, Failure> {
    serde::Deserialize::deserialize(run).map_err(Failure::new)
}

const RUNS: [&str; 2] = ["v1", "runs"];

/// A request about one run.
fn about(client: &super::client::Client, method: Method, id: &str, what: &[&str]) -> reqwest::RequestBuilder {
    client.request(method, &[&RUNS[..], &[id], what].concat(), &[])
}
