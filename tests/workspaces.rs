//! Files that models write stay with their session: through crashes, and until the session is deleted.

use std::path::Path;

use reqwest::Method;
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

use crate::support::server::loopgate;
use crate::support::{Gate, Reply, TestServer, Upstream, within};

const ENDPOINT: &str = "/v1/agent/completions";

/// What a configuration says of files in this directory.
fn config(directory: &Path) -> String {
    let directory = directory.display();
    format!("[workspace]\ndirectory = '{directory}'\n[agents.default]\ntools = [\"*_file\", \"list_files\"]\n")
}

fn ask(session: &str) -> Value {
    json!({"model": "test", "stream": true, "messages": [{"role": "user", "content": "Go"}], "agent": {"session_id": session}})
}

/// The last result that a model was told in a request.
fn told(request: &Value) -> String {
    let messages = request["messages"].as_array().expect("a request has messages");
    let result = messages.iter().rev().find(|message| message["role"] == "tool").expect("it has a result");
    result["content"].to_string()
}

#[tokio::test]
async fn a_file_outlives_the_server_that_wrote_it_and_goes_with_its_session() {
    let (root, gate) = (tempdir().expect("a directory can be made"), Gate::new());
    let write = json!({"path": "notes/a.md", "content": "Remember the milk."});
    let upstream = Upstream::start([
        Reply::calls("write_file", &write),
        Reply::stream().text("I wro").gate(&gate).text("te").finish("stop").usage(10, 5).done(),
        Reply::calls("read_file", &json!({"path": "notes/a.md"})),
        Reply::says("Milk."),
        Reply::calls("list_files", &json!({})),
        Reply::says("Nothing."),
    ])
    .await;
    let mut server = TestServer::start(&format!("{}{}", upstream.config(), config(root.path()))).await;
    let mut stream = server.stream(ENDPOINT, &ask("s1")).await;
    let first = stream.until(|frame| frame.text().is_some()).await;
    gate.reached().await;
    server.kill9().await;
    stream.until_broken().await;
    let run = first[0].json()["run_id"].as_str().expect("a run has an id").to_owned();
    server.restart().await;
    let rest = server.events(&run, 0).await.rest().await;
    assert!(rest.iter().any(|frame| frame.name == "run.completed"), "{rest:?}");
    let requests = upstream.received(4).await;
    assert!(told(&requests[1]).contains("was written: 18 bytes"), "{}", told(&requests[1]));
    assert!(told(&requests[3]).contains("Remember the milk."), "{}", told(&requests[3]));
    let there = root.path().join("t-default/s-s1/files/notes/a.md");
    assert_eq!(std::fs::read_to_string(&there).expect("the file is there"), "Remember the milk.");

    let deleted = server.respond(server.request(Method::DELETE, "/v1/sessions/s1")).await;
    assert!(deleted.status().is_success(), "{deleted:?}");
    assert!(!there.exists());
    let mut stream = server.stream(ENDPOINT, &ask("s1")).await;
    stream.until(|frame| frame.name == "run.completed").await;
    let requests = upstream.received(6).await;
    assert!(told(&requests[5]).contains("The workspace has 0 files"), "{}", told(&requests[5]));
}

#[tokio::test]
async fn a_run_without_a_session_leaves_no_files() {
    let root = tempdir().expect("a directory can be made");
    let call = |path: &str| Reply::calls("write_file", &json!({"path": path, "content": "x"}));
    let upstream = Upstream::start([call("a"), call("../a"), Reply::says("Done.")]).await;
    let server = TestServer::start(&format!("{}{}", upstream.config(), config(root.path()))).await;
    let ask = json!({"model": "test", "messages": [{"role": "user", "content": "Go"}]});
    server.post(ENDPOINT, &ask).await.ok();
    let requests = upstream.received(3).await;
    assert!(told(&requests[1]).contains("was written"), "{}", told(&requests[1]));
    let refused = told(&requests[2]);
    assert!(refused.contains("has `..`") && !refused.contains(&*root.path().to_string_lossy()), "{refused}");
    let directory = root.path().join("t-default");
    let is_empty = || std::fs::read_dir(&directory).expect("the tenant has a directory").next().is_none();
    within("the files of a run to be removed", async {
        while !is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Runs a command in a directory with this configuration; its exit code and what it printed.
async fn run(directory: &TempDir, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = loopgate(directory.path());
    command.args(arguments).kill_on_drop(true);
    let ran = within("a command to end", command.output()).await.expect("it can be started");
    (ran.status.code(), String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned())
}

#[tokio::test]
async fn the_command_line_tries_the_tools_without_the_files_of_sessions() {
    let directory = tempdir().expect("a directory can be made");
    let files = directory.path().join("files");
    std::fs::create_dir(&files).expect("a directory can be made");
    std::fs::write(directory.path().join("loopgate.toml"), config(&files)).expect("it can be written");
    let write = json!({"path": "a", "content": "hello"}).to_string();
    let read = json!({"path": "a"}).to_string();
    let (code, told) = run(&directory, &["tools", "call", "write_file", &write, "--session", "s"]).await;
    assert!(code == Some(0) && told.contains("was written: 5 bytes"), "{told}");
    assert_eq!(std::fs::read_dir(&files).expect("it is there").count(), 0, "without --workspace nothing is kept");
    let there = files.to_string_lossy();
    for (tool, arguments, answer) in [("write_file", &write, "was written"), ("read_file", &read, "hello")] {
        let (code, told) =
            run(&directory, &["tools", "call", tool, arguments, "--workspace", &there, "--session", "s"]).await;
        assert!(code == Some(0) && told.contains(answer), "{told}");
    }
    let (_, told) = run(&directory, &["doctor"]).await;
    assert!(told.contains("files can be kept in"), "{told}");
    std::fs::remove_dir_all(&files).expect("it can be removed");
    let (_, told) = run(&directory, &["doctor"]).await;
    assert!(told.contains("files is not there") && told.contains("Make the directory"), "{told}");
    let (_, told) = run(&directory, &["tools", "check"]).await;
    assert!(told.contains("workspace.directory: the directory"), "{told}");
    let (code, told) = run(&directory, &["serve", "--listen", "127.0.0.1:0"]).await;
    assert!(code != Some(0) && told.contains("files is not there"), "{told}");
}
