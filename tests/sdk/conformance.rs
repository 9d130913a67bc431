//! The published conformance scenarios of the Model Context Protocol, played by the command line of Loopgate.

use std::path::Path;

use tokio::process::Command;

use super::installed;
use crate::support::within;

/// The scenarios that are played.
const PLAYED: [&str; 3] = ["initialize", "tools_call", "sse-retry"];

/// The other scenarios by the beginnings of their names, each with why it is not.
const NOT_PLAYED: [(&str, &str); 2] = [
    (
        "elicitation-",
        "asks a client to accept a form with its defaults; a server of tools is given no answers of users here",
    ),
    ("auth/", "begins with a user who signs in; a server is given the credentials that the operator names"),
];

/// The runner with these arguments: whether it found fault, and what it wrote.
async fn runner(arguments: &[&str]) -> (bool, String) {
    let program = installed("LOOPGATE_TEST_NODE_MODULES", "node/node_modules")
        .join("@modelcontextprotocol/conformance/dist/index.js");
    let mut command = Command::new("node");
    command.arg(program).args(arguments).env("NO_COLOR", "1").kill_on_drop(true);
    let done = within("the conformance runner", command.output()).await.expect("it starts");
    let text = [done.stdout, done.stderr].concat();
    (done.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// How many checks a scenario made and passed; `None` if any failed.
fn passed(report: &str) -> Option<u32> {
    let counts = report.lines().find_map(|line| line.strip_prefix("Passed: "))?;
    let (passed, rest) = counts.split_once('/')?;
    let (all, rest) = rest.split_once(", ")?;
    (passed == all && rest.starts_with("0 failed, 0 warnings")).then(|| passed.parse().ok())?
}

#[tokio::test]
async fn each_published_scenario_passes_or_says_why_it_is_not_played() {
    let (_, listed) = runner(&["list"]).await;
    let clients = listed.split("Client scenarios").nth(1).expect("it lists scenarios for clients");
    let scenarios: Vec<&str> = clients.lines().filter_map(|line| line.trim().strip_prefix("- ")).collect();
    assert!(scenarios.len() > PLAYED.len(), "{listed}");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sdk/conformance.sh");
    for scenario in scenarios {
        if NOT_PLAYED.iter().any(|(beginning, _)| scenario.starts_with(beginning)) {
            continue;
        }
        assert!(PLAYED.contains(&scenario), "nothing is said of the scenario {scenario}");
        let directory = tempfile::tempdir().expect("it can be made");
        let (script, loopgate, place) = (script.display(), env!("CARGO_BIN_EXE_loopgate"), directory.path().display());
        let client = format!("{script} {loopgate} {place} {scenario}");
        let (is_well, report) = runner(&["client", "--command", &client, "--scenario", scenario]).await;
        let checks = passed(&report);
        assert!(is_well && checks.is_some_and(|checks| checks > 0), "{scenario}: {report}");
    }
}

#[test]
fn a_scenario_without_checks_or_with_a_warning_has_not_passed() {
    assert_eq!(passed("Passed: 2/2, 0 failed, 0 warnings"), Some(2));
    assert_eq!(passed("Passed: 0/0, 0 failed, 0 warnings"), Some(0));
    for report in ["", "Passed: 1/2, 1 failed, 0 warnings", "Passed: 2/2, 0 failed, 1 warnings"] {
        assert_eq!(passed(report), None, "{report}");
    }
}
