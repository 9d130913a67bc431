//! `loopgate key new`.

use clap::Subcommand;

use super::process::{Failure, say};
use crate::config::{PLAIN_NAME, is_plain_name, key};

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
    if !is_plain_name(name) {
        // Said before a key is made: it is shown this once.
        return Err(Failure::new(format_args!("keys.{name:?}: {PLAIN_NAME}")));
    }
    let (key, hash) = key::generate().map_err(Failure::new)?;
    say(format_args!("Give this key to its caller; it is not shown again:\n\n  {key}\n"));
    // A dot would begin a table within a table.
    let name = if name.contains('.') { format!("\"{name}\"") } else { name.clone() };
    say(format_args!("For loopgate.toml:\n\n[keys.{name}]\nkey_sha256 = \"{hash}\""));
    Ok(())
}
