//! `loopgate key new`.

use clap::Subcommand;

use super::process::{Failure, say};
use crate::config::key;

/// Make API keys.
#[derive(Debug, Subcommand)]
pub(super) enum Key {
    /// Print a new key, and the lines that declare it in the configuration
    New {
        /// The key's name in the configuration
        #[arg(default_value = "my-app")]
        name: String,
    },
}

pub(super) fn run(command: &Key) -> Result<(), Failure> {
    let Key::New { name } = command;
    let (key, hash) = key::generate().map_err(Failure::new)?;
    say(format_args!("Give this key to its caller; it is not shown again:\n\n  {key}\n"));
    say(format_args!("For loopgate.toml:\n\n[keys.{name}]\nkey_sha256 = \"{hash}\""));
    Ok(())
}
