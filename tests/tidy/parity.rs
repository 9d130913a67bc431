//! Every test that `docs/parity.md` names is in the code, and every row there names one.

use std::collections::BTreeSet;
use std::path::Path;

use super::texts;

/// A row that is being built names no test yet.
const OPEN: &str = "open";

#[test]
fn every_row_of_what_the_loop_can_do_names_a_test_that_is_there() {
    let texts = texts();
    let rust = texts.iter().filter(|(path, _)| Path::new(path).extension().is_some_and(|it| it == "rs"));
    let tests: BTreeSet<&str> = rust.flat_map(|(_, text)| tests_of(text)).collect();
    let (_, page) = texts.iter().find(|(path, _)| path == "docs/parity.md").expect("the page is there");
    assert!(tests.len() > 1_000 && page.matches("\n| ").count() > 50, "it looked in the wrong place");
    assert_eq!(mistakes(page, &tests), [""; 0]);
}

/// The names of the functions that a file declares as tests.
fn tests_of(text: &str) -> impl Iterator<Item = &str> {
    // Also in `proptest!` and other macros, where attributes stand between.
    let after_attribute = text.match_indices("test").map(|(at, word)| &text[at + word.len()..]);
    let after_attribute = after_attribute.filter(|rest| rest.starts_with([']', '(']));
    after_attribute.filter_map(|rest| {
        let declared = rest.split_once("fn ")?.1;
        let end = declared.find(|c: char| !c.is_alphanumeric() && c != '_')?;
        Some(&declared[..end])
    })
}

/// What is wrong with the page.
fn mistakes(page: &str, tests: &BTreeSet<&str>) -> Vec<String> {
    let mut mistakes = Vec::new();
    for line in page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| ---")) {
        let cells: Vec<_> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [row, _, shown] = cells[..] else {
            mistakes.push(format!("a row has three cells: {line}"));
            continue;
        };
        if row == "row" || shown == OPEN {
            continue;
        }
        let named: Vec<_> = shown.split(", ").filter_map(|name| name.strip_prefix('`')?.strip_suffix('`')).collect();
        if named.is_empty() || named.len() != shown.split(", ").count() {
            mistakes.push(format!("{row} names no test"));
        }
        let absent = named.into_iter().filter(|name| !tests.contains(name));
        mistakes.extend(absent.map(|name| format!("{row} names {name}, which is no test")));
    }
    mistakes
}

#[test]
fn a_row_without_a_test_is_found() {
    let code = "#[test]\nfn one_is_one() {}\n#[tokio::test(start_paused = true)]\nasync fn the_greatest_two() {}\nfn helper() {}\n";
    let tests: BTreeSet<&str> = tests_of(code).collect();
    assert_eq!(tests.iter().copied().collect::<Vec<_>>(), ["one_is_one", "the_greatest_two"]);
    let page = "| row | what | test |\n| --- | --- | --- |\n| A | x | `one_is_one`, `the_greatest_two` |\n| B | x | `helper` |\n\
                | C | x | soon |\n| D | x | open |\n| E | x |\n";
    let found = mistakes(page, &tests);
    assert_eq!(found, ["B names helper, which is no test", "C names no test", "a row has three cells: | E | x |"]);
}
