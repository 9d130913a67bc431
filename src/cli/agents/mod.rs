//! `loopgate agents`: the agents of a running server's configuration, and those that the tenant keeps in its store.

mod apply;
mod compare;
mod file;
mod request;
mod show;

use clap::{Args, Subcommand};
use http::Method;
use serde_json::Value;

use self::request::send;
use super::client::Target;
use super::process::{Failure, runtime, say};
use super::text::clean;

/// List, show and change the agents of a server. The key needs the scope `agents`.
#[derive(Debug, Subcommand)]
pub(super) enum Agents {
    /// List agents: those of the server's configuration, then the tenant's own
    List(show::List),
    /// Show an agent with all of its settings
    Show(show::Show),
    /// Give the server the agents of a file, where they are other ones there
    Apply(apply::Apply),
    /// Say what `apply` would change, and change nothing
    Diff(apply::Diff),
    /// Delete an agent of the tenant's own
    Delete(Delete),
}

/// Delete an agent of the tenant's own. It can be restored for 30 days.
#[derive(Debug, Args)]
pub(super) struct Delete {
    /// The agent
    #[arg(value_name = "NAME")]
    name: String,

    #[command(flatten)]
    target: Target,
}

pub(super) fn run(agents: &Agents) -> Result<(), Failure> {
    runtime()?.block_on(async {
        match agents {
            Agents::List(list) => show::list(list).await,
            Agents::Show(show) => show::show(show).await,
            Agents::Apply(apply) => apply::apply(apply).await,
            Agents::Diff(diff) => apply::diff(diff).await,
            Agents::Delete(delete) => self::delete(delete).await,
        }
    })
}

async fn delete(delete: &Delete) -> Result<(), Failure> {
    let client = delete.target.client()?;
    let answer: Value = send(&client, Method::DELETE, &delete.name, None).await.map_err(Failure::new)?;
    say(clean(&format!("{} is deleted, by version {}", delete.name, answer["version"])));
    Ok(())
}
