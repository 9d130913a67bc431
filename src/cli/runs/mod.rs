//! `loopgate runs`: what the runs of a server do and did.

mod cancel;
mod follow;
mod list;
mod patience;
pub(super) mod shared;
mod show;

use clap::Subcommand;

use super::process::{Failure, runtime};

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
