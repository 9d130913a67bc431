//! The documentation says what the code declares.

use std::fmt::Write;
use std::fs;

use super::root;
use crate::config::reference;
use crate::config::upstream::presets_to_markdown;

/// `UPDATE_DOCS=1 cargo test --lib config` writes the tables anew.
#[test]
fn the_documented_tables_are_the_declared_ones() {
    let path = root().join("docs/configuration.md");
    let written = fs::read_to_string(&path).unwrap();
    let rendered = render(&written);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, rendered).unwrap();
    } else {
        assert_eq!(written, rendered, "UPDATE_DOCS=1 cargo test --lib config writes docs/configuration.md anew");
    }
}

/// The page with what stands between its markers replaced.
fn render(page: &str) -> String {
    let mut blocks: Vec<_> =
        reference::tables().iter().map(|table| (format!("settings: {}", table.path), table.to_markdown())).collect();
    blocks.push(("flags".to_owned(), reference::flags_to_markdown()));
    blocks.push(("presets".to_owned(), presets_to_markdown()));
    let mut rendered = String::new();
    let mut rest = page;
    while let Some((before, after)) = rest.split_once("<!-- ") {
        let (name, after) = after.split_once(" -->\n").expect("a marker stands on its own line");
        let place = blocks.iter().position(|(known, _)| known == name);
        let (_, block) = blocks.remove(place.unwrap_or_else(|| panic!("no such block, or twice: {name}")));
        let (_, after) = after.split_once("<!-- end -->").expect("a block has its end");
        write!(rendered, "{before}<!-- {name} -->\n{block}<!-- end -->").unwrap();
        rest = after;
    }
    assert!(blocks.is_empty(), "not documented: {blocks:?}");
    rendered + rest
}
