//! What the program says before it serves: about its configuration, and where it listens.

use std::process::Stdio;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::support::redis::{RedisServer, free_port};
use crate::support::server::loopgate;
use crate::support::{TestServer, Upstream, within};

/// What `check-config` says of this configuration, and whether it is valid.
async fn checked(config: &str) -> (String, bool) {
    let directory = tempfile::tempdir().expect("a directory can be made");
    std::fs::write(directory.path().join("test.toml"), config).expect("it can be written to");
    let mut command = loopgate(directory.path());
    let output = within("an answer", command.args(["check-config", "--config", "test.toml"]).output()).await;
    let output = output.expect("the binary was built with the tests");
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("it is text"));
    (text.concat(), output.status.success())
}

#[tokio::test]
async fn tools_that_do_not_exist_or_are_never_offered_are_told_of() {
    let tool = "[tools.look]\ndescription = \"Looks\"\nurl = \"http://localhost/look\"\n";
    let (said, is_valid) = checked(&format!("[agents.default]\ntools = [\"lok\"]\n{tool}")).await;
    assert!(!is_valid && said.contains("there is no tool `lok`; did you mean `look`?"), "{said}");
    let (said, is_valid) = checked(&format!("[agents.default]\ntools = [\"http__*\"]\n{tool}")).await;
    assert!(!is_valid && said.contains("no tool is named like `http__*`"), "{said}");
    let (said, is_valid) = checked(tool).await;
    assert!(is_valid && said.contains("no agent is offered the tool `look`"), "{said}");
    assert!(said.contains("1 upstream (") && said.contains("1 agent, 1 HTTP tool, 0 keys."), "{said}");
    let document = "[openapi.shop]\ndocument = \"https://shop.example.com/openapi.json\"\n";
    let (said, _) = checked(&format!("{document}[mcp.tickets]\nurl = \"https://mcp.example.com/mcp\"\n")).await;
    assert!(said.contains("0 HTTP tools, 1 OpenAPI document, 1 MCP server, 0 keys."), "{said}");
    let (said, is_valid) = checked(&format!("[agents.default]\ntools = [\"l*\"]\n{tool}")).await;
    assert!(is_valid && !said.contains("Note"), "{said}");
}

#[tokio::test]
async fn agents_that_no_key_may_use_are_told_of() {
    let hash = "0".repeat(64);
    let config = |agents: &str| {
        format!(
            "[agents.a]\nmodel = \"demo/demo\"\n[agents.b]\nmodel = \"demo/demo\"\n[upstreams.demo]\nkind = \"demo\"\n\
             [keys.k]\nkey_sha256 = \"{hash}\"\n{agents}"
        )
    };
    let (said, is_valid) = checked(&config("agents = [\"a\", \"default\"]\n")).await;
    assert!(is_valid && said.contains("no key may use the agent `b`") && !said.contains("`a`"), "{said}");
    let (said, is_valid) = checked(&config("")).await;
    assert!(is_valid && !said.contains("Note"), "{said}");
}

#[tokio::test]
async fn agents_that_have_no_model_are_told_of() {
    let agent = "[agents.plain]\nsystem = \"Be plain.\"\n";
    let upstream =
        |name: &str, models: &str| format!("[upstreams.{name}]\nbase_url = \"http://localhost/v1\"\n{models}");
    let one = upstream("one", "models = [\"a\"]\n");
    let (said, is_valid) = checked(&format!("{agent}{one}")).await;
    assert!(is_valid && !said.contains("agents.plain"), "it runs the only one there is: {said}");
    for several in [upstream("one", "models = [\"a\", \"b\"]\n"), format!("{one}[upstreams.demo]\nkind = \"demo\"\n")] {
        let (said, is_valid) = checked(&format!("{agent}{several}")).await;
        assert!(!is_valid && said.contains("agents.plain: it has no model, and the upstreams have several"), "{said}");
        let (said, is_valid) = checked(&format!("[agents.default]\nmodel = \"a\"\n{agent}{several}")).await;
        assert!(is_valid && !said.contains("agents.plain"), "it has that of `default`: {said}");
    }
    let (said, is_valid) = checked(&format!("{agent}{}", upstream("one", ""))).await;
    assert!(is_valid && said.contains("agents.plain: it has no model, so its requests are refused unless"), "{said}");
}

#[tokio::test]
async fn a_log_for_machines_has_nothing_but_lines_of_json() {
    let upstream = Upstream::start([]).await;
    let server = TestServer::start(&upstream.config()).await;
    let line = server.logged(&format!("listens on http://{}", server.address())).await;
    let line: Value = serde_json::from_str(&line).expect("it is a line of JSON");
    assert_eq!((&line["upstreams"], &line["level"]), (&Value::from("scripted"), &Value::from("INFO")));
    all_json(&server.output());
}

fn all_json(output: &str) {
    for line in output.lines() {
        assert!(serde_json::from_str::<Value>(line).is_ok(), "{line:?}");
    }
}

/// Nothing is found that does not answer.
#[tokio::test]
async fn a_redis_that_does_not_answer_yet_is_not_said_to_be_found() {
    let url = format!("redis://127.0.0.1:{}", free_port());
    let directory = tempfile::tempdir().expect("a directory can be made");
    let mut command = loopgate(directory.path());
    command.args(["serve", "--listen", "127.0.0.1:0", "--store", &url]).stderr(Stdio::piped()).kill_on_drop(true);
    let mut server = command.spawn().expect("the binary was built");
    let mut lines = BufReader::new(server.stderr.take().expect("it is piped")).lines();
    let says = async {
        while let Some(line) = lines.next_line().await.expect("it is text") {
            assert!(!["found Redis", "connected to Redis"].iter().any(|words| line.contains(words)), "{line}");
            if line.contains("connecting to Redis") {
                return;
            }
        }
        panic!("it ended");
    };
    within("the server to name its Redis", says).await;
}

#[tokio::test]
async fn a_server_that_cannot_serve_says_why_in_the_format_of_its_log() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address = taken.local_addr().expect("it is bound").to_string();
    let directory = tempfile::tempdir().expect("a directory can be made");
    let ran = async |format: &str, filter: &str| {
        let mut command = loopgate(directory.path());
        command.args(["serve", "--listen", &address, "--store", "memory:", "--log-format", format, "--log", filter]);
        let output = command.output().await.expect("the binary was built");
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).expect("it is text")
    };
    let said = format!("cannot listen on {address}");
    let json = ran("json", "info").await;
    all_json(&json);
    assert!(json.contains(&said) && json.contains("the server cannot serve"), "{json}");
    for text in [ran("text", "info").await, ran("json", "off").await] {
        assert!(text.lines().any(|line| line.starts_with(&said)), "{text}");
    }
}

#[tokio::test]
async fn a_redis_that_one_tenant_may_fill_is_warned_of() {
    let redis = RedisServer::start_with(&["--maxmemory", "100mb"]).await;
    let upstream = Upstream::start([]).await;
    let config = format!("{}[store]\ntenant_limit = \"100MiB\"\n", upstream.config());
    let server = TestServer::builder(&config).store(&redis.url()).start().await;
    let warning = server.logged("one tenant may fill Redis").await;
    assert!(warning.contains("104857600") && warning.contains("store.tenant_limit"), "{warning}");
}
