//! Everything that scripts, tests and benchmarks start is installed: `scripts/programs` has it, by which
//! `scripts/common.sh` installs, and what stands there is started somewhere.

mod shell;

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::texts;

/// The scripts that can be named in the list. `.ci/run` is the whole of `test`.
const SCRIPTS: [&str; 7] = ["run", "test", "prove", "dist", "sbom", "check-k8s", "check-prices"];

/// How Rust code starts a program; the first argument names it. The second is our own, for a server that
/// must not outlive its test.
const STARTERS: [&str; 2] = ["Command::new(", "bound_to_this_process("];
/// How the Python and JavaScript code of the tests would.
const OTHER_STARTERS: [&str; 6] = ["subprocess.", "os.system(", "os.popen(", "os.exec", "os.spawn", "child_process"];

/// Programs that are no package's: what is built here, what the script has just installed under `target`,
/// and what somebody hands in. By the file and the expression.
const OURS: [(&str, &str); 41] = [
    ("tests/library.rs", "built"),
    ("src/process.rs", "path"),
    (".ci/run", "$()/../scripts/test"),
    ("tests/support/server/process.rs", "path"),
    ("tests/sdk.rs", "installed(\"LOOPGATE_TEST_PYTHON\", \"python/bin/python\")"),
    ("tests/examples.rs", "built"),
    ("tests/examples.rs", "installed(\"LOOPGATE_TEST_PYTHON\", \"python/bin/python\")"),
    ("tests/pages/browser.mjs", "child_process';"),
    ("benches/e2e/process.rs", "executable"),
    ("tests/k8s/check.py", "subprocess.run(arguments,"),
    ("docs/pictures/lab.py", "subprocess.Popen(command,"),
    ("scripts/common.sh", "$@"),
    ("scripts/run", "$loopgate"),
    ("tests/sdk/collector.rs", "&python"),
    ("tests/sdk/description.rs", "&python"),
    ("tests/sdk/description.rs", "python.with_file_name(\"openapi-python-client\")"),
    ("tests/sdk/description.rs", "python.with_file_name(\"schemathesis\")"),
    ("scripts/link-by-use", "$output"),
    ("scripts/link-by-use", "$scratch/loopgate"),
    ("scripts/clients.sh", "$LOOPGATE_TEST_PYTHON"),
    ("scripts/prove", "$LOOPGATE_TEST_PYTHON"),
    ("tests/sdk/command_lines/prove.py", "subprocess.run(command,"),
    ("tests/sdk/command_lines/prove.py", "subprocess.Popen(command,"),
    ("scripts/test", "scripts/clients.sh"),
    ("scripts/prove", "scripts/clients.sh"),
    ("scripts/test", "scripts/check-k8s"),
    ("scripts/test", "scripts/check-prices"),
    ("scripts/test", "scripts/check-docs"),
    ("scripts/test", "scripts/run"),
    ("scripts/check-docs", "scripts/clients.sh"),
    ("scripts/check-docs", "$LOOPGATE_TEST_PYTHON"),
    ("scripts/check-docs", "${pip[@]}"),
    ("tests/docs/check.py", "subprocess.run(command,"),
    ("tests/docs/book.py", "subprocess.run(command,"),
    ("tests/docs/shell.py", "subprocess.Popen(command,"),
    ("tests/sdk/conformance.sh", "$loopgate"),
    ("scripts/check-k8s", "${pip[@]}"),
    ("scripts/check-k8s", "$tools/bin/kubectl"),
    ("scripts/check-k8s", "$tools/bin/helm"),
    ("scripts/check-k8s", "$tools/bin/python"),
    ("scripts/check-k8s", "$tools/bin/yamllint"),
];

#[test]
fn every_program_that_is_started_is_installed() {
    let files = texts();
    let (_, list) = files.iter().find(|(path, _)| path == "scripts/programs").expect("the list is there");
    let sourced = files.iter().filter(|(path, _)| ["scripts/common.sh", "scripts/clients.sh"].contains(&path.as_str()));
    let common: String = sourced.map(|(_, text)| text.as_str()).collect();
    let mut complaints = Vec::new();
    let mut needed = BTreeSet::new();
    for (path, text) in &files {
        let found = judge(path, text, list, &common);
        complaints.extend(found.complaints);
        needed.extend(found.needed);
    }
    // Rust starts the first to link, and the build of the allocator both.
    needed.extend(["cc", "make"].map(|program| (program.to_owned(), "all".to_owned())));
    for (program, users) in listed(list) {
        for user in users.iter().filter(|user| !needed.contains(&(program.to_owned(), (**user).to_owned()))) {
            complaints.push(format!("scripts/programs: nothing starts {program} for {user}"));
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[derive(Debug, Default)]
struct Findings {
    complaints: Vec<String>,
    /// Programs and the scripts that need them.
    needed: BTreeSet<(String, String)>,
}

/// The programs of `scripts/programs`, and the scripts for which each is installed.
fn listed(list: &str) -> BTreeMap<&str, Vec<&str>> {
    let lines = list.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let lines = lines.map(|line| line.split_whitespace().collect::<Vec<_>>());
    let lines = lines.inspect(|columns| assert_eq!(columns.len(), 3, "scripts/programs: {columns:?}"));
    lines.flat_map(|columns| columns[0].split(',').map(move |name| (name, columns[2].split(',').collect()))).collect()
}

/// Compares what a file starts with the list.
fn judge(path: &str, text: &str, list: &str, common: &str) -> Findings {
    let listed = listed(list);
    let mut findings = Findings::default();
    for program in started(path, text, common) {
        if OURS.contains(&(path, &program)) {
            continue;
        }
        match listed.get(&*program) {
            None => findings.complaints.push(format!("{path} starts {program}, which is not in scripts/programs")),
            Some(for_whom) => {
                for user in users(path) {
                    if for_whom.contains(&"all") || for_whom.contains(&user) {
                        let user = if for_whom.contains(&"all") { "all" } else { user };
                        findings.needed.insert((program.clone(), user.to_owned()));
                    } else {
                        findings.complaints.push(format!("{path} starts {program}: scripts/{user} must install it"));
                    }
                }
            }
        }
    }
    findings
}

/// The scripts in which a file has a part.
fn users(path: &str) -> Vec<&str> {
    match path.strip_prefix("scripts/") {
        Some("common.sh") => SCRIPTS.to_vec(),
        Some("clients.sh") => vec!["test", "prove"],
        Some("link-by-use") => vec!["dist"],
        // It is a part of scripts/test that can be run alone.
        Some("check-docs") => vec!["test"],
        Some(script) => vec![script],
        None if path.starts_with("tests/k8s/") => vec!["check-k8s"],
        None if path.starts_with("tests/sdk/")
            || path.starts_with("tests/support/")
            || path.starts_with("tests/faults/") =>
        {
            vec!["test", "prove"]
        }
        // What scripts/test counts with; the other benchmarks are run by hand.
        None if path == "benches/e2e/callgrind.rs" => vec!["test"],
        None if path.starts_with("benches/") => Vec::new(),
        None => vec!["test"],
    }
}

/// The programs that a file starts, by name or by the expression that names it.
fn started(path: &str, text: &str, common: &str) -> BTreeSet<String> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let lines = || text.lines().filter(|line| !line.trim_start().starts_with("//"));
    match name.rsplit_once('.').map_or("", |(_, extension)| extension) {
        // The list of the programs itself starts none.
        _ if path == "scripts/programs" || path == "tests/programs.rs" => BTreeSet::new(),
        "rs" if text.contains("process::") => lines().flat_map(started_by_rust).collect(),
        "py" | "mjs" | "js" => lines().flat_map(started_by_others).collect(),
        "sh" | "" if path.starts_with("scripts/") || text.starts_with("#!") => {
            let mut started = shell::started(text);
            started.retain(|word| !shell::functions(text).chain(shell::functions(common)).any(|ours| ours == word));
            started
        }
        _ => BTreeSet::new(),
    }
}

fn started_by_rust(line: &str) -> Vec<String> {
    let calls = STARTERS.iter().flat_map(|starter| line.match_indices(starter));
    let calls = calls.filter(|(at, _)| !line[..*at].ends_with("fn "));
    calls.map(|(at, starter)| first_argument(&line[at + starter.len()..])).collect()
}

/// The expression up to the comma or bracket that ends it; a string without its quotes.
fn first_argument(text: &str) -> String {
    let mut depth = 0;
    let end = text.char_indices().find(|(_, c)| {
        depth += i32::from(*c == '(') - i32::from(*c == ')');
        depth < 0 || (depth == 0 && *c == ',')
    });
    let argument = &text[..end.map_or(text.len(), |(at, _)| at)];
    argument.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(argument).to_owned()
}

fn started_by_others(line: &str) -> Vec<String> {
    let calls = OTHER_STARTERS.iter().filter_map(|starter| line.find(starter));
    let call = |at: usize| line[at..].split_whitespace().next().unwrap_or_default().to_owned();
    let spawned = line.split("spawn('").skip(1).filter_map(|rest| rest.split('\'').next());
    calls.map(call).chain(spawned.map(str::to_owned)).collect()
}

#[test]
fn a_program_that_nobody_installs_is_noticed() {
    let list =
        "# PROGRAMS PACKAGES FOR\nbash,env bash all\nhaproxy haproxy test\nredis-server redis-server test,prove\n";
    let common = "fail() { :; }\n";
    let rust = |line: &str| format!("use std::process::Command;\nfn f() {{ {line} }}\n");
    for (path, text, complaint) in [
        ("tests/new.rs", rust("Command::new(\"tcpdump\").arg(\"-i\");"), "starts tcpdump, which is not in"),
        ("src/store/x.rs", rust("Command::new(\"kill\");"), "starts kill, which is not in"),
        ("tests/new.rs", rust("Command::new(which(\"a\", 1));"), "starts which(\"a\", 1), which is not in"),
        ("tests/faults/x.rs", rust("Command::new(\"haproxy\");"), "starts haproxy: scripts/prove must install it"),
        ("tests/x.rs", rust("bound_to_this_process(\"nginx\");"), "starts nginx, which is not in"),
        ("tests/sdk/x.py", "subprocess.run([\"ps\"])\n".to_owned(), "starts subprocess.run([\"ps\"]), which"),
        ("tests/sdk/x.mjs", "import 'node:child_process';\n".to_owned(), "starts child_process'"),
        ("tests/sdk/x.mjs", "const child = spawn('chromium', []);\n".to_owned(), "starts chromium, which is not in"),
        ("scripts/new", "#!/usr/bin/env bash\nfail | jq .\n".to_owned(), "starts jq, which is not in"),
        ("scripts/run", "#!/usr/bin/env bash\n[ -e x ] || haproxy -v\n".to_owned(), "starts haproxy: scripts/run must"),
        (".ci/x", "#!/bin/sh\n".to_owned(), "starts sh, which is not in"),
    ] {
        let complaints = judge(path, &text, list, common).complaints;
        assert!(complaints.len() == 1 && complaints[0].contains(complaint), "{complaint}: {complaints:?}");
    }
    for (path, text) in [
        ("tests/new.rs", rust("\n// Command::new(\"a\")\n Command::new(\"haproxy\");")),
        ("tests/faults/x.rs", rust("bound_to_this_process(\"redis-server\");")),
        ("scripts/run", "#!/usr/bin/env bash\nfail haproxy # curl\n".to_owned()),
        ("src/x.rs", "use clap::Command;\nfn f() { Command::new(\"x\"); }\n".to_owned()),
    ] {
        let complaints = judge(path, &text, list, common).complaints;
        assert!(complaints.is_empty(), "{complaints:?}");
    }
}
