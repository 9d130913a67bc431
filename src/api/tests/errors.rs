//! The errors' table in the documents is that of the code.

use std::fmt::Write;
use std::path::Path;

use crate::api::wire::error::ErrorCode;
use crate::api::wire::openai_error::{Row, row};

const BEGIN: &str = "<!-- errors: begin -->\n";
const END: &str = "<!-- errors: end -->\n";

fn read(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// All codes by status, as `CONTRIBUTING.md` shows them.
fn table() -> String {
    let mut rows: Vec<_> = ErrorCode::ALL.iter().map(|code| (row(*code), *code)).collect();
    rows.sort_by_key(|(Row { status, .. }, _)| *status);
    let mut table =
        "| this failed | `ErrorCode` | status | type | code |\n| --- | --- | --- | --- | --- |\n".to_owned();
    for (Row { status, r#type, code: name }, code) in rows {
        let meaning = code.meaning();
        writeln!(table, "| {meaning} | `{code:?}` | {status} | `{type}` | `{name}` |").unwrap();
    }
    table
}

#[test]
fn the_contributors_table_of_errors_is_that_of_the_code() {
    let text = read("CONTRIBUTING.md");
    let shown = text.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END)).map(|(table, _)| table);
    assert!(shown == Some(&*table()), "write it anew:\n{BEGIN}{}{END}", table());
}

#[test]
fn every_error_is_in_the_users_table() {
    let text = read("docs/api.md");
    for code in ErrorCode::ALL {
        let Row { status, r#type, code: name } = row(*code);
        let is_listed = text.lines().any(|line| {
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            let [_, statuses, types, codes, _] = cells[..] else { return false };
            statuses.split(", ").any(|one| one == status.to_string())
                && types.contains(&format!("`{type}`"))
                && codes.contains(&format!("`{name}`"))
        });
        assert!(is_listed, "docs/api.md lacks {status} {type} {name}");
    }
}
