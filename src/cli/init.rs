//! `loopgate init`: a configuration file to begin with.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use clap::Args;

use super::process::{Failure, say};

/// What every section looks like. A test reads it as a server does.
const EXAMPLE: &str = include_str!("../../loopgate.example.toml");

/// What the file begins with, in place of the first lines of the example.
const HEAD: &str = "\
# The configuration of Loopgate, with every section in comments: a server that reads this file runs as one without it.
# Remove the `# ` before what you need, the line in brackets above it included. docs/configuration.md explains each key
# and gives its default. `loopgate check-config` names every mistake, and `loopgate doctor` what keeps a server from
# running.
";

/// Write a configuration file with every section, in comments.
#[derive(Debug, Args)]
pub(super) struct Init {
    /// The file; one that is there already is left as it is
    #[arg(value_name = "FILE", default_value = "loopgate.toml")]
    file: PathBuf,
}

pub(super) fn run(init: &Init) -> Result<(), Failure> {
    let shown = init.file.display();
    match write(&init.file) {
        Ok(()) => {
            say(format_args!("{shown} has every section, in comments. `loopgate serve --config {shown}` reads it."));
            Ok(())
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            Err(Failure::new(format_args!("{shown} is there already; it was left as it is")))
        }
        Err(error) => Err(Failure::new(format_args!("cannot write {shown}: {error}"))),
    }
}

fn write(path: &Path) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(text().as_bytes())?;
    file.sync_all()
}

/// The example in comments.
fn text() -> String {
    let sections = EXAMPLE.split_once("\n\n").map_or(EXAMPLE, |(_, sections)| sections);
    let mut text = format!("{HEAD}\n");
    for line in sections.lines() {
        // What is in comments in the example stays so once its section is not.
        if !line.is_empty() {
            text.push_str("# ");
        }
        text.push_str(line);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_its_comments_it_is_the_example() {
        let text = text();
        assert!(text.lines().all(|line| line.is_empty() || line.starts_with('#')), "{text}");
        let (head, sections) = text.split_once("\n\n").unwrap();
        assert_eq!(format!("{head}\n"), HEAD);
        let bare: Vec<_> = sections.lines().map(|line| line.strip_prefix("# ").unwrap_or(line)).collect();
        let (_, example) = EXAMPLE.split_once("\n\n").unwrap();
        assert_eq!(bare, example.lines().collect::<Vec<_>>());
        assert!(bare.contains(&"[server]") && bare.contains(&"[keys.operator]"));
    }
}
