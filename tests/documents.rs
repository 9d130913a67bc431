//! What documents name in the code is there, and what they show is so.

use serde_json::Value;

use crate::support::{Frame, TestServer};
use crate::tidy::texts;

/// The functions of these files, by name.
fn functions<'t>(files: &'t [(String, String)], folders: &[&str]) -> Vec<&'t str> {
    let files = files.iter().filter(|(path, _)| folders.iter().any(|folder| path.starts_with(folder)));
    let after = |text: &'t str| text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next());
    files.flat_map(|(_, text)| after(text)).collect()
}

/// The tests that a section of a page names, in its table, which are none of the functions.
fn missing<'t>(page: &'t str, heading: &str, functions: &[&str]) -> Vec<&'t str> {
    let section = page.split(heading).nth(1).expect("the page has the section");
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    let cells = rows.flat_map(|row| row.split('|').skip(2));
    let names: Vec<_> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    assert!(!names.is_empty(), "the section names tests");
    let is_there = |name: &&str| match name.strip_suffix('…') {
        Some(begin) => functions.iter().any(|function| function.starts_with(begin)),
        None => functions.contains(name),
    };
    names.into_iter().filter(|name| !is_there(name)).collect()
}

#[test]
fn the_tests_that_show_what_upstreams_can_do_are_there() {
    let files = texts();
    let (_, page) = files.iter().find(|(path, _)| path == "docs/upstreams.md").expect("the page is there");
    assert_eq!(missing(page, "## The tests", &functions(&files, &["src/llm/", "tests/"])), [""; 0]);
}

#[test]
fn a_test_that_is_not_there_is_found() {
    let files = [("tests/a.rs".to_owned(), "async fn one_that_is_there() {}\nfn other<T>() {}".to_owned())];
    let page = "# A\n\n## Tests\n\n| `what` | `kind` |\n| --- | --- |\n| `it` | `one_that_…`, `other`, `one_that` | `no_…` |\n";
    assert_eq!(missing(page, "## Tests", &functions(&files, &["tests/"])), ["one_that", "no_…"]);
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
