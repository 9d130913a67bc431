//! `loopgate tools accept`: of the tools whose definitions a running server holds back.

use std::time::Duration;

use clap::Args;
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::client::Target;
use super::super::process::{Failure, complain, output_width, say};
use super::super::table::{Column, lines};
use super::super::text::{clean, clean_json, line};
use super::shared::exit;

/// Most characters of a cell.
const MOST_SHOWN: usize = 128;
/// So many digits of a hash are needed to name it.
const LEAST_DIGITS: usize = 12;
/// How long the server may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

const COLUMNS: [Column; 4] = [("TOOL", None), ("HELD", None), ("DEFINITION", None), ("DESCRIPTION", Some(16))];

/// Accept a definition that a running server holds back.
#[derive(Debug, Args)]
pub(in crate::cli) struct Accept {
    /// The tool; without it, the tools that are held back are listed
    #[arg(value_name = "NAME")]
    name: Option<String>,

    /// The hash of the definition that was looked at, or its first 12 digits or more; without it, the one that is held back now
    #[arg(value_name = "HASH")]
    hash: Option<String>,

    /// Print what is held back, or was accepted, as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    target: Target,
}

#[derive(Deserialize)]
struct Listed {
    data: Vec<Listing>,
}

/// A tool as `GET /v1/tools` shows it.
#[derive(Deserialize)]
struct Listing {
    name: String,
    description: String,
    #[serde(default)]
    parameters: Value,
    effect: String,
    definition_hash: String,
    held_back: Option<String>,
}

pub(super) async fn run(accept: &Accept) -> Result<(), Failure> {
    let client = accept.target.client()?;
    let listed: Listed = client.get(&["v1", "tools"], &[]).await.map_err(Failure::new)?;
    let Some(name) = &accept.name else { return show(accept, &listed) };
    let Some(found) = listed.data.iter().find(|tool| tool.name == *name) else {
        return Err(Failure {
            code: exit::NOT_FOUND,
            ..Failure::new(format_args!("the server has no tool named {name:?}"))
        });
    };
    let hash = wanted(found, accept.hash.as_deref()).map_err(Failure::new)?;
    let request = client.request(Method::PUT, &["v1", "tools", name, "accepted", &hash], &[]);
    let answer: Value = client.read(request.timeout(ANSWER_TIMEOUT)).await.map_err(Failure::new)?;
    if accept.json {
        say(clean_json(&serde_json::to_string_pretty(&answer).map_err(Failure::new)?));
    } else {
        say(clean(&format!("Agents have {name} as {hash} defines it from now on.")));
    }
    Ok(())
}

/// The hash that is to be accepted, or a sentence that says why none is.
fn wanted(found: &Listing, named: Option<&str>) -> Result<String, String> {
    let (name, held) = (&found.name, &found.definition_hash);
    match (&found.held_back, named) {
        (Some(why), _) if why == "not_pinned" => Err(format!(
            "the configuration pins another definition of {name}: change `pins` in the section of its server to {held}"
        )),
        // Another replica may be offered it.
        (_, Some(hash)) if hash.len() == held.len() => Ok(hash.to_owned()),
        (None, _) => Err(format!("the definition of {name} is not held back")),
        (Some(_), None) => Ok(held.clone()),
        (Some(_), Some(hash)) if hash.len() < LEAST_DIGITS => {
            Err(format!("{hash:?} is too short for a hash: give its first {LEAST_DIGITS} digits or more"))
        }
        (Some(_), Some(hash)) if held.starts_with(hash) => Ok(held.clone()),
        (Some(_), Some(hash)) => Err(format!(
            "{name} is not defined as {hash} says any more: its definition is {held} now, look at that first"
        )),
    }
}

fn show(accept: &Accept, listed: &Listed) -> Result<(), Failure> {
    let held: Vec<&Listing> = listed.data.iter().filter(|tool| tool.held_back.is_some()).collect();
    if accept.json {
        let tools: Vec<Value> = held.into_iter().map(object).collect();
        say(clean_json(&serde_json::to_string_pretty(&json!({"tools": tools})).map_err(Failure::new)?));
        return Ok(());
    }
    if held.is_empty() {
        complain("No tool is held back.");
        return Ok(());
    }
    let rows: Vec<_> = held.into_iter().map(row).collect();
    for line in lines(&COLUMNS, &rows, output_width()) {
        say(line);
    }
    Ok(())
}

fn object(tool: &Listing) -> Value {
    json!({
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "effect": tool.effect,
        "definition_sha256": tool.definition_hash,
        "held_back": tool.held_back,
    })
}

fn row(tool: &Listing) -> Vec<String> {
    let why = tool.held_back.clone().unwrap_or_default();
    [tool.name.clone(), why, tool.definition_hash.clone(), tool.description.clone()]
        .map(|cell| line(&cell, MOST_SHOWN))
        .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(held_back: Option<&str>) -> Listing {
        Listing {
            name: "s__t".to_owned(),
            description: String::new(),
            parameters: Value::Null,
            effect: "write".to_owned(),
            definition_hash: "ab".repeat(32),
            held_back: held_back.map(str::to_owned),
        }
    }

    #[test]
    fn only_the_definition_that_was_looked_at_is_accepted() {
        let (held, hash) = (listing(Some("changed")), "ab".repeat(32));
        assert_eq!(wanted(&held, None), Ok(hash.clone()));
        assert_eq!(wanted(&held, Some(&hash[..12])), Ok(hash.clone()));
        assert!(wanted(&held, Some("ab")).unwrap_err().contains("too short"));
        assert!(wanted(&held, Some("cdcdcdcdcdcd")).unwrap_err().contains("look at that first"));
        assert!(wanted(&listing(None), None).unwrap_err().contains("is not held back"));
        assert!(wanted(&listing(Some("not_pinned")), None).unwrap_err().contains("change `pins`"));
    }
}
