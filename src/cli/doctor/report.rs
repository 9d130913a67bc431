//! Prints what was found.

use std::io::{IsTerminal, stdout};

use serde_json::json;

use super::super::process::{Failure, say, takes_colours};
use super::super::text::{clean, clean_json, count};
use super::finding::{Finding, Level};

/// Prints the findings, as JSON where that is wanted. The command fails if one of them is a failure.
pub(in crate::cli) fn report(findings: &[Finding], as_json: bool) -> Result<(), Failure> {
    let has_failed = findings.iter().any(|finding| finding.level == Level::Fail);
    if as_json {
        let checks: Vec<_> = findings.iter().map(Finding::json).collect();
        let report = json!({"ok": !has_failed, "checks": checks});
        say(clean_json(&serde_json::to_string_pretty(&report).map_err(Failure::new)?));
    } else {
        print(findings);
    }
    if has_failed { Err(Failure::code(1)) } else { Ok(()) }
}

fn print(findings: &[Finding]) {
    let colours = takes_colours(stdout().is_terminal());
    for Finding { area, level, message, advice } in findings {
        let (word, colour) = (level.word(), level.colour());
        let word = if colours { format!("\x1b[{colour}m{word:4}\x1b[0m") } else { format!("{word:4}") };
        say(format_args!("{word}  {area}: {}", clean(message)));
        if let Some(advice) = advice {
            say(format_args!("      → {}", clean(advice)));
        }
    }
    let of = |level| findings.iter().filter(|finding| finding.level == level).count();
    say(format_args!(
        "\n{} ok, {}, {}",
        of(Level::Ok),
        count(of(Level::Warn), "warning"),
        count(of(Level::Fail), "failure")
    ));
}
