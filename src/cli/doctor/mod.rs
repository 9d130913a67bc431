//! `loopgate doctor`: whether a server can run here by this configuration, and what to do where it cannot.
//!
//! It changes nothing but one document in the store and a directory among workspaces, which it removes again, and spends no tokens.

mod attempt;
mod breakers;
mod configuration;
mod embedded;
pub(super) mod finding;
mod host;
mod openapi;
mod redis;
pub(super) mod report;
mod store;
pub(super) mod tools;
pub(super) mod upstreams;
mod workspace;

use std::time::Duration;

use clap::Args;
use futures_util::future::{BoxFuture, join_all};

use self::finding::Finding;
use self::report::report;
use super::local_server::with_ollama;
use super::process::{Failure, env, runtime};
use crate::config::{Options, Settings};

/// How long one check may take. Not a setting: what takes longer is broken, and says so.
const MOST_TIME: Duration = Duration::from_secs(15);

/// Check the configuration, the store, the upstreams, the tools, the directory of workspaces and this machine.
#[derive(Debug, Args)]
pub(super) struct Doctor {
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    options: Options,
}

type Check<'a> = (&'static str, BoxFuture<'a, Vec<Finding>>);

pub(super) fn run(doctor: &Doctor) -> Result<(), Failure> {
    let runtime = runtime()?;
    let findings = runtime.block_on(examine(doctor));
    // A name server that does not answer keeps a thread busy, which is not waited for.
    runtime.shutdown_background();
    report(&findings, doctor.json)
}

async fn examine(doctor: &Doctor) -> Vec<Finding> {
    let settings = match Settings::load(&doctor.options, &env) {
        Ok(settings) => with_ollama(&doctor.options, settings).await,
        Err(errors) => return configuration::mistakes(&errors),
    };
    let settings = &settings;
    let checks: [Check<'_>; 7] = [
        ("configuration", Box::pin(async { configuration::check(settings) })),
        ("store", Box::pin(store::check(settings))),
        ("upstreams", Box::pin(upstreams::check(settings))),
        ("breakers", Box::pin(breakers::check(settings))),
        ("tools", Box::pin(tools::check(settings))),
        ("workspace", Box::pin(workspace::check(settings))),
        ("host", Box::pin(host::check(settings))),
    ];
    let within = checks.map(|(area, check)| async move {
        tokio::time::timeout(MOST_TIME, check).await.unwrap_or_else(|_| {
            let advice = "Something that it waits for hangs: a name server, a file system or a server.";
            vec![Finding::fail(area, format!("not known within {} s", MOST_TIME.as_secs())).advice(advice)]
        })
    });
    join_all(within).await.into_iter().flatten().collect()
}
