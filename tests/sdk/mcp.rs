//! Published servers of the Model Context Protocol, as users declare them: listed by the server, and called by a model.

use std::path::PathBuf;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use super::{installed, python_program, seen};
use crate::mcp::requests::Listening;
use crate::support::redis::free_port;
use crate::support::{Reply, TestServer, ToolServer, Upstream, within};

const ENDPOINT: &str = "/v1/agent/completions";

/// The program of a server for Node.
fn of_node(name: &str) -> PathBuf {
    installed("LOOPGATE_TEST_NODE_MODULES", "node/node_modules")
        .join("@modelcontextprotocol")
        .join(name)
        .join("dist/index.js")
}

/// The program of a server for Python.
fn of_python(name: &str) -> PathBuf {
    installed("LOOPGATE_TEST_PYTHON", "python/bin/python").with_file_name(name)
}

fn node(server: &str, arguments: &[&str]) -> String {
    let program = of_node(server).display().to_string();
    let line: Vec<&str> = ["node", &program].into_iter().chain(arguments.iter().copied()).collect();
    format!("command = {line:?}\nstart_timeout = \"60s\"\n")
}

fn python(server: &str, arguments: &[&str]) -> String {
    let program = of_python(server).display().to_string();
    let line: Vec<&str> = [program.as_str()].into_iter().chain(arguments.iter().copied()).collect();
    format!("command = {line:?}\nstart_timeout = \"60s\"\n")
}

/// Lets a run call a tool, and returns what the model was told.
async fn call(server: &TestServer, upstream: &Upstream, tool: &str, arguments: Value) -> String {
    upstream.then(Reply::calls(tool, &arguments));
    upstream.then(Reply::says("Done."));
    let agent = json!({"on_unknown_outcome": "tell_model"});
    let request = json!({"model": "test", "messages": [{"role": "user", "content": "Go."}], "agent": agent});
    server.post(ENDPOINT, &request).await.ok();
    let last = upstream.requests().last().expect("there is one")["messages"].as_array().expect("some").last().cloned();
    last.expect("there is one")["content"].to_string()
}

#[tokio::test]
async fn published_servers_list_and_answer() {
    let directory = tempfile::tempdir().expect("it can be made");
    let place = directory.path().canonicalize().expect("it is there").display().to_string();
    std::fs::write(directory.path().join("note.txt"), "a note").expect("it can be written");
    let made = Command::new("git").args(["init", "--quiet", &place]).status().await.expect("it starts");
    assert!(made.success());
    let pages = ToolServer::start([]).await;
    let upstream = Upstream::start([]).await;
    let (files, memory) = (node("server-filesystem", &[&place]), node("server-memory", &[]));
    let (fetch, time, git) = (
        python("mcp-server-fetch", &["--allow-private-ips"]),
        python("mcp-server-time", &["--local-timezone", "UTC"]),
        python("mcp-server-git", &[]),
    );
    let config = format!(
        "{}[mcp.files]\n{files}[mcp.memory]\n{memory}env = {{ MEMORY_FILE_PATH = {:?} }}\n[mcp.fetch]\n{fetch}[mcp.time]\n{time}\
         [mcp.git]\n{git}[agents.default]\ntools = [\"*\"]\n",
        upstream.config(),
        format!("{place}/memory.json"),
    );
    let server = TestServer::start(&config).await;
    let entity = json!({"entities": [{"name": "Ada", "entityType": "person", "observations": ["counts"]}]});
    let page = format!("http://{}/page.txt", pages.address());
    for (tool, arguments, words) in [
        ("files__read_text_file", json!({"path": format!("{place}/note.txt")}), "a note"),
        ("files__list_directory", json!({"path": place}), "[FILE] note.txt"),
        ("memory__create_entities", entity, "Ada"),
        ("memory__read_graph", json!({}), "counts"),
        ("time__get_current_time", json!({"timezone": "Europe/Oslo"}), "Europe/Oslo"),
        ("git__git_status", json!({"repo_path": place}), "note.txt"),
        ("fetch__fetch", json!({"url": page}), "ok"),
    ] {
        let told = call(&server, &upstream, tool, arguments).await;
        assert!(told.contains(words), "{tool}: {told}\n{}", server.output());
    }
    assert!(pages.calls().iter().any(|call| call.target == "/page.txt"), "{:?}", pages.calls());
}

/// Waits until a run is in the middle of a long call, and returns once `kill` was done and the run has ended.
async fn killed_in_a_call(server: &TestServer, upstream: &Upstream, kill: impl AsyncFnOnce()) -> Value {
    let long = json!({"duration": 30, "steps": 60});
    upstream.then(Reply::calls("all__trigger-long-running-operation", &long));
    upstream.then(Reply::says("Done."));
    let agent = json!({"on_unknown_outcome": "tell_model"});
    let request =
        json!({"model": "test", "stream": true, "messages": [{"role": "user", "content": "Go."}], "agent": agent});
    let mut stream = server.stream(ENDPOINT, &request).await;
    stream.until(|frame| frame.name == "tool.progress").await;
    kill().await;
    let frames = stream.until(|frame| frame.name == "tool.result").await;
    stream.rest().await;
    frames.last().expect("it is there").json()
}

async fn works(server: &TestServer, upstream: &Upstream) {
    assert!(call(server, upstream, "all__echo", json!({"message": "hello"})).await.contains("Echo: hello"));
    assert!(call(server, upstream, "all__get-sum", json!({"a": 2, "b": 40})).await.contains("42"));
    let picture = call(server, upstream, "all__get-tiny-image", json!({})).await;
    assert!(picture.contains("image"), "{picture}");
    let links = call(server, upstream, "all__get-resource-links", json!({"count": 2})).await;
    assert!(links.contains("demo://"), "{links}");
}

#[tokio::test]
async fn the_server_of_everything_is_killed_in_a_call_and_goes_on() {
    let marker = tempfile::tempdir().expect("it can be made").path().display().to_string();
    let upstream = Upstream::start([]).await;
    let all = node("server-everything", &["stdio", &marker]);
    let config = format!("{}[mcp.all]\n{all}[agents.default]\ntools = [\"all__*\"]\n", upstream.config());
    let server = TestServer::start(&config).await;
    works(&server, &upstream).await;
    let result = killed_in_a_call(&server, &upstream, async || {
        kill_process(process_with(&marker), Signal::KILL).expect("it runs");
    });
    let result = result.await;
    assert!(result["content"].to_string().contains("Whether it took effect is unknown"), "{result}");
    works(&server, &upstream).await;
}

/// The process that was started with this argument.
fn process_with(argument: &str) -> Pid {
    let processes = std::fs::read_dir("/proc").expect("it can be read").flatten();
    let mut found = processes.filter_map(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let has_it = line.split(|byte| *byte == 0).any(|part| part == argument.as_bytes());
        has_it.then(|| entry.file_name().to_string_lossy().parse().ok()).flatten()
    });
    Pid::from_raw(found.next().expect("it runs")).expect("it is above 0")
}

/// The server of everything over HTTP.
async fn listening(port: u16) -> Child {
    let mut command = Command::new("node");
    command.arg(of_node("server-everything")).arg("streamableHttp").env("PORT", port.to_string());
    let process = command.stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).spawn().expect("it starts");
    let reached = async {
        while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    within("the server of everything", reached).await;
    process
}

#[tokio::test]
async fn the_server_of_everything_goes_on_over_http_too() {
    let port = free_port();
    let mut process = listening(port).await;
    let upstream = Upstream::start([]).await;
    let config = format!(
        "{}[mcp.all]\nurl = \"http://127.0.0.1:{port}/mcp\"\neffect = {{ read = [\"echo\", \"get-*\"] }}\n[agents.default]\ntools = [\"all__*\"]\n",
        upstream.config()
    );
    let server = TestServer::start(&config).await;
    works(&server, &upstream).await;
    let result = killed_in_a_call(&server, &upstream, async || process.kill().await.expect("it runs")).await;
    assert!(result["content"].to_string().contains("Whether it took effect is unknown"), "{result}");
    let _process = listening(port).await;
    works(&server, &upstream).await;
}

#[tokio::test]
async fn the_official_client_names_a_server_in_its_request() {
    let crm = Listening::start().await;
    let calls = || [Reply::calls("crm__echo", &json!({"text": "hello"})), Reply::says("It says hello.")];
    let upstream = Upstream::start([calls(), calls()].concat()).await;
    let config = format!(
        "{}[egress]\nports = [{}]\nprivate_addresses = [\"127.0.0.1\"]\n[request_mcp]\nenabled = true\nallow_http = true\n",
        upstream.config(),
        crm.port
    );
    let server = TestServer::start(&config).await;
    let mut command = python_program("client.py");
    command.env("LOOPGATE_TEST_MCP", format!("http://127.0.0.1:{}/mcp", crm.port));
    let expected = json!({
        "texts": ["It says hello.", "It says hello."], "status": 424, "code": "mcp_server_error", "attempts": 1,
    });
    assert_eq!(seen(command, "mcp_server", server.url(), &server).await, expected);
    let told = upstream.requests()[1]["messages"].as_array().expect("there are some").last().cloned();
    assert_eq!(told.expect("there is one")["content"], "hello");
}

#[tokio::test]
async fn the_server_of_everything_asks_the_user_over_both_transports() {
    let port = free_port();
    let _process = listening(port).await;
    let upstream = Upstream::start([]).await;
    let url = format!("url = \"http://127.0.0.1:{port}/mcp\"\nsession = \"run\"\n");
    for server in [node("server-everything", &["stdio"]), url] {
        let config = format!(
            "{}[mcp.all]\n{server}elicitation = true\n[agents.default]\ntools = [\"all__*\"]\n",
            upstream.config()
        );
        let server = TestServer::start(&config).await;
        upstream.then(Reply::calls("all__trigger-elicitation-request", &json!({})));
        upstream.then(Reply::says("Done."));
        let request = json!({"model": "test", "stream": true, "messages": [{"role": "user", "content": "Go."}]});
        let mut stream = server.stream(ENDPOINT, &request).await;
        let before = stream.until(|frame| frame.name == "question.asked").await;
        let run = before[0].json()["run_id"].as_str().expect("it has an id").to_owned();
        let question = before.last().expect("it is there").json();
        assert_eq!(question["schema"]["required"], json!(["name"]), "{question}");
        let answer = async |said: Value| {
            let body = json!({"question_id": question["question_id"], "action": "accept", "answer": said});
            server.post(&format!("/v1/runs/{run}/answers"), &body).await
        };
        for (wrong, param) in [
            (json!({"name": "Ada", "homepage": "not an address"}), "answer.homepage"),
            (json!({"name": "Ada", "birthdate": "yesterday"}), "answer.birthdate"),
            (json!({"name": "Ada", "titledSingleSelectEnum": "Superman"}), "answer.titledSingleSelectEnum"),
            (json!({"name": "Ada", "untitledMultipleSelectEnum": []}), "answer.untitledMultipleSelectEnum"),
        ] {
            let refused = answer(wrong).await;
            assert_eq!((refused.status, &refused.body["error"]["param"]), (400, &json!(param)), "{}", refused.body);
        }
        let fish = json!({"name": "Ada", "integer": 7, "titledMultipleSelectEnum": ["fish-2", "fish-3"]});
        assert_eq!(answer(fish).await.status, 202);
        within("the end", stream.rest()).await;
        let last =
            upstream.requests().last().expect("there is one")["messages"].as_array().expect("some").last().cloned();
        let told = last.expect("there is one")["content"].to_string();
        assert!(
            told.contains("- Name: Ada") && told.contains("- Favorite Integer: 7") && told.contains("fish-3"),
            "{told}"
        );
    }
}
