//! Holds the repository to its conventions: which part may know which, and what every file looks like.

use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The parts of the house and their floors. Imports go down: a part may use those below it, and itself,
/// but not its neighbours on the same floor.
const FLOORS: [(&str, u8); 14] = [
    ("lib", 7),
    ("main", 7),
    ("cli", 6),
    ("server", 5),
    ("api", 4),
    ("agent", 3),
    ("llm", 2),
    ("tools", 2),
    ("store", 2),
    ("telemetry", 2),
    ("config", 1),
    ("net", 0),
    ("types", 0),
    ("failpoint", 0),
];

/// Nobody reads longer files with pleasure.
const MOST_LINES: usize = 600;

/// Built in pieces, so that this file does not name them.
const HOMES: [[&str; 2]; 3] = [["/ho", "me/"], ["/ro", "ot/"], ["/Us", "ers/"]];

/// What is not ours, or not kept.
const SKIPPED: [&str; 5] = ["target", "data", ".git", "node_modules", "__pycache__"];

#[test]
fn the_repository_is_tidy() {
    let mut complaints = String::new();
    for (path, text) in texts() {
        for (line, complaint) in judge(&path, &text) {
            writeln!(complaints, "{path}:{line}: {complaint}").expect("a string takes it");
        }
    }
    assert!(complaints.is_empty(), "\n{complaints}");
}

/// All files of the repository that are text, by their paths in it.
pub(crate) fn texts() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    collect(root, &mut files);
    assert!(files.iter().any(|path| path.ends_with("src/lib.rs")), "it looked in the wrong place: {files:?}");
    let text = |path: PathBuf| {
        let name = path.strip_prefix(root).expect("it was found there").to_string_lossy().into_owned();
        Some((name, std::fs::read_to_string(path).ok()?))
    };
    files.into_iter().filter_map(text).collect()
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(directory).expect("the repository can be read");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("its entries too").path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !SKIPPED.contains(&name.as_str()) {
            collect(&path, files);
        } else if path.is_file() && name != ".git" {
            files.push(path);
        }
    }
}

/// What is wrong with a file, each with its line.
fn judge(path: &str, text: &str) -> Vec<(usize, String)> {
    let mut complaints = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if let Some(home) = HOMES.map(|parts| parts.concat()).iter().find(|home| line.contains(home.as_str())) {
            complaints.push((number + 1, format!("names a path of one machine, {home}…")));
        }
    }
    if Path::new(path).extension().is_some_and(|extension| extension == "rs") {
        let lines = text.lines().count();
        if lines > MOST_LINES {
            complaints.push((lines, format!("has {lines} lines; more than {MOST_LINES} are two subjects")));
        }
        // A module of tests is named for what it tests.
        let is_tests = path.starts_with("src/") && (path.ends_with("/tests.rs") || path.contains("/tests/"));
        if !is_tests && !text.starts_with("//!") {
            complaints.push((1, "does not begin by saying what it is for (`//!`)".to_owned()));
        }
    }
    if let Some(module) = path.strip_prefix("src/").and_then(|path| path.strip_suffix(".rs")) {
        complaints.extend(judge_imports(module, text));
    }
    complaints
}

fn judge_imports(module: &str, text: &str) -> Vec<(usize, String)> {
    let module = module.strip_suffix("/mod").unwrap_or(module);
    let part = module.split('/').next().unwrap_or(module);
    let Some(floor) = floor_of(part) else {
        return vec![(1, format!("`{part}` has no place in the table of tests/tidy.rs"))];
    };
    let depth = module.split('/').count();
    let mut complaints = Vec::new();
    for (line, name) in imports(text, depth) {
        let is_below = floor_of(&name).is_some_and(|other| other < floor);
        if floor_of(&name).is_some() && name != part && !is_below {
            complaints.push((line, format!("`{part}` must not know `{name}`")));
        }
    }
    complaints
}

fn floor_of(part: &str) -> Option<u8> {
    FLOORS.iter().find(|(name, _)| *name == part).map(|(_, floor)| *floor)
}

/// The items of the crate's root that a file at this depth names, each with its line.
fn imports(text: &str, depth: usize) -> Vec<(usize, String)> {
    let code = without_comments(text);
    let mut found = Vec::new();
    let from_root = ["super::".repeat(depth), "crate::".to_owned(), "loopgate::".to_owned()];
    for root in from_root {
        for (at, _) in code.match_indices(&root) {
            let is_whole = !code[..at].ends_with(|before: char| before.is_alphanumeric() || "_:".contains(before));
            if is_whole {
                let after = at + root.len();
                for (offset, name) in first_names(&code[after..]) {
                    let line = code[..after + offset].matches('\n').count() + 1;
                    found.push((line, name.to_owned()));
                }
            }
        }
    }
    found.sort();
    found
}

/// Comments blanked out, so that a link in them is no import; every line stays in its place.
fn without_comments(text: &str) -> String {
    let lines = text.lines().map(|line| if line.trim_start().starts_with("//") { "" } else { line });
    lines.collect::<Vec<_>>().join("\n")
}

/// The name that a path goes on with, or all first names of a group in braces, with their offsets.
fn first_names(path: &str) -> Vec<(usize, &str)> {
    let word = |at: usize| {
        let rest = &path[at..];
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        (at, &rest[..end])
    };
    if !path.starts_with('{') {
        return vec![word(0)];
    }
    let (mut names, mut nesting, mut is_first) = (Vec::new(), 0, false);
    for (at, c) in path.char_indices() {
        match c {
            '{' => nesting += 1,
            '}' => nesting -= 1,
            _ if is_first && !c.is_whitespace() => names.push(word(at)),
            _ => {}
        }
        if nesting == 0 {
            break;
        }
        is_first = nesting == 1 && (c == ',' || c == '{' || (is_first && c.is_whitespace()));
    }
    names
}

#[test]
fn imports_are_found_however_they_are_written() {
    let text = "//! [`crate::api`]\nuse crate::types::Event;\nuse crate::{\n    agent::{Agent, api},\n    config,\n};\n\
                fn f() -> crate::llm::Model { super::store() }\nuse mycrate::server;\nuse loopgate::cli;\n";
    let names =
        |depth| imports(text, depth).into_iter().map(|(line, name)| format!("{line} {name}")).collect::<Vec<_>>();
    assert_eq!(names(2), ["2 types", "4 agent", "5 config", "7 llm", "9 cli"]);
    assert_eq!(names(1), ["2 types", "4 agent", "5 config", "7 llm", "7 store", "9 cli"]);
}

#[test]
fn every_convention_can_be_broken() {
    let home = HOMES[0].concat();
    let long = format!("//! Long.\n{}", "\n".repeat(MOST_LINES));
    for (path, text, complaint) in [
        ("src/llm/openai.rs", "//! A.\nuse crate::agent::Agent;\n", "2 `llm` must not know `agent`"),
        ("src/tools/mod.rs", "//! A.\nuse super::store::Store;\n", "2 `tools` must not know `store`"),
        ("src/types/run.rs", "//! A.\nuse crate::config::X;\n", "2 `types` must not know `config`"),
        ("src/new.rs", "//! A.\n", "1 `new` has no place"),
        ("tests/a.rs", "use b;\n", "1 does not begin"),
        ("tests/a.rs", &long, "601 has 601 lines"),
        ("README.md", &format!("cd {home}me\n"), "1 names a path"),
    ] {
        let complaints = judge(path, text);
        assert_eq!(complaints.len(), 1, "{path}: {complaints:?}");
        let said = format!("{} {}", complaints[0].0, complaints[0].1);
        assert!(said.starts_with(complaint), "{said}");
    }
    assert!(judge("src/api/chat.rs", "//! A.\nuse crate::agent::Agent;\nuse crate::types::Event;\n").is_empty());
    assert!(judge("src/main.rs", "//! A.\nuse loopgate::{cli, server};\n").is_empty());
}
