//! What each kind of upstream takes of a request, found by asking it: `docs/upstreams.md` shows it in tables.

mod asked;
mod members;
mod parts;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use self::asked::Kinds;

/// `UPDATE_DOCS=1 cargo test --lib llm::tests` writes the tables anew.
#[tokio::test]
async fn the_documented_tables_say_what_upstreams_are_sent() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/upstreams.md");
    let written = fs::read_to_string(&path).unwrap();
    let kinds = Kinds::start().await;
    let mut page = written.clone();
    for (name, table) in [("members", members::table(&kinds).await), ("parts", parts::table(&kinds).await)] {
        let begin = format!("<!-- {name} -->\n");
        let (before, rest) = page.split_once(&begin).unwrap_or_else(|| panic!("{begin} is not on the page"));
        let (_, after) = rest.split_once("<!-- end -->").expect("a block has its end");
        page = format!("{before}{begin}{table}<!-- end -->{after}");
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, page).unwrap();
    } else {
        assert_eq!(written, page, "UPDATE_DOCS=1 cargo test --lib llm::tests writes docs/upstreams.md anew");
    }
}

/// A table in Markdown: its first column, then one for each of `columns`, then notes.
fn markdown(first: &str, columns: &[&str], rows: &[(String, Vec<String>, &str)]) -> String {
    let mut table = format!("| {first} | {} | notes |\n", columns.join(" | "));
    writeln!(table, "| --- |{}", " --- |".repeat(columns.len() + 1)).unwrap();
    for (label, cells, note) in rows {
        writeln!(table, "| {label} | {} | {note} |", cells.join(" | ")).unwrap();
    }
    table
}
