//! What SIGHUP changes in a running server, and what it leaves alone.

use std::fs::File;
use std::io::Read;
use std::process::Stdio;

use rustix::fs::{Mode, OFlags};
use rustix::pty::OpenptFlags;
use serde_json::{Value, json};

use crate::support::redis::{Signal, send_signal};
use crate::support::server::loopgate;
use crate::support::sse::{outline, text_of};
use crate::support::{Gate, Reply, TestServer, ToolServer, Upstream, within};

const ENDPOINT: &str = "/v1/agent/completions";

fn ask(model: &str) -> Value {
    json!({"model": model, "stream": true, "messages": [{"role": "user", "content": "Hi"}]})
}

/// The declaration of a key that the variable of its name in capitals holds.
fn key(name: &str) -> String {
    format!("[keys.{name}]\nkey_env = \"{}\"\n", name.to_uppercase())
}

/// A server that knows two keys by their variables, `ONE` and `TWO`; each is the name of its variable.
async fn keyed(config: &str) -> TestServer {
    TestServer::builder(config).env("ONE", "ONE").env("TWO", "TWO").start().await
}

/// The status that a key gets, over connections that are kept.
async fn status(server: &mut TestServer, key: &str) -> u16 {
    server.use_key(key);
    server.get("/v1/models").await.status
}

/// The ids of the models that are listed.
async fn models(server: &TestServer) -> Vec<String> {
    let list = server.get("/v1/models").await.ok();
    let ids = list["data"].as_array().expect("it is a list").iter();
    ids.map(|model| model["id"].as_str().expect("each has an id").to_owned()).collect()
}

#[tokio::test]
async fn keys_count_and_cease_to_count_at_once() {
    let upstream = Upstream::start([]).await;
    let mut server = keyed(&format!("{}{}", upstream.config(), key("one"))).await;
    assert_eq!((status(&mut server, "ONE").await, status(&mut server, "TWO").await), (200, 401));
    let log = server.reload(&format!("{}{}{}", upstream.config(), key("one"), key("two"))).await;
    assert!(log.contains("keys.two: added"), "{log}");
    assert_eq!((status(&mut server, "ONE").await, status(&mut server, "TWO").await), (200, 200));
    let log = server.reload(&format!("{}{}", upstream.config(), key("two"))).await;
    assert!(log.contains("keys.one: removed"), "{log}");
    assert_eq!((status(&mut server, "ONE").await, status(&mut server, "TWO").await), (401, 200));
}

#[tokio::test]
async fn a_broken_file_changes_nothing_and_each_mistake_is_logged_with_its_line() {
    let upstream = Upstream::start([]).await;
    let good = format!("{}{}", upstream.config(), key("one"));
    let mut server = keyed(&good).await;
    let lines = good.lines().count();
    let broken = format!("{good}[agents.a]\nmodle = \"test\"\ntools = 3\n{}", key("two"));
    let log = server.reload(&broken).await;
    for mistake in [
        format!("test.toml:{}: agents.a.modle: unknown key; did you mean `model`?", lines + 2),
        format!("test.toml:{}: agents.a.tools: expected a list", lines + 3),
    ] {
        assert!(log.contains(&mistake), "{mistake} is not in {log}");
    }
    assert_eq!((status(&mut server, "ONE").await, status(&mut server, "TWO").await), (200, 401));

    server.remove_config();
    let log = server.hang_up().await;
    assert!(log.contains("test.toml: cannot be read"), "{log}");
    assert_eq!(status(&mut server, "ONE").await, 200, "the key is still asked for");
    assert_eq!(status(&mut server, "nobody's").await, 401);
}

#[tokio::test]
async fn a_run_under_way_keeps_its_agent_and_its_tools() {
    let gate = Gate::new();
    let call = Reply::stream().gate(&gate).tool_call(0, "call_1", "note", r#"{"note":"x"}"#);
    let upstream = Upstream::start([call.finish("tool_calls").usage(10, 5).done(), Reply::says("Noted.")]).await;
    let tools = ToolServer::start([Reply::plain("noted")]).await;
    let agent = "[agents.clerk]\nmodel = \"scripted/test\"\nsystem = \"Take notes.\"\ntools = [\"note\"]\n";
    let server = TestServer::start(&format!("{}{}{agent}", upstream.config(), tools.config("note", "write"))).await;

    let stream = server.stream(ENDPOINT, &ask("clerk")).await;
    gate.reached().await;
    let log = server.reload(&format!("{}[agents.cook]\nmodel = \"scripted/test\"\n", upstream.config())).await;
    for change in ["agents.clerk: removed", "agents.cook: added", "tools.note: removed"] {
        assert!(log.contains(change), "{change} is not in {log}");
    }
    assert_eq!(models(&server).await, ["cook", "scripted/test"]);
    assert_eq!(server.post(ENDPOINT, &ask("clerk")).await.code(), "model_not_found");

    gate.open();
    let frames = stream.rest().await;
    assert!(outline(&frames).ends_with("run.completed"), "{}", outline(&frames));
    assert_eq!((text_of(&frames).as_str(), tools.calls().len()), ("Noted.", 1));
    let requests = upstream.received(2).await;
    for request in requests {
        assert_eq!(request["messages"][0]["content"], "Take notes.");
        assert_eq!(request["tools"][0]["function"]["name"], "note");
    }
}

#[tokio::test]
async fn the_contents_of_secret_files_are_read_again() {
    let upstream = Upstream::start([]).await;
    upstream.otherwise(Reply::says("Hello"));
    let config = format!("{}api_key_file = \"key\"\n", upstream.config());
    let server = TestServer::builder(&config).file("key", "first").start().await;
    let sent = async |nth: usize| {
        server.stream(ENDPOINT, &ask("test")).await.rest().await;
        upstream.received(nth).await;
        upstream.raw_requests()[nth - 1].headers["authorization"].clone()
    };
    assert_eq!(sent(1).await, "Bearer first");
    server.write("key", "second");
    let log = server.hang_up().await;
    assert!(log.contains("upstreams.scripted.api_key_file: changed") && !log.contains("second"), "{log}");
    assert_eq!(sent(2).await, "Bearer second");
}

#[tokio::test]
async fn what_needs_a_restart_is_named_and_the_rest_counts() {
    let upstream = Upstream::start([]).await;
    let server = TestServer::start(&format!("{}[server]\ndrain_delay = \"0s\"\n", upstream.config())).await;
    let new = format!(
        "{}[server]\ndrain_delay = \"0s\"\nmax_body = \"1KiB\"\n[agents.cook]\nmodel = \"scripted/test\"\n",
        upstream.config()
    );
    for _ in 0..2 {
        let log = server.reload(&new).await;
        let line = log.lines().find(|line| line.contains("server.max_body")).unwrap_or_else(|| panic!("{log}"));
        assert!(line.contains("at the next restart") && line.contains("1KiB"), "{line}");
    }
    assert_eq!(models(&server).await, ["cook", "scripted/test"]);
    let mut long = ask("test");
    long["metadata"] = json!({"note": "x".repeat(2_000)});
    assert_ne!(server.post(ENDPOINT, &long).await.status, 413, "the old bound holds");
}

#[tokio::test]
async fn nobody_is_given_new_requests_by_a_reload() {
    let upstream = Upstream::start([]).await;
    let limited = format!("{}{}requests_per_minute = 2\n", upstream.config(), key("one"));
    let mut server = keyed(&limited).await;
    assert_eq!((status(&mut server, "ONE").await, status(&mut server, "ONE").await), (200, 200));
    server.reload(&format!("{limited}{}", key("two"))).await;
    assert_eq!((status(&mut server, "ONE").await, status(&mut server, "TWO").await), (429, 200));
}

#[tokio::test]
async fn check_config_says_what_a_reload_changes() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let write =
        |name: &str, text: &str| std::fs::write(directory.path().join(name), text).expect("it can be written to");
    write("old.toml", "[agents.a]\n");
    write("new.toml", "[agents.b]\n[store]\nrun_ttl = \"1h\"\n");
    let check = async |old: &str, new: &str| {
        let mut command = loopgate(directory.path());
        command.args(["check-config", "--config", new, "--against", old]);
        let output = command.output().await.expect("the binary was built with the tests");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("it writes text")
    };
    let said = check("old.toml", "new.toml").await;
    let (_, changes) = said.split_once('\n').expect("the first line says that it is valid");
    insta::assert_snapshot!(changes, @r#"
    A reload (SIGHUP) changes:
      agents.a: removed
      agents.b: added
    Only a restart changes:
      store.run_ttl: "1h", was "24h"
    "#);
    assert!(check("old.toml", "old.toml").await.ends_with("A reload changes nothing.\n"));
}

/// A terminal: the side of its window, and the side of its programs.
fn terminal() -> (File, Stdio) {
    let window = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("there are terminals");
    rustix::pty::grantpt(&window).expect("it is ours");
    rustix::pty::unlockpt(&window).expect("it is ours");
    let name = rustix::pty::ptsname(&window, Vec::new()).expect("it has a name");
    let programs = rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).expect("it was unlocked");
    rustix::io::fcntl_setfd(&window, rustix::io::FdFlags::CLOEXEC).expect("it is open");
    (window.into(), programs.into())
}

/// Reads what a terminal shows until it shows `text`.
async fn shows(mut window: File, text: &'static str) -> File {
    let reading = tokio::task::spawn_blocking(move || {
        let (mut shown, mut buffer) = (String::new(), [0; 4096]);
        while !shown.contains(text) {
            let read = window.read(&mut buffer).expect("its program runs");
            shown += &String::from_utf8_lossy(&buffer[..read]);
        }
        window
    });
    within(text, reading).await.expect("it does not panic")
}

#[tokio::test]
async fn closing_its_terminal_ends_a_server_as_ctrl_c_does() {
    let (window, programs) = terminal();
    let directory = tempfile::tempdir().expect("a directory can be made");
    let mut command = loopgate(directory.path());
    command.args(["serve", "--listen", "127.0.0.1:0", "--store", "memory:"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(programs).kill_on_drop(true);
    let mut server = command.spawn().expect("the binary was built with the tests");
    drop(command);
    let window = shows(window, "Try:").await;
    send_signal(&server, Signal::HUP);
    let window = shows(window, "the configuration was reloaded").await;
    drop(window);
    send_signal(&server, Signal::HUP);
    let ended = within("the server to end", server.wait()).await.expect("it was not waited for yet");
    assert!(ended.success(), "{ended}");
}
