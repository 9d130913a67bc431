//! `loopgate tools`: the tools that a configuration gives a server: what they are, what a call comes to, and whether they can be
//! used. Only accepting a definition needs a running server, which knows what was accepted.

mod accept;
mod call;
mod check;
mod list;
mod save;
mod scratch;
mod shared;

use clap::Subcommand;

use super::process::{Failure, runtime};

const EXIT_CODES: &str = "Exit codes:\n  \
    0  done; `call`: the tool answered; `check`: nothing failed\n  \
    1  another error; `check`: a tool cannot be used\n  \
    2  the command line, or the arguments of the call, cannot be read\n  \
    3  the tool answered with an error\n  \
    4  the call broke off, and whether it took effect is not known\n  \
    7  there is no such tool\n \
    78  the configuration is wrong";

/// List, call and check the tools that the configuration gives a server, and accept their definitions.
#[derive(Debug, Subcommand)]
#[command(after_help = EXIT_CODES)]
pub(super) enum Tools {
    /// List tools: what they are, what a repeated call does, and which agents have them
    #[command(after_help = EXIT_CODES)]
    List(list::List),
    /// Call a tool for real, as a model would
    #[command(after_help = EXIT_CODES)]
    Call(call::Call),
    /// Look at every tool: its schema, who has it, and whether what it needs can be reached. Calls none
    #[command(after_help = EXIT_CODES)]
    Check(check::Check),
    /// Accept the definition of a tool that a running server holds back, or list what it holds back
    #[command(after_help = EXIT_CODES)]
    Accept(accept::Accept),
}

pub(super) fn run(tools: &Tools) -> Result<(), Failure> {
    let runtime = runtime()?;
    let done = runtime.block_on(async {
        match tools {
            Tools::List(list) => list::run(list).await,
            Tools::Call(call) => call::run(call).await,
            Tools::Check(check) => check::run(check).await,
            Tools::Accept(accept) => accept::run(accept).await,
        }
    });
    // A name server that does not answer keeps a thread busy, which is not waited for.
    runtime.shutdown_background();
    done
}
