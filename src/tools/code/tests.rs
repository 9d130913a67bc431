//! The tool, with programs in the place of interpreters.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;
use tempfile::NamedTempFile;
use tokio::time::{Instant, timeout};

use super::RunCode;
use crate::config::{LanguageConfig, RunCodeConfig};
use crate::tools::testing::context;
use crate::tools::{Registry, Tool, ToolAnswer, ToolError};

/// Prints the code that it was given: a language in which each program prints itself.
const ECHO: &str = r#"(module
    (import "wasi_snapshot_preview1" "path_open" (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "args_get" (func $args (param i32 i32) (result i32)))
    (memory (export "memory") 1)
    (data (i32.const 0) "\00\04\00\00\00\40\00\00")
    (data (i32.const 16) "main")
    (data (i32.const 32) "out.png")
    (func (export "_start")
      (drop (call $open (i32.const 5) (i32.const 0) (i32.const 16) (i32.const 4) (i32.const 0) (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 80)))
      (drop (call $read (i32.load (i32.const 80)) (i32.const 0) (i32.const 1) (i32.const 4)))
      (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 84)))
      (drop (call $open (i32.const 3) (i32.const 0) (i32.const 32) (i32.const 7) (i32.const 1) (i64.const 64) (i64.const 0) (i32.const 0) (i32.const 80)))
      (drop (call $write (i32.load (i32.const 80)) (i32.const 0) (i32.const 1) (i32.const 84)))))"#;

const ENDLESS: &str = r#"(module (memory (export "memory") 1) (func (export "_start") (loop $l (br $l))))"#;

fn file(wat: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(&wat::parse_str(wat).unwrap()).unwrap();
    file
}

fn language(name: &str, module: impl Into<PathBuf>) -> LanguageConfig {
    LanguageConfig {
        name: name.into(),
        module: module.into(),
        file: "main".into(),
        arguments: vec!["{file}".into()],
        environment: Vec::new(),
        hint: Some(format!("Write {name} well.")),
    }
}

fn config(languages: Vec<LanguageConfig>) -> RunCodeConfig {
    let (memory, files, output) = (4 << 20, 1 << 20, 10_000);
    RunCodeConfig { languages, timeout: Duration::from_millis(400), memory, files, output, concurrent: 2 }
}

async fn call(tool: &RunCode, arguments: &Value, time: Duration) -> Result<ToolAnswer, ToolError> {
    let arguments = RawValue::from_string(arguments.to_string()).unwrap();
    tool.call(&arguments, &context(time)).await
}

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_model_is_told_what_its_code_printed_and_wrote() {
    let module = file(ECHO);
    let tool = RunCode::new(&config(vec![language("echo", module.path())])).unwrap();
    let answer = call(&tool, &serde_json::json!({"code": "hello"}), LONG).await.unwrap();
    assert_eq!(answer.parts[0].as_text(), Some("hello\n[Files written: out.png (5 bytes)]\n"));
    assert!(answer.parts.len() == 2 && answer.parts[1].is_media() && !answer.is_error);
    let measured: Vec<_> = answer.measurements.iter().map(|measured| measured.name.as_str()).collect();
    assert_eq!(measured, ["run_time", "exit_code"]);
    // What a run is given and leaves as it is was not written by it.
    let given = serde_json::json!({"code": "a", "files": {"out.png": "a", "b.txt": "b"}});
    assert_eq!(call(&tool, &given, LONG).await.unwrap().parts[0].as_text(), Some("a"));
}

#[tokio::test]
async fn code_that_does_not_end_is_ended_and_leaves_room_for_others() {
    let (endless, echo) = (file(ENDLESS), file(ECHO));
    let languages = vec![language("endless", endless.path()), language("echo", echo.path())];
    let tool = Arc::new(RunCode::new(&config(languages)).unwrap());
    let endless = serde_json::json!({"language": "endless", "code": ""});
    let answer = call(&tool, &endless, LONG).await.unwrap();
    assert!(answer.is_error);
    assert_eq!(answer.parts[0].as_text(), Some("[The code was stopped after 0.4 s: its time is up]\n"));
    // Whatever the settings say, the call's time is not used up.
    let slow = RunCodeConfig { timeout: LONG, ..config(vec![language("endless", PathBuf::from("/dev/null"))]) };
    assert!(RunCode::new(&slow).is_err());
    let begun = Instant::now();
    let short = call(&tool, &endless, Duration::from_millis(200)).await.unwrap();
    assert!(short.is_error && begun.elapsed() < LONG / 4);
    // Calls that are given up make room.
    for _ in 0..4 {
        timeout(Duration::from_millis(20), call(&tool, &endless, LONG)).await.expect_err("it does not end");
    }
    let echo = serde_json::json!({"language": "echo", "code": "x"});
    assert!(!call(&tool, &echo, LONG).await.unwrap().is_error);
}

/// The runtime has one thread here: a run that took it would leave no time for the timer.
#[tokio::test]
async fn other_work_goes_on_beside_runs() {
    let endless = file(ENDLESS);
    let tool = RunCode::new(&config(vec![language("endless", endless.path())])).unwrap();
    let arguments = serde_json::json!({"code": ""});
    let call = call(&tool, &arguments, LONG);
    let mut ticks = 0;
    tokio::pin!(call);
    let mut timer = tokio::time::interval(Duration::from_millis(10));
    loop {
        tokio::select! {
            biased;
            _ = timer.tick() => ticks += 1,
            answer = &mut call => break assert!(answer.unwrap().is_error),
        }
    }
    assert!(ticks > 10, "{ticks}");
}

#[tokio::test]
async fn the_language_is_named_where_there_are_several() {
    let module = file(ECHO);
    let one = RunCode::new(&config(vec![language("echo", module.path())])).unwrap();
    assert!(!one.spec().parameters.get().contains("language"));
    let two = RunCode::new(&config(vec![language("python", module.path()), language("lua", module.path())])).unwrap();
    assert!(two.spec().parameters.get().contains(r#""enum":["python","lua"]"#));
    let description = &two.spec().description;
    assert!(description.contains("python or lua") && description.ends_with("Write python well. Write lua well."));
    let why = call(&two, &serde_json::json!({"language": "cobol", "code": ""}), LONG).await.unwrap_err();
    assert_eq!(why.to_string(), "Code is run in: python, lua.");
    Registry::new([Arc::new(one) as Arc<dyn Tool>]).expect("its schema can be compiled");
    let why = RunCode::new(&config(vec![language("python", "/nonexistent.wasm")])).unwrap_err();
    assert!(why.starts_with("/nonexistent.wasm cannot be used as an interpreter: "), "{why}");
}
