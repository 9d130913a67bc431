//! What documents name in the code is there, and what they show is so.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::{Frame, TestServer};
use crate::tidy::texts;

/// The tests of these files, by name.
fn tests<'t>(files: &'t [(String, String)], folders: &[&str]) -> Vec<&'t str> {
    let files = files.iter().filter(|(path, _)| folders.iter().any(|folder| path.starts_with(folder)));
    // After the attribute of a test there may be others, or a comment.
    let names = |text: &'t str| {
        let blocks = text.split("#[test]\n").chain(text.split("#[tokio::test")).skip(1);
        blocks.filter_map(|rest| rest.split("fn ").nth(1)?.split(['(', '<']).next())
    };
    files.flat_map(|(_, text)| names(text)).collect()
}

/// The rows of the table in a section of a page, each with its first column and the others.
fn rows<'t>(page: &'t str, heading: &str) -> Vec<(&'t str, Vec<&'t str>)> {
    let section =
        page.split(heading).nth(1).expect("the page has the section").split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    let cells = rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>());
    cells.filter_map(|cells| cells.split_first().map(|(first, others)| (*first, others.to_vec()))).collect()
}

/// The tests that a section of a page names, in its table, which are none of these.
fn missing<'t>(page: &'t str, heading: &str, tests: &[&str]) -> Vec<&'t str> {
    let cells = rows(page, heading).into_iter().flat_map(|(_, cells)| cells);
    let names: Vec<_> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    assert!(!names.is_empty(), "the section names tests");
    let is_there = |name: &&str| match name.strip_suffix('…') {
        Some(begin) => tests.iter().any(|test| test.starts_with(begin)),
        None => tests.contains(name),
    };
    names.into_iter().filter(|name| !is_there(name)).collect()
}

/// The capabilities of the one section that the other has no tests for, and the other way round.
fn untested<'t>(page: &'t str, capabilities: &str, tests: &str) -> Vec<&'t str> {
    let has = |heading| -> BTreeSet<(&'t str, Vec<bool>)> {
        rows(page, heading)
            .into_iter()
            .map(|(what, cells)| (what, cells.iter().map(|cell| !cell.starts_with('–')).collect()))
            .collect()
    };
    has(capabilities).symmetric_difference(&has(tests)).map(|(what, _)| *what).collect()
}

#[test]
fn the_tests_that_show_what_upstreams_can_do_are_there() {
    let files = texts();
    let (_, page) = files.iter().find(|(path, _)| path == "docs/upstreams.md").expect("the page is there");
    assert_eq!(missing(page, "## The tests", &tests(&files, &["src/llm/", "tests/"])), [""; 0]);
    assert_eq!(untested(page, "## What each kind can do", "## The tests"), [""; 0]);
}

#[test]
fn a_test_that_is_not_there_is_found() {
    let text = "#[tokio::test]\nasync fn one_that_is_there() {}\n#[test]\nfn other<T>() {}\nfn no_test() {}";
    let files = [("tests/a.rs".to_owned(), text.to_owned())];
    let page = "# A\n\n## Tests\n\n| `what` | `kind` |\n| --- | --- |\n\
                | `it` | `one_that_…`, `other`, `one_that` | `no_…` |\n\n## B\n\n| `x` | `y` |\n";
    assert_eq!(missing(page, "## Tests", &tests(&files, &["tests/"])), ["one_that", "no_…"]);
}

#[test]
fn a_capability_without_a_test_is_found() {
    let head = "| what | a | b |\n| --- | --- | --- |\n";
    let page = format!(
        "## Can\n\n{head}| x | yes | – |\n| y | yes | no |\n| z | – | – so it is |\n\n## Tests\n\n{head}| x | `t` | – |\n| y | `t` | – |\n"
    );
    assert_eq!(untested(&page, "## Can", "## Tests"), ["y", "y", "z"]);
}

/// The data of the events that a page shows, up to the end of its block. What is left out, `…`, becomes a member of this name.
fn shown_events(page: &str) -> Vec<Value> {
    let lines = page.lines().skip_while(|line| !line.starts_with("event: ")).take_while(|line| *line != "```");
    let data = lines.filter_map(|line| line.strip_prefix("data: {"));
    let whole = data.map(|rest| format!("{{{rest}").replace("{…}", "{\"…\":0}").replace(",…}", ",\"…\":0}"));
    whole.map(|text| serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"))).collect()
}

/// Where `real` does not look as it is shown, as paths.
fn differences(shown: &Value, real: &Value, path: &str) -> Vec<String> {
    let (Some(shown), Some(real)) = (shown.as_object(), real.as_object()) else {
        let is_alike = std::mem::discriminant(shown) == std::mem::discriminant(real);
        return if is_alike { vec![] } else { vec![format!("{path}: {real}")] };
    };
    let is_whole = !shown.contains_key("…");
    let left_out = real.keys().filter(|name| is_whole && !shown.contains_key(*name));
    let mut found: Vec<_> = left_out.map(|name| format!("{path}/{name}: not shown")).collect();
    for (name, shown) in shown.iter().filter(|(name, _)| *name != "…") {
        found.extend(match real.get(name) {
            Some(real) => differences(shown, real, &format!("{path}/{name}")),
            None => vec![format!("{path}/{name}: not there")],
        });
    }
    found
}

#[tokio::test]
async fn the_stream_of_the_readme_is_that_of_a_server() {
    let files = texts();
    let (_, page) = files.iter().find(|(path, _)| path == "README.md").expect("the page is there");
    // The model is a variable of the reader's shell.
    let page = &page.replace("'$MODEL'", "demo");
    let request = page.split("-d '").nth(1).and_then(|rest| rest.split('\'').next()).expect("a request is shown");
    let request: Value = serde_json::from_str(request).expect("the request is JSON");
    let server = TestServer::start("[upstreams.demo]\nkind = \"demo\"\n").await;
    let frames = server.stream("/v1/agent/completions", &request).await.rest().await;
    let real: Vec<_> = frames.iter().filter(|frame| frame.data != "[DONE]").map(Frame::json).collect();
    let shown = shown_events(page);
    let first_text = shown.iter().position(|event| event.get("choices").is_some()).expect("some text is shown");
    // All events up to the first text are shown, and then the last one.
    let pairs = shown.iter().zip(&real).take(first_text + 1).chain(shown.last().zip(real.last()));
    let differences: Vec<_> = pairs.flat_map(|(shown, real)| differences(shown, real, "")).collect();
    assert_eq!(differences, [""; 0]);
    assert_eq!(shown.len(), first_text + 2);
}

#[test]
fn what_is_shown_and_is_not_so_is_found() {
    let page = "event: a\ndata: {\"a\":{…},\"b\":1,\"c\":{\"d\":\"x\",…},\"f\":{}}\n```\ndata: {}";
    let real = serde_json::json!({"a": {"x": 1}, "b": "1", "c": {"e": 2}, "f": {"g": 3}});
    let shown = shown_events(page);
    assert_eq!(shown.len(), 1);
    let found = differences(&shown[0], &real, "");
    assert_eq!(found, ["/b: \"1\"", "/c/d: not there", "/f/g: not shown"]);
}

/// The paths and events of the description that the page about the API does not speak of.
fn unexplained(description: &Value, page: &str) -> Vec<String> {
    let paths = description["paths"].as_object().into_iter().flatten().map(|(path, _)| path.clone());
    let schemas = description["components"]["schemas"].as_object().into_iter().flatten();
    let types = schemas.map(|(_, schema)| &schema["properties"]["type"]);
    let names = types.flat_map(|kind| kind["enum"].as_array().into_iter().flatten().chain(kind.get("const")));
    let events = names.filter_map(Value::as_str).filter(|name| name.contains('.')).map(|name| format!("`{name}`"));
    paths.chain(events).filter(|name| !page.contains(name.as_str())).collect()
}

#[test]
fn every_path_and_event_of_the_description_is_explained() {
    let files = texts();
    let file = |name: &str| &files.iter().find(|(path, _)| path == name).expect("it is there").1;
    let description: Value = serde_json::from_str(file("openapi/openapi.json")).expect("it is JSON");
    assert_eq!(unexplained(&description, file("docs/api.md")), [""; 0]);
}

#[test]
fn what_is_not_explained_is_found() {
    let event = |name: &str| serde_json::json!({"properties": {"type": {"type": "string", "enum": [name]}}});
    let description = serde_json::json!({
        "paths": {"/v1/a": {}, "/v1/b": {}},
        "components": {"schemas": {"A": event("tool.a"), "B": event("tool.b"), "C": event("function")}},
    });
    assert_eq!(unexplained(&description, "`GET /v1/a` and `tool.a`"), ["/v1/b", "`tool.b`"]);
}
