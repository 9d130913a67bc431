//! Code of a model is run within the server, and the server goes on beside it.

use std::fmt::Write;

use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

use crate::support::server::loopgate;
use crate::support::{Reply, TestServer, Upstream, within};

/// An interpreter that prints the program that it is given.
const ECHO: &str = r#"(module
    (import "wasi_snapshot_preview1" "path_open" (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (data (i32.const 0) "\00\04\00\00\00\40\00\00")
    (data (i32.const 16) "main")
    (func (export "_start")
      (drop (call $open (i32.const 5) (i32.const 0) (i32.const 16) (i32.const 4) (i32.const 0) (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 80)))
      (drop (call $read (i32.load (i32.const 80)) (i32.const 0) (i32.const 1) (i32.const 4)))
      (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 84)))))"#;

/// One that never ends.
const ENDLESS: &str = r#"(module (memory (export "memory") 1) (func (export "_start") (loop $l (br $l))))"#;

/// A directory with both, and what a configuration says of them.
fn interpreters() -> (TempDir, String) {
    let directory = tempdir().expect("a directory can be made");
    let mut config = "[tools.run_code]\ntimeout = \"1s\"\n".to_owned();
    for (name, text) in [("echo", ECHO), ("endless", ENDLESS)] {
        let path = directory.path().join(name).with_extension("wasm");
        std::fs::write(&path, wat::parse_str(text).expect("it is a module")).expect("it can be written");
        let path = path.display();
        writeln!(config, "[tools.run_code.languages.{name}]\nmodule = '{path}'").expect("a string takes it");
    }
    std::fs::write(directory.path().join("loopgate.toml"), &config).expect("it can be written");
    (directory, config)
}

fn told(upstream: &Upstream, request: usize) -> String {
    let messages = upstream.requests()[request]["messages"].clone();
    messages.as_array().and_then(|messages| messages.last()).expect("a result")["content"].to_string()
}

#[tokio::test]
async fn a_model_writes_code_and_is_told_what_it_prints() {
    let (_directory, config) = interpreters();
    let call = |language: &str| Reply::calls("run_code", &json!({"language": language, "code": "print(6 * 7)"}));
    let upstream = Upstream::start([call("echo"), call("endless"), Reply::says("Done.")]).await;
    let agent = "[agents.default]\ntools = [\"run_code\"]\n";
    let server = TestServer::start(&format!("{}{config}{agent}", upstream.config())).await;
    let ask = json!({"model": "test", "messages": [{"role": "user", "content": "Compute."}]});
    let answering = server.post("/v1/agent/completions", &ask);
    tokio::pin!(answering);
    // While code runs that never ends, everyone else is answered.
    let mut answered = 0;
    loop {
        tokio::select! {
            biased;
            answer = &mut answering => break drop(answer.ok()),
            models = server.get("/v1/models") => {
                models.ok();
                answered += 1;
            }
        }
    }
    assert!(answered > 3, "{answered}");
    assert!(told(&upstream, 1).contains("print(6 * 7)"), "{}", told(&upstream, 1));
    assert!(told(&upstream, 2).contains("The code was stopped after 1.0 s"), "{}", told(&upstream, 2));
}

#[tokio::test]
async fn the_command_line_runs_code_and_says_which_interpreter_is_none() {
    let (directory, _) = interpreters();
    let call = async |arguments: &Value| {
        let mut command = loopgate(directory.path());
        command.args(["tools", "call", "run_code", "--json", &arguments.to_string()]).kill_on_drop(true);
        within("a command to end", command.output()).await.expect("it can be started")
    };
    let ran = call(&json!({"language": "echo", "code": "hello"})).await;
    let told: Value = serde_json::from_slice(&ran.stdout).expect("it is JSON");
    assert_eq!((ran.status.code(), told["content"].as_str()), (Some(0), Some("hello")));
    std::fs::write(directory.path().join("echo.wasm"), "no module").expect("it can be written");
    let ran = call(&json!({"language": "echo", "code": "hello"})).await;
    let complaint = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(
        complaint.contains("echo.wasm cannot be used as an interpreter: it is no WebAssembly module"),
        "{complaint}"
    );
}
