//! What documents name in the code is there.

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
