//! The tool, with programs in the place of interpreters.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;
use tempfile::{NamedTempFile, TempDir, tempdir};
use tokio::time::{Instant, timeout};

use super::RunCode;
use crate::config::{LanguageConfig, RunCodeConfig, WorkspaceConfig, WorkspaceScope};
use crate::tools::testing::context;
use crate::tools::workspace::{Changes, FilePath, Workspace};
use crate::tools::{CallContext, Registry, Tool, ToolAnswer, ToolError, Workspaces};
use crate::types::{Effect, SessionId};

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
    RunCodeConfig {
        languages,
        timeout: Duration::from_millis(400),
        memory,
        files,
        output,
        concurrent: 2,
        workspace: true,
    }
}

async fn call(tool: &RunCode, arguments: &Value, time: Duration) -> Result<ToolAnswer, ToolError> {
    let arguments = RawValue::from_string(arguments.to_string()).unwrap();
    tool.call(&arguments, &context(time)).await
}

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_model_is_told_what_its_code_printed_and_wrote() {
    let module = file(ECHO);
    let tool = RunCode::new(&config(vec![language("echo", module.path())]), None).unwrap();
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
    let tool = Arc::new(RunCode::new(&config(languages), None).unwrap());
    let endless = serde_json::json!({"language": "endless", "code": ""});
    let answer = call(&tool, &endless, LONG).await.unwrap();
    assert!(answer.is_error);
    assert_eq!(answer.parts[0].as_text(), Some("[The code was stopped after 0.4 s: its time is up]\n"));
    // Whatever the settings say, the call's time is not used up.
    let slow = RunCodeConfig { timeout: LONG, ..config(vec![language("endless", PathBuf::from("/dev/null"))]) };
    assert!(RunCode::new(&slow, None).is_err());
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
    let tool = RunCode::new(&config(vec![language("endless", endless.path())]), None).unwrap();
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
    let one = RunCode::new(&config(vec![language("echo", module.path())]), None).unwrap();
    assert!(!one.spec().parameters.get().contains("language"));
    let two =
        RunCode::new(&config(vec![language("python", module.path()), language("lua", module.path())]), None).unwrap();
    assert!(two.spec().parameters.get().contains(r#""enum":["python","lua"]"#));
    let description = &two.spec().description;
    assert!(description.contains("python or lua") && description.ends_with("Write python well. Write lua well."));
    let why = call(&two, &serde_json::json!({"language": "cobol", "code": ""}), LONG).await.unwrap_err();
    assert_eq!(why.to_string(), "Code is run in: python, lua.");
    Registry::new([Arc::new(one) as Arc<dyn Tool>]).expect("its schema can be compiled");
    let why = RunCode::new(&config(vec![language("python", "/nonexistent.wasm")]), None).unwrap_err();
    assert!(why.starts_with("/nonexistent.wasm cannot be used as an interpreter: "), "{why}");
}

/// Prints the file `in.txt`, deletes `old.txt`, writes what it read to `out/x.txt`, and then ends as its code says: `0` and `3` are
/// exit codes, `l` never ends and `t` traps.
const WORKER: &str = r#"(module
    (import "wasi_snapshot_preview1" "path_open" (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "path_unlink_file" (func $unlink (param i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "path_create_directory" (func $mkdir (param i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
    (memory (export "memory") 1)
    (data (i32.const 0) "\00\04\00\00\00\40\00\00")
    (data (i32.const 16) "main") (data (i32.const 32) "in.txt") (data (i32.const 48) "old.txt")
    (data (i32.const 64) "out") (data (i32.const 96) "out/x.txt")
    (func (export "_start") (local $how i32)
      (drop (call $open (i32.const 5) (i32.const 0) (i32.const 16) (i32.const 4) (i32.const 0) (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 80)))
      (drop (call $read (i32.load (i32.const 80)) (i32.const 0) (i32.const 1) (i32.const 4)))
      (local.set $how (i32.load8_u (i32.const 1024)))
      (i32.store (i32.const 4) (i32.const 16384))
      (drop (call $open (i32.const 3) (i32.const 0) (i32.const 32) (i32.const 6) (i32.const 0) (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 80)))
      (drop (call $read (i32.load (i32.const 80)) (i32.const 0) (i32.const 1) (i32.const 4)))
      (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 84)))
      (drop (call $unlink (i32.const 3) (i32.const 48) (i32.const 7)))
      (drop (call $mkdir (i32.const 3) (i32.const 64) (i32.const 3)))
      (drop (call $open (i32.const 3) (i32.const 0) (i32.const 96) (i32.const 9) (i32.const 1) (i64.const 64) (i64.const 0) (i32.const 0) (i32.const 80)))
      (drop (call $write (i32.load (i32.const 80)) (i32.const 0) (i32.const 1) (i32.const 84)))
      (if (i32.eq (local.get $how) (i32.const 108)) (then (loop $l (br $l))))
      (if (i32.eq (local.get $how) (i32.const 116)) (then unreachable))
      (call $exit (i32.sub (local.get $how) (i32.const 48)))))"#;

/// A tool that works in the files of sessions, and the workspace of the session `s`.
fn worker(
    bounds: impl FnOnce(WorkspaceConfig) -> WorkspaceConfig,
) -> (TempDir, NamedTempFile, RunCode, Workspace, CallContext) {
    let (root, module) = (tempdir().unwrap(), file(WORKER));
    let workspaces = Workspaces::new(&bounds(WorkspaceConfig::of(root.path().to_owned()))).unwrap();
    let workspaces = Arc::new(workspaces);
    let tool = RunCode::new(&config(vec![language("worker", module.path())]), Some(&workspaces)).unwrap();
    let context = CallContext { session: SessionId::parse("s"), ..context(LONG) };
    let workspace = workspaces.of(&context).unwrap();
    (root, module, tool, workspace, context)
}

async fn put(workspace: &Workspace, files: &[(&str, &str)]) {
    let writes = files.iter().map(|(path, text)| (FilePath::parse(path).unwrap(), text.as_bytes().to_vec()));
    workspace.change(Changes { writes: writes.collect(), ..Changes::default() }).await.unwrap();
}

async fn held(workspace: &Workspace) -> Vec<(String, String)> {
    let files = workspace.read_all(u64::MAX).await.unwrap();
    files.into_iter().map(|(path, bytes)| (path, String::from_utf8(bytes).unwrap())).collect()
}

async fn work(tool: &RunCode, context: &CallContext, arguments: Value) -> (String, bool) {
    let arguments = RawValue::from_string(arguments.to_string()).unwrap();
    let answer = tool.call(&arguments, context).await.unwrap();
    (answer.parts[0].as_text().unwrap().to_owned(), answer.is_error)
}

fn owned(files: &[(&str, &str)]) -> Vec<(String, String)> {
    files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
}

#[tokio::test]
async fn what_a_program_does_to_the_files_of_its_workspace_is_kept_once_it_has_ended() {
    let (_root, _module, tool, workspace, context) = worker(|config| config);
    assert_eq!((tool.spec().effect, tool.spec().description.contains("files stay for later")), (Effect::Write, true));
    put(&workspace, &[("in.txt", "hello"), ("old.txt", "old"), ("d/other", "other")]).await;
    let before = held(&workspace).await;
    for (how, ending) in [("l", "was stopped after 0.4 s"), ("t", "broke off")] {
        let (told, is_error) = work(&tool, &context, serde_json::json!({"code": how})).await;
        assert!(is_error && told.contains(ending), "{told}");
        assert!(told.contains("[No file of the workspace changed: the code did not come to its end]"), "{told}");
        assert_eq!(held(&workspace).await, before);
    }
    let (told, is_error) = work(&tool, &context, serde_json::json!({"code": "0"})).await;
    assert_eq!(told, "hello\n[Files written: out/x.txt (5 bytes)]\n[Files deleted: old.txt]\n");
    assert!(!is_error);
    let after = [("d/other", "other"), ("in.txt", "hello"), ("out/x.txt", "hello")];
    assert_eq!(held(&workspace).await, owned(&after));
    // A program that ends with a code of its own has ended, and a file that the call gives is not kept unless it changes.
    let given = serde_json::json!({"code": "3", "files": {"in.txt": "given", "more": "not kept"}});
    let (told, is_error) = work(&tool, &context, given).await;
    assert!(
        is_error && told.starts_with("given\n[The code ended with exit code 3]\n[Files written: out/x.txt"),
        "{told}"
    );
    assert_eq!(held(&workspace).await, owned(&[("d/other", "other"), ("in.txt", "hello"), ("out/x.txt", "given")]));
}

#[tokio::test]
async fn a_program_that_writes_more_than_there_may_be_changes_nothing() {
    let (_root, _module, tool, workspace, context) = worker(|config| WorkspaceConfig { quota: 12, ..config });
    put(&workspace, &[("in.txt", "seven b")]).await;
    let (told, is_error) = work(&tool, &context, serde_json::json!({"code": "0"})).await;
    assert!(
        is_error && told.contains("[No file of the workspace changed: The workspace would have 14 bytes"),
        "{told}"
    );
    assert_eq!(held(&workspace).await, owned(&[("in.txt", "seven b")]));
}

#[tokio::test]
async fn without_a_workspace_of_its_own_code_is_told_that_nothing_is_kept() {
    let users = |config| WorkspaceConfig { scope: WorkspaceScope::User, ..config };
    let (root, module) = (tempdir().unwrap(), file(WORKER));
    let workspaces = Arc::new(Workspaces::new(&users(WorkspaceConfig::of(root.path().to_owned()))).unwrap());
    let settings = config(vec![language("worker", module.path())]);
    let tool = RunCode::new(&settings, Some(&workspaces)).unwrap();
    let (told, is_error) = work(&tool, &context(LONG), serde_json::json!({"code": "0"})).await;
    assert!(is_error && told.contains("this conversation names no user"), "{told}");
    // The operator may say that code has files of its own.
    let apart = RunCode::new(&RunCodeConfig { workspace: false, ..settings }, Some(&workspaces)).unwrap();
    assert_eq!(apart.spec().effect, Effect::Read);
    let (told, is_error) = work(&apart, &context(LONG), serde_json::json!({"code": "0"})).await;
    assert_eq!(
        (told.as_str(), is_error),
        ("[The code printed nothing, and ended with exit code 0]\n[Files written: out/x.txt (0 bytes)]\n", false)
    );
}
