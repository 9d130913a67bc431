//! What each client has been seen to do with the server. Each program of `tests/sdk` says which of its cases check what of
//! which client, or why none does; the table of `docs/clients.md` is made of that.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::script;

/// What a client can make of the server, in the order of the table.
pub(super) const CAPABILITIES: [&str; 10] = [
    "text",
    "server tool",
    "client tool",
    "approval",
    "structured output",
    "failure",
    "limit",
    "cancel",
    "resume",
    "background",
];
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/clients.md");
const BEGIN: &str = "<!-- clients: begin -->\n";
const END: &str = "<!-- clients: end -->";
/// What begins the words of a program about a client, and those about a capability that no case checks.
const HEADING: &str = "Checks of ";
const NONE: &str = "none: ";

/// What one program says of a client.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Client {
    pub(super) name: String,
    /// For each capability the cases that check it, or why none does.
    pub(super) checks: Vec<Result<Vec<String>, String>>,
}

/// The clients of which a program speaks, in the comment that it begins with.
pub(super) fn clients_of(program: &str, text: &str) -> Result<Vec<Client>, String> {
    let mut clients: Vec<Client> = Vec::new();
    let mut lines = text.lines().map(|line| line.trim_start_matches("//").trim());
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix(HEADING).and_then(|rest| rest.strip_suffix(':')) else { continue };
        let mut checks = Vec::new();
        for capability in CAPABILITIES {
            let said = lines.next().and_then(|line| line.strip_prefix(capability)?.strip_prefix(": "));
            let said = said.ok_or_else(|| format!("{program}: {name}: {capability} should come next"))?;
            checks.push(match said.strip_prefix(NONE) {
                Some(why) => Err(why.to_owned()),
                None => Ok(said.split(", ").map(str::to_owned).collect()),
            });
        }
        clients.push(Client { name: name.to_owned(), checks });
    }
    Ok(clients)
}

/// The texts of the files below a directory with one of these extensions, by name.
fn texts(directory: &Path, extensions: &[&str]) -> Vec<(String, String)> {
    let entries = fs::read_dir(directory).expect("the directory is there").flatten();
    let mut found: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extensions.iter().any(|wanted| extension == *wanted)))
        .map(|path| (path.file_name().unwrap_or_default().to_string_lossy().into_owned(), path))
        .map(|(name, path)| (name, fs::read_to_string(path).expect("it can be read")))
        .collect();
    found.sort();
    found
}

/// What is wrong with the cases that a program names: each must be in the program, and a test that drives it must run it.
fn complaints(program: &str, text: &str, clients: &[Client], tests: &[(String, String)]) -> Vec<String> {
    let stem = program.split('.').next().unwrap_or(program);
    let drivers: Vec<_> = tests.iter().filter(|(_, test)| test.contains(&format!("\"{stem}"))).collect();
    let cases: BTreeSet<&String> = clients.iter().flat_map(|client| client.checks.iter().flatten().flatten()).collect();
    let mut found = Vec::new();
    for case in cases {
        // Programs that speak several APIs name it before the case, and are asked for what stands in their comment.
        let (name, is_asked) = match case.split_once(' ') {
            Some((_, name)) => (name, drivers.iter().any(|(_, test)| test.contains("clients_of("))),
            None => (case.as_str(), drivers.iter().any(|(_, test)| test.contains(&format!("\"{case}\"")))),
        };
        let forms = [
            format!("def {name}("),
            format!(" {name}: "),
            format!(" {name}("),
            format!("\"{name}\""),
            format!("'{name}'"),
        ];
        if !forms.iter().any(|form| text.contains(form)) {
            found.push(format!("{program} has no case {name}"));
        }
        if !is_asked {
            found.push(format!("no test runs the case {name} of {program}"));
        }
    }
    found
}

/// The table, and below it why cells are empty.
fn table(clients: &[Client]) -> String {
    let mut reasons: Vec<&str> = Vec::new();
    let mut written =
        format!("\n| client | {} |\n|{}\n", CAPABILITIES.join(" | "), " --- |".repeat(CAPABILITIES.len() + 1));
    for client in clients {
        let cells = client.checks.iter().map(|check| match check {
            Ok(_) => "yes".to_owned(),
            Err(why) => {
                let known = reasons.iter().position(|reason| reason == why);
                let at = known.unwrap_or_else(|| {
                    reasons.push(why);
                    reasons.len() - 1
                });
                format!("– ({})", at + 1)
            }
        });
        written.extend(["| ", client.name.as_str(), " | ", &cells.collect::<Vec<_>>().join(" | "), " |\n"]);
    }
    let reasons = reasons.iter().enumerate().map(|(at, why)| format!("{}. {why}\n", at + 1));
    format!("{written}\n{}\n", reasons.collect::<String>())
}

/// `UPDATE_DOCS=1 cargo test --test it sdk::matrix` writes the table anew.
#[test]
fn the_table_of_clients_is_what_their_programs_check() {
    let directory = script("client.py").with_file_name("");
    let mut tests = texts(&directory, &["rs"]);
    tests.extend(texts(&directory.with_file_name(""), &["rs"]).into_iter().filter(|(name, _)| name == "sdk.rs"));
    tests.retain(|(name, _)| name != "matrix.rs");
    let (mut clients, mut wrong) = (Vec::new(), Vec::new());
    for (program, text) in texts(&directory, &["py", "mjs"]) {
        let of = clients_of(&program, &text).unwrap_or_else(|complaint| panic!("{complaint}"));
        wrong.extend(complaints(&program, &text, &of, &tests));
        clients.extend(of);
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    clients
        .sort_by(|one, other| one.name.trim_start_matches(['`', '@']).cmp(other.name.trim_start_matches(['`', '@'])));
    let page = fs::read_to_string(PAGE).expect("the page is there");
    let (before, rest) = page.split_once(BEGIN).expect("the table begins");
    let (written, after) = rest.split_once(END).expect("the table ends");
    let rendered = table(&clients);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(PAGE, format!("{before}{BEGIN}{rendered}{END}{after}")).expect("the page can be written to");
    } else {
        assert_eq!(written, rendered, "UPDATE_DOCS=1 cargo test --test it sdk::matrix writes docs/clients.md anew");
    }
}

#[test]
fn a_case_that_is_missing_or_never_run_is_noticed() {
    let all = |case: &str| CAPABILITIES.map(|capability| format!("  {capability}: {case}")).join("\n");
    let program = format!("\"\"\"X.\n\nChecks of `x`:\n{}\n\"\"\"\ndef chat():\n", all("chat"));
    let clients = clients_of("x.py", &program).expect("it says all");
    assert_eq!(clients[0].checks, vec![Ok(vec!["chat".to_owned()]); CAPABILITIES.len()]);
    let test = |text: &str| [("x.rs".to_owned(), text.to_owned())];
    let runs = r#"both("x", "chat")"#;
    assert!(complaints("x.py", &program, &clients, &test(runs)).is_empty());
    let never = complaints("x.py", &program, &clients, &test(r#"both("x", "other")"#));
    assert_eq!(never, ["no test runs the case chat of x.py"]);
    let missing = complaints("x.py", "", &clients, &test(runs));
    assert_eq!(missing, ["x.py has no case chat"]);
    let lacks = program.replace("  limit: chat\n", "");
    assert_eq!(clients_of("x.py", &lacks).unwrap_err(), "x.py: `x`: limit should come next");
    let told = clients_of("x.mjs", &format!("// Checks of `x`:\n{}", all("none: it cannot").replace("  ", "//   ")));
    assert_eq!(told.expect("it says all")[0].checks[0], Err("it cannot".to_owned()));
}
