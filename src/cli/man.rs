//! `loopgate man`: manual pages, made from the declaration of the commands.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Command};

use super::process::{Failure, say, say_bytes};

/// Print the manual page of a command, or write all pages.
#[derive(Debug, Args)]
pub(super) struct Man {
    /// The command, such as `tools call`; without one, the page of loopgate itself
    #[arg(value_name = "COMMAND", conflicts_with = "directory")]
    command: Vec<String>,

    /// Write the pages of all commands into this directory, such as /usr/local/share/man/man1
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
}

pub(super) fn run(man: &Man, command: Command) -> Result<(), Failure> {
    let mut command = command.disable_help_subcommand(true);
    // Names pages as `loopgate-tools-call`, and gives every command the flags of those above it.
    command.build();
    if let Some(directory) = &man.directory {
        let failed =
            |error: std::io::Error| Failure::new(format_args!("cannot write {}: {error}", directory.display()));
        fs::create_dir_all(directory).map_err(failed)?;
        write_pages(&command, directory).map_err(failed)?;
        say(format_args!("The manual pages are in {}.", directory.display()));
        return Ok(());
    }
    let mut named = &command;
    for name in &man.command {
        let Some(found) = named.find_subcommand(name) else {
            let message = format!("there is no command {name:?}; `loopgate --help` names all");
            return Err(Failure { code: 2, ..Failure::new(message) });
        };
        named = found;
    }
    let mut page = Vec::new();
    page_of(named).render(&mut page).map_err(Failure::new)?;
    say_bytes(&page);
    Ok(())
}

/// Writes the page of a command and those of the commands below it.
fn write_pages(command: &Command, directory: &Path) -> std::io::Result<()> {
    page_of(command).generate_to(directory)?;
    command.get_subcommands().filter(|below| !below.is_hide_set()).try_for_each(|below| write_pages(below, directory))
}

fn page_of(command: &Command) -> clap_mangen::Man {
    clap_mangen::Man::new(command.clone()).source(concat!("loopgate ", env!("CARGO_PKG_VERSION")))
}
