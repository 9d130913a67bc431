//! Holds the repository to its conventions: which part may know which, and what every file looks like.

mod links;
mod modules;
mod parity;
mod source;
mod words;

use std::fmt::Write;
use std::path::{Path, PathBuf};

use self::modules::{Modules, Use};

/// The parts of the house and their floors. Imports go down: a part may use those below it, and itself,
/// but not its neighbours on the same floor.
const FLOORS: [(&str, u8); 18] = [
    ("lib", 8),
    ("main", 8),
    ("cli", 7),
    ("library", 7),
    ("server", 6),
    ("api", 5),
    ("agent", 4),
    ("llm", 3),
    ("tools", 3),
    ("store", 3),
    ("hooks", 3),
    ("telemetry", 2),
    ("process", 2),
    ("config", 1),
    ("guard", 1),
    ("net", 0),
    ("types", 0),
    ("failpoint", 0),
];

/// The rooms of the agent and their floors, by the same rule. What is not named is the roof, which knows
/// them all.
const ROOMS: [(&str, u8); 41] = [
    ("tests", 10),
    ("schedules", 9),
    ("delegation", 9),
    ("admission", 8),
    ("control", 7),
    ("recovery", 7),
    ("tool_results", 7),
    ("questions", 7),
    ("launch", 6),
    ("drive", 5),
    ("outbox", 4),
    ("session", 4),
    ("limits", 4),
    ("request", 4),
    ("requester", 2),
    ("generation", 3),
    ("quotas", 2),
    ("policies", 2),
    ("prompt_layers", 2),
    ("naming", 2),
    ("ownership", 2),
    ("follow", 2),
    ("inbox", 2),
    ("usage", 3),
    ("health", 3),
    ("definitions", 4),
    ("stored_agents", 4),
    ("revocations", 2),
    ("documents", 3),
    ("context", 2),
    ("own_tool", 1),
    ("delegating", 1),
    ("catalog", 1),
    ("ledger", 1),
    ("lifecycle", 0),
    ("machine", 0),
    ("request_key", 0),
    ("request_memory", 1),
    ("run_memory", 0),
    ("listed", 0),
    ("error", 0),
];

/// Nobody reads longer files with pleasure.
const MOST_LINES: usize = 600;

/// Those of `src` have one subject each.
const MOST_SOURCE_LINES: usize = 400;

/// A longer function does several things.
const MOST_FUNCTION_LINES: usize = 60;

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

#[test]
fn imports_go_down_through_the_agents_rooms_and_never_round() {
    let texts = texts();
    let modules = Modules::of(texts.iter().map(|(path, text)| (path.as_str(), text.as_str())));
    let mut complaints = String::new();
    for used in modules.uses().iter().filter(|used| goes_up(used)) {
        writeln!(complaints, "{}:{}: must not know {}", used.from, used.line, used.to).expect("a string takes it");
    }
    for circle in modules.circles() {
        writeln!(complaints, "these use each other in a circle: {circle:#?}").expect("a string takes it");
    }
    assert!(complaints.is_empty(), "\n{complaints}");
}

/// Whether a room of the agent uses one that is not below it.
fn goes_up(used: &Use) -> bool {
    let floor = |path: &str| {
        let room = path.strip_prefix("src/agent/")?.trim_end_matches(".rs").split('/').next()?.to_owned();
        let (_, floor) = *ROOMS.iter().find(|(name, _)| *name == room)?;
        Some((room, floor))
    };
    let Some((room, own)) = floor(&used.from) else { return false };
    match floor(&used.to) {
        Some((other, above)) => other != room && above >= own,
        None => used.to.starts_with("src/agent/"),
    }
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
        let is_source = path.starts_with("src/");
        let most = if is_source { MOST_SOURCE_LINES } else { MOST_LINES };
        if lines > most {
            complaints.push((lines, format!("has {lines} lines; more than {most} are two subjects")));
        }
        for (name, line, lines) in source::functions(&source::words(text)) {
            if is_source && lines > MOST_FUNCTION_LINES {
                complaints.push((line, format!("`{name}` has {lines} lines; more than {MOST_FUNCTION_LINES} are two")));
            }
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
        ("src/store/a.rs", &format!("//! A.\n{}", "\n".repeat(400)), "401 has 401 lines"),
        ("src/store/a.rs", &format!("//! A.\nfn f() {{{}}}\n", "\n".repeat(60)), "2 `f` has 61 lines"),
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

#[test]
fn a_circle_and_a_room_that_knows_one_above_are_found() {
    let files = [
        ("src/lib.rs", "//! Root.\npub mod agent;\n"),
        ("src/agent/mod.rs", "mod admission;\nmod ledger;\npub use ledger::head::Head;\npub use admission::Started;\n"),
        ("src/agent/admission/mod.rs", "pub(super) mod start;\nuse crate::agent::Head;\npub struct Started;\n"),
        ("src/agent/admission/start.rs", "use super::Started;\nuse crate::agent::{ledger::{self, head}, Head as H};\n"),
        ("src/agent/ledger/mod.rs", "pub(super) mod head;\nfn f() { head::read() }\n"),
        ("src/agent/ledger/head.rs", "// use super::nothing;\npub struct Head;\n"),
    ];
    let uses = |files: &[(&'static str, &'static str)]| {
        let modules = Modules::of(files.iter().copied());
        let uses: Vec<_> =
            modules.uses().into_iter().map(|used| format!("{}:{} {}", used.from, used.line, used.to)).collect();
        let up: Vec<_> = modules.uses().iter().filter(|used| goes_up(used)).map(|used| used.to.clone()).collect();
        (uses, up, modules.circles())
    };
    let (found, up, circles) = uses(&files);
    let expected = [
        "src/agent/admission/mod.rs:2 src/agent/ledger/head.rs",
        "src/agent/admission/start.rs:1 src/agent/admission/mod.rs",
        "src/agent/admission/start.rs:2 src/agent/ledger/mod.rs",
        "src/agent/admission/start.rs:2 src/agent/ledger/head.rs",
        "src/agent/ledger/mod.rs:2 src/agent/ledger/head.rs",
    ];
    assert_eq!(found, expected);
    assert_eq!((up.len(), circles.len()), (0, 0));
    // The head now asks who started it, through a name that its grandparent hands on.
    let mut doctored = files;
    doctored[5].1 = "use super::super::Started;\npub struct Head;\n";
    let (_, up, circles) = uses(&doctored);
    assert_eq!(up, ["src/agent/admission/mod.rs"]);
    let circle: Vec<_> = circles.into_iter().flatten().collect();
    assert_eq!(circle, ["src/agent/admission/mod.rs", "src/agent/ledger/head.rs"]);
    // Nor does it matter that only its tests ask.
    doctored[5].1 = "pub struct Head;\n#[cfg(test)]\nmod tests { use super::super::super::Started; }\n";
    assert_eq!(uses(&doctored).2.len(), 0);
}
