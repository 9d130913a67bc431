//! The description of the HTTP contract, as programs read it: clients are generated from it and used, and
//! schemathesis asks the server for everything that the description says, and for what it forbids.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::Command;

use super::{installed, script};
use crate::support::TestServer;
use crate::support::seed::Seed;

/// The committed description.
const DESCRIPTION: &str = "openapi/openapi.json";
/// How long a generator, a compiler or a client may take. Generous: it is reached only by a failure.
const TOOL_TIMEOUT: Duration = Duration::from_secs(120);
/// What the server must always hold to, whatever it is asked.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
    response_headers_conformance,response_schema_conformance,unsupported_method,allow_header_conformance,\
    missing_required_header,ignored_auth";

fn description() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(DESCRIPTION)
}

/// Runs a tool to its end and returns what it printed.
async fn run_tool(mut command: Command, at_most: Duration) -> String {
    command.stdin(Stdio::null()).kill_on_drop(true);
    let done = tokio::time::timeout(at_most, command.output()).await;
    let done = done.unwrap_or_else(|_| panic!("{command:?} took longer than {} s", at_most.as_secs()));
    let done = done.expect("it starts");
    let printed = String::from_utf8_lossy(&done.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?}:\n{printed}{complaint}");
    printed
}

fn printed_json(printed: &str) -> Value {
    serde_json::from_str(printed).unwrap_or_else(|error| panic!("it prints JSON: {error}\n{printed}"))
}

#[tokio::test]
async fn a_generated_python_client_asks_both_endpoints() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let python = installed("LOOPGATE_TEST_PYTHON", "python/bin/python");
    let mut generate = Command::new(python.with_file_name("openapi-python-client"));
    let (path, output) = (description(), directory.path().join("described"));
    generate.arg("generate").arg("--path").arg(path).args(["--meta", "none", "--output-path"]).arg(output);
    let printed = run_tool(generate, TOOL_TIMEOUT).await;
    assert!(!printed.contains("WARNING"), "the client lacks something:\n{printed}");

    let server = TestServer::start("").await;
    let mut client = Command::new(&python);
    client.arg(script("generated.py")).arg(directory.path()).arg(server.url());
    let answer = "[demo model] 6 * 7 = 42.";
    let events = [
        "RunStartedEvent",
        "StepStartedEvent",
        "ToolCallEvent",
        "ToolResultEvent",
        "StepCompletedEvent",
        "StepStartedEvent",
        "ChatChunk",
        "StepCompletedEvent",
        "RunCompletedEvent",
    ];
    let mut seen = printed_json(&run_tool(client, TOOL_TIMEOUT).await);
    // The text comes in one piece or several.
    let names = seen["events"].as_array_mut().expect("it is a list");
    names.dedup_by(|next, before| next == before && next == "ChatChunk");
    let expected = json!({
        "contents": [answer, answer], "run": ["completed", "done"], "cancelled": "completed", "runs": 2,
        "events": events, "messages": ["user"], "message_count": 4, "refused": "model_not_found",
    });
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn a_generated_typescript_client_asks_both_endpoints() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let modules = installed("LOOPGATE_TEST_NODE_MODULES", "node/node_modules");
    std::os::unix::fs::symlink(&modules, directory.path().join("node_modules")).expect("it can be linked to");
    fs::copy(script("generated.ts"), directory.path().join("generated.ts")).expect("it can be copied");
    let mut generate = Command::new("node");
    generate.arg(modules.join("openapi-typescript/bin/cli.js")).arg(description()).arg("--output").arg("described.ts");
    run_tool(in_directory(generate, directory.path()), TOOL_TIMEOUT).await;
    let mut compile = Command::new("node");
    compile.arg(modules.join("typescript/bin/tsc")).arg("generated.ts");
    compile.args(["--strict", "--target", "es2022", "--module", "node16", "--moduleResolution", "node16"]);
    compile.args(["--lib", "es2022,dom", "--skipLibCheck"]);
    fs::write(directory.path().join("process.d.ts"), "declare const process: { argv: string[] };\n")
        .expect("it can be written to");
    compile.arg("process.d.ts");
    run_tool(in_directory(compile, directory.path()), TOOL_TIMEOUT).await;

    let server = TestServer::start("").await;
    let mut client = Command::new("node");
    client.arg("generated.js").arg(server.url());
    let answer = "[demo model] 6 * 7 = 42.";
    let seen = printed_json(&run_tool(in_directory(client, directory.path()), TOOL_TIMEOUT).await);
    assert_eq!(seen, json!({"contents": [answer, answer], "first": true, "refused": "run_not_found"}));
}

fn in_directory(mut command: Command, directory: &Path) -> Command {
    command.current_dir(directory);
    command
}

/// Every answer is one that the description has: status, headers, media type and body. A plain run asks for a
/// sample, `scripts/prove` for everything.
#[tokio::test]
async fn every_answer_is_as_described() {
    let is_full = std::env::var("LOOPGATE_FAULTS").is_ok_and(|extent| extent == "full");
    let (examples, at_most) = if is_full { ("200", 1_800) } else { ("4", 120) };
    let directory = tempfile::tempdir().expect("a directory can be made");
    let python = installed("LOOPGATE_TEST_PYTHON", "python/bin/python");
    let server = TestServer::start("").await;
    let mut command = Command::new(python.with_file_name("schemathesis"));
    command.arg("run").arg(description()).args(["--url", server.url(), "--checks", CHECKS]);
    command.args(["--max-examples", examples, "--generation-database", "none", "--warnings", "off"]);
    command.arg("--seed").arg(Seed::of_this_run().number().to_string());
    run_tool(in_directory(command, directory.path()), Duration::from_secs(at_most)).await;
    assert_eq!(server.get("/healthz").await.status, 200);
}
