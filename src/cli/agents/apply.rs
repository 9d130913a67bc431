//! `loopgate agents apply` and `diff`: the agents of a file, and those of a server.

use std::path::PathBuf;

use clap::Args;
use http::{Method, StatusCode};
use serde_json::{Map, Value};

use super::super::client::{Client, RequestError, Target};
use super::super::process::{Failure, complain, say};
use super::super::text::clean;
use super::compare::differences;
use super::file;
use super::request::send;

/// Give the server the agents of a file.
#[derive(Debug, Args)]
pub(in crate::cli) struct Apply {
    /// TOML with tables `[agents.NAME]`, or the same as JSON. Agents of the server that are not in it stay
    #[arg(value_name = "FILE")]
    file: PathBuf,

    #[command(flatten)]
    target: Target,
}

/// Say what `apply` would change.
#[derive(Debug, Args)]
pub(in crate::cli) struct Diff {
    /// TOML with tables `[agents.NAME]`, or the same as JSON
    #[arg(value_name = "FILE")]
    file: PathBuf,

    #[command(flatten)]
    target: Target,
}

/// Each agent is a change of its own: those that are refused leave the others changed, and are named.
pub(super) async fn apply(apply: &Apply) -> Result<(), Failure> {
    let (agents, client) = (file::read(&apply.file)?, apply.target.client()?);
    let mut refused = 0;
    for (name, settings) in &agents {
        let before = current(&client, name).await?;
        if before.as_ref().is_some_and(|before| differences(before, as_object(settings)).is_empty()) {
            say(clean(&format!("{name}: unchanged")));
            continue;
        }
        match send(&client, Method::PUT, name, Some(settings)).await {
            Ok(made) => say(clean(&format!("{name}: version {}", made["version"]))),
            Err(RequestError::Refused { message, .. }) => {
                refused += 1;
                complain(clean(&format!("{name}: {message}")));
            }
            Err(error) => return Err(Failure::new(error)),
        }
    }
    match refused {
        0 => Ok(()),
        _ => Err(Failure::new(format_args!("{refused} of {} agents are not as the file says", agents.len()))),
    }
}

pub(super) async fn diff(diff: &Diff) -> Result<(), Failure> {
    let (agents, client) = (file::read(&diff.file)?, diff.target.client()?);
    for (name, settings) in &agents {
        match current(&client, name).await? {
            None => say(clean(&format!("agents.{name}: added"))),
            Some(before) => {
                for line in differences(&before, as_object(settings)) {
                    say(clean(&format!("agents.{name}.{line}")));
                }
            }
        }
    }
    Ok(())
}

/// The settings that an agent of the store was given; `None` if there is none.
async fn current(client: &Client, name: &str) -> Result<Option<Map<String, Value>>, Failure> {
    match send(client, Method::GET, name, None).await {
        Ok(Value::Object(mut agent)) => match agent.remove("settings") {
            Some(Value::Object(settings)) => Ok(Some(settings)),
            _ => Ok(None),
        },
        Ok(_) | Err(RequestError::Refused { status: StatusCode::NOT_FOUND, .. }) => Ok(None),
        Err(error) => Err(Failure::new(error)),
    }
}

fn as_object(settings: &Value) -> &Map<String, Value> {
    settings.as_object().expect("the file's agents are tables")
}
