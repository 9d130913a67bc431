//! `loopgate completions`: made from the declaration of the commands, so that it knows all of them.

use clap::{Args, Command};
use clap_complete::Shell;

use super::process::say_bytes;

/// Print what completes commands and flags in a shell.
#[derive(Debug, Args)]
pub(super) struct Completions {
    /// The shell; docs/cli.md says where it looks for them
    shell: Shell,
}

pub(super) fn run(completions: &Completions, command: &mut Command) {
    let mut text = Vec::new();
    clap_complete::generate(completions.shell, command, "loopgate", &mut text);
    say_bytes(&text);
}
