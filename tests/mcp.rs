//! Servers of tools that the binary starts: what runs make of them, and what becomes of them.

mod accepting;
mod elicitation;
pub(crate) mod requests;

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::server::loopgate;
use crate::support::{Frame, Reply, TestServer, Upstream, within};

const ENDPOINT: &str = "/v1/agent/completions";

/// A scripted server with these options, as `test`, and an agent that has all of its tools.
fn config(upstream: &Upstream, options: &str, more: &str) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp/server.py");
    let command = format!("\"python3\", {:?}", script.display().to_string());
    format!(
        "{}[mcp.test]\ncommand = [{command}{options}]\n{more}\n[agents.default]\ntools = [\"test__*\"]\n",
        upstream.config()
    )
}

fn ask(on_unknown: &str) -> Value {
    let agent = json!({"on_unknown_outcome": on_unknown});
    json!({"model": "test", "messages": [{"role": "user", "content": "Go."}], "agent": agent})
}

/// What the model was told of its last call.
fn told(upstream: &Upstream) -> String {
    let requests = upstream.requests();
    let messages = requests.last().expect("there is one")["messages"].as_array().expect("there are some").clone();
    let last = messages.last().expect("there is one").clone();
    assert_eq!(last["role"], "tool", "{last}");
    last["content"].as_str().map_or_else(|| last["content"].to_string(), str::to_owned)
}

/// Waits until something is so.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(what, waiting).await;
}

/// Lets a run call a tool, and returns what the model was told.
async fn call(server: &TestServer, upstream: &Upstream, tool: &str, arguments: Value) -> String {
    upstream.then(Reply::calls(tool, &arguments));
    upstream.then(Reply::says("Done."));
    server.post(ENDPOINT, &ask("tell_model")).await.ok();
    told(upstream)
}

fn is_running(pid: &str) -> bool {
    // A process that has ended and whose parent has not waited for it is a zombie.
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[tokio::test]
async fn a_model_is_offered_the_tools_of_a_server_and_calls_them() {
    let upstream = Upstream::start([]).await;
    let server = TestServer::start(&config(&upstream, "", "")).await;
    assert_eq!(call(&server, &upstream, "test__echo", json!({"text": "hello"})).await, "hello");
    let requests = upstream.requests();
    let tools = requests[0]["tools"].as_array().expect("tools are offered").clone();
    let echo = tools.iter().find(|tool| tool["function"]["name"] == "test__echo").expect("it is one of them");
    assert_eq!(echo["function"]["description"], "Says the same.");
    assert_eq!(echo["function"]["parameters"]["properties"]["text"]["type"], "string");
    assert!(call(&server, &upstream, "test__echo", json!({"text": 7})).await.contains("not of type \"string\""));
}

#[tokio::test]
async fn of_a_call_in_which_a_server_dies_the_outcome_is_unknown_and_the_server_is_started_again() {
    let upstream = Upstream::start([Reply::calls("test__die", &json!({})), Reply::says("Done.")]).await;
    let server = TestServer::start(&config(&upstream, "", "effect = { read = [\"echo\"] }")).await;
    let answer = server.post(ENDPOINT, &ask("tell_model")).await.ok();
    let call_made = &answer["agent"]["report"]["steps"][0]["tool_calls"][0];
    assert_eq!(call_made["outcome_unknown"], true, "{answer}");
    assert!(told(&upstream).contains("Whether it took effect is unknown"), "{}", told(&upstream));
    assert_eq!(call(&server, &upstream, "test__echo", json!({"text": "again"})).await, "again");
    upstream.then(Reply::calls("test__die", &json!({})));
    let failed = server.post(ENDPOINT, &ask("fail")).await;
    assert_eq!(failed.code(), "outcome_unknown", "{}", failed.body);
}

#[tokio::test]
async fn progress_is_streamed_and_a_cancelled_run_cancels_its_call() {
    let file = tempfile::NamedTempFile::new().expect("it can be made");
    let journal = || std::fs::read_to_string(file.path()).expect("it is there");
    let options = format!(", \"--journal\", {:?}", file.path().display().to_string());
    let upstream = Upstream::start([Reply::calls("test__slow", &json!({"seconds": 1})), Reply::says("Done.")]).await;
    let server = TestServer::start(&config(&upstream, &options, "")).await;
    let mut request = ask("fail");
    request["stream"] = true.into();
    let stream = server.stream(ENDPOINT, &request).await;
    let events = stream.rest().await;
    let reports: Vec<Value> = events.iter().filter(|frame| frame.name == "tool.progress").map(Frame::json).collect();
    assert!(!reports.is_empty() && reports[0]["name"] == "test__slow", "{events:?}");
    upstream.then(Reply::calls("test__hang", &json!({})));
    let mut stream = server.stream(ENDPOINT, &request).await;
    let frames = stream.until(|frame| frame.name == "tool.call").await;
    let started = frames.iter().find(|frame| frame.name == "run.started").expect("it began").json();
    let run = started["run_id"].as_str().expect("it has an id");
    server.post(&format!("/v1/runs/{run}/cancel"), &json!({})).await.ok();
    until("the cancellation", || journal().contains("notifications/cancelled")).await;
}

#[tokio::test]
async fn a_reload_keeps_servers_that_it_does_not_change_and_ends_the_others() {
    let upstream = Upstream::start([]).await;
    let same = config(&upstream, "", "");
    let server = TestServer::start(&same).await;
    let pid = call(&server, &upstream, "test__pid", json!({})).await;
    server
        .reload(&same.replace("[agents.default]", "[agents.default.limits]\nmax_iterations = 7\n[agents.default]"))
        .await;
    assert_eq!(call(&server, &upstream, "test__pid", json!({})).await, pid, "it is the same process");
    server.reload(&config(&upstream, "", "timeout = \"7s\"")).await;
    until("the end of the old process", || !is_running(&pid)).await;
    until("the tools of the new one", || server.output().matches("listed its tools").count() == 2).await;
    let other = call(&server, &upstream, "test__pid", json!({})).await;
    assert!(other != pid && is_running(&other));
    server.reload(&format!("{}[agents.default]\ntools = []\n", upstream.config())).await;
    until("the end of the last process", || !is_running(&other)).await;
}

#[tokio::test]
async fn servers_end_with_the_process_and_what_they_have_started_too() {
    let upstream = Upstream::start([]).await;
    let mut server = TestServer::start(&config(&upstream, ", \"--stay\"", "")).await;
    let pid = call(&server, &upstream, "test__pid", json!({})).await;
    let child = call(&server, &upstream, "test__child", json!({})).await;
    assert!(is_running(&pid) && is_running(&child));
    server.sigterm();
    server.ended().await;
    assert!(!is_running(&pid) && !is_running(&child), "{}", server.output());
}

#[tokio::test]
async fn a_server_is_ready_once_its_tools_are_known_or_their_time_is_up() {
    let upstream = Upstream::start([]).await;
    let slow = TestServer::start(&config(&upstream, ", \"--delay\", \"2\"", "")).await;
    assert_eq!(call(&slow, &upstream, "test__echo", json!({"text": "there"})).await, "there");
    let dead = TestServer::start(&config(&upstream, ", \"--hang\"", "start_timeout = \"1s\"")).await;
    upstream.then(Reply::says("Without tools."));
    let answer = dead.post(ENDPOINT, &ask("fail")).await.ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "Without tools.");
}

#[tokio::test]
async fn no_secret_of_a_server_is_logged_or_told() {
    let upstream = Upstream::start([]).await;
    let more = "env = { TOKEN = { env = \"TEST_TOKEN\" } }";
    let server =
        TestServer::builder(&config(&upstream, "", more)).env("TEST_TOKEN", "sk-hush").env("LOOPGATE_LOG", "debug");
    let server = server.start().await;
    let told = call(&server, &upstream, "test__env", json!({"name": "TOKEN"})).await;
    assert_eq!(told, "***", "the model is not told it either");
    server.logged("started with ***").await;
    assert!(!server.output().contains("sk-hush"), "{}", server.output());
}

#[tokio::test]
async fn the_commands_about_tools_start_servers_and_end_them() {
    let upstream = Upstream::start([]).await;
    let directory = tempfile::tempdir().expect("it can be made");
    let file = directory.path().join("loopgate.toml");
    let missing = "[mcp.missing]\ncommand = \"no-such-program\"\n";
    std::fs::write(&file, format!("{}{missing}", config(&upstream, "", ""))).expect("it can be written");
    let file = file.display().to_string();
    let run = async |arguments: &[&str]| {
        let mut command = loopgate(directory.path());
        command.args(arguments).args(["--config", &file]).stdin(std::process::Stdio::null()).kill_on_drop(true);
        let done = within("the command", command.output()).await.expect("it starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (done.status.code(), text(&done.stdout), text(&done.stderr))
    };
    let (code, listed, complaints) = run(&["tools", "list", "test__*", "--json"]).await;
    assert!(code == Some(0) && listed.contains("\"test__echo\"") && listed.contains("\"mcp\""), "{listed}{complaints}");
    assert!(complaints.contains("The MCP server `missing` cannot be used: `no-such-program` cannot be started"));
    let (code, pid, complaints) = run(&["tools", "call", "test__pid"]).await;
    assert!(code == Some(0) && !is_running(pid.trim()), "{pid}{complaints}");
    let (code, ..) = run(&["tools", "call", "test__die"]).await;
    assert_eq!(code, Some(4), "whether it took effect is not known");
    let (code, found, complaints) = run(&["tools", "check"]).await;
    assert_eq!(code, Some(1), "{found}{complaints}");
    assert!(found.contains("mcp.missing") && found.contains("mcp.test"), "{found}{complaints}");
}
