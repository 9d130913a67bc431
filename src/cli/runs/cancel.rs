//! `loopgate runs cancel`.

use std::time::Duration;

use clap::Args;
use http::Method;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::super::client::RequestError;
use super::super::process::{Failure, say};
use super::super::text::clean_json;
use super::shared::{Named, about, failure, read};
use super::show;

/// The server waits for half a minute and then says that the run has not stopped yet. A run whose replica died stops once
/// another one has it.
const MOST_WAITED: Duration = Duration::from_secs(90);
const PAUSE: Duration = Duration::from_secs(1);
/// For one answer: what the server waits, and a little more.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(40);

/// Cancel a run and wait until it has stopped.
#[derive(Debug, Args)]
pub(in crate::cli) struct Cancel {
    #[command(flatten)]
    named: Named,

    /// Print the run as JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(cancel: &Cancel) -> Result<(), Failure> {
    let (client, id) = (cancel.named.target.client()?, &cancel.named.id);
    let deadline = Instant::now() + MOST_WAITED;
    let mut was_there = false;
    let value: Value = loop {
        let request = about(&client, Method::POST, id, &["cancel"]).timeout(ANSWER_TIMEOUT);
        match client.read(request).await {
            Ok(value) => break value,
            Err(error) => {
                was_there |= !matches!(error, RequestError::Unreachable { .. });
                if !was_there || !error.is_temporary() || Instant::now() >= deadline {
                    return Err(failure(&error));
                }
            }
        }
        sleep(PAUSE).await;
    };
    if cancel.json {
        say(clean_json(&serde_json::to_string_pretty(&value).map_err(Failure::new)?));
        return Ok(());
    }
    let run = read(&value)?;
    if run.status != "cancelled" {
        say(format_args!("{} had ended before it could be cancelled.", show::name(&run)));
    }
    show::summary(&run).iter().for_each(say);
    Ok(())
}
