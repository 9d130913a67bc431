//! Files of models that mean well, and directories that somebody else has been at.

mod hostile;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};
use tokio::time::{Instant, timeout};

use super::place::Address;
use super::thread::Stop;
use super::*;
use crate::config::{WorkspaceConfig, WorkspaceScope};
use crate::tools::testing::context;
use crate::tools::{CallContext, ToolAnswer, ToolError};
use crate::types::{Effect, SessionId, Tenant};

/// A directory of workspaces, and a server that keeps files there.
struct World {
    root: TempDir,
    workspaces: Arc<Workspaces>,
}

impl World {
    fn new() -> Self {
        Self::with(|config| config)
    }

    fn with(change: impl FnOnce(WorkspaceConfig) -> WorkspaceConfig) -> Self {
        let root = tempdir().unwrap();
        let config = change(WorkspaceConfig::of(root.path().to_owned()));
        Self { workspaces: Arc::new(Workspaces::new(&config).unwrap()), root }
    }

    /// Another replica over the same directory.
    fn replica(&self) -> Arc<Workspaces> {
        Arc::new(Workspaces::new(self.workspaces.config()).unwrap())
    }

    /// Where models see files of the session `s`.
    fn files(&self) -> PathBuf {
        self.root.path().join("t-default/s-s/files")
    }
}

fn session(id: &str) -> CallContext {
    CallContext { session: SessionId::parse(id), ..context(Duration::from_secs(60)) }
}

async fn answer(
    workspaces: &Arc<Workspaces>,
    context: &CallContext,
    name: &str,
    arguments: &Value,
) -> Result<ToolAnswer, ToolError> {
    let tool = offered::all(workspaces).into_iter().find(|tool| tool.spec().name == name).unwrap();
    tool.call(&RawValue::from_string(arguments.to_string()).unwrap(), context).await
}

/// What the session `s` is told.
async fn told(world: &World, name: &str, arguments: Value) -> String {
    told_to(&world.workspaces, &session("s"), name, arguments).await
}

async fn told_to(workspaces: &Arc<Workspaces>, context: &CallContext, name: &str, arguments: Value) -> String {
    match answer(workspaces, context, name, &arguments).await {
        Ok(answer) => answer.parts[0].as_text().unwrap().to_owned(),
        Err(ToolError::Failed(why)) => format!("failed: {why}"),
        Err(ToolError::Lost(why)) => format!("lost: {why}"),
    }
}

async fn write(world: &World, path: &str, content: &str) -> String {
    told(world, "write_file", json!({"path": path, "content": content})).await
}

async fn read(world: &World, path: &str) -> String {
    told(world, "read_file", json!({"path": path})).await
}

#[tokio::test]
async fn files_are_written_read_listed_and_deleted() {
    let world = World::new();
    assert_eq!(read(&world, "a").await, "failed: There is no file \"a\": the workspace is empty.");
    assert_eq!(
        write(&world, "notes/a.txt", "one\ntwo\nthree\n").await,
        "\"notes/a.txt\" was written: 14 bytes. The workspace has 1 files of 14 bytes, and may have 16777216."
    );
    write(&world, "b", "b").await;
    assert_eq!(read(&world, "/workspace/notes//a.txt").await, "one\ntwo\nthree\n");
    let lines = json!({"path": "notes/a.txt", "from_line": 2, "lines": 1});
    assert_eq!(told(&world, "read_file", lines).await, "two\n[Lines 2 to 2 of 3: read on with `from_line`: 3]");
    let bytes = json!({"path": "notes/a.txt", "from_byte": 8});
    assert_eq!(told(&world, "read_file", bytes).await, "three\n\n[Bytes 8 to 14 of 14]");
    assert_eq!(
        told(&world, "list_files", json!({})).await,
        "b (1 bytes)\nnotes/a.txt (14 bytes)\nThe workspace has 2 files of 15 bytes, and may have 16777216."
    );
    assert!(told(&world, "list_files", json!({"directory": "notes"})).await.starts_with("notes/a.txt (14 bytes)\nThe"));
    assert!(
        told(&world, "list_files", json!({"directory": "no"}))
            .await
            .starts_with("There are no files below this directory.")
    );
    assert_eq!(
        write(&world, "b/c", "c").await,
        "failed: \"b\" is a file, so nothing can be below it. Nothing changed."
    );
    assert_eq!(write(&world, "notes", "c").await, "failed: \"notes\" is a directory. Nothing changed.");
    assert_eq!(
        told(&world, "delete_file", json!({"path": "notes"})).await,
        "failed: \"notes\" is a directory. Nothing changed."
    );
    // A call that is repeated after a crash has the same effect, and an answer that tells of no failure.
    for what in ["was deleted", "is not there, so nothing was to be deleted"] {
        let told = told(&world, "delete_file", json!({"path": "notes/a.txt"})).await;
        assert_eq!(
            told,
            format!("\"notes/a.txt\" {what}. The workspace has 1 files of 1 bytes, and may have 16777216.")
        );
    }
    assert!(!world.files().join("notes").exists(), "an empty directory is of no use");
    let effects: Vec<_> = offered::all(&world.workspaces).iter().map(|tool| tool.spec().effect).collect();
    assert_eq!(effects, [Effect::Idempotent, Effect::Read, Effect::Read, Effect::Idempotent]);
    crate::tools::Registry::new(offered::all(&world.workspaces)).expect("their schemas can be compiled");
}

#[tokio::test]
async fn what_is_no_text_is_told_and_pictures_are_shown() {
    let world = World::new();
    write(&world, "a", "a").await;
    std::fs::write(world.files().join("b.bin"), b"\xff\x00\x01").unwrap();
    std::fs::write(world.files().join("p.png"), b"\x89PNG\r\n\x1a\n123").unwrap();
    assert_eq!(read(&world, "b.bin").await, "[\"b.bin\" is no text: binary, 3 bytes]");
    let picture = answer(&world.workspaces, &session("s"), "read_file", &json!({"path": "p.png"})).await.unwrap();
    assert!(picture.parts.len() == 1 && picture.parts[0].is_media(), "{picture:?}");
}

#[tokio::test]
async fn a_workspace_has_its_bounds() {
    let world = World::with(|config| WorkspaceConfig { quota: 100, max_files: 3, max_file: 60, ..config });
    assert!(write(&world, "a", &"x".repeat(61)).await.contains("would have 61 bytes, and a file has 60 at most"));
    assert!(write(&world, "a", &"x".repeat(60)).await.contains("was written"));
    assert_eq!(
        write(&world, "b", &"x".repeat(41)).await,
        "failed: The workspace would have 101 bytes, and it may have 100. Nothing changed."
    );
    assert!(write(&world, "b", &"x".repeat(40)).await.contains("was written"));
    assert!(write(&world, "a", &"y".repeat(60)).await.contains("was written"), "a file can be replaced by one as long");
    assert!(write(&world, "c", "").await.contains("was written"));
    assert_eq!(
        write(&world, "d", "").await,
        "failed: The workspace would have 4 files, and it may have 3. Nothing changed."
    );
    // The operator lowers the bounds: what is there can be made smaller.
    let config = WorkspaceConfig { quota: 10, max_files: 1, ..world.workspaces.config().clone() };
    let lowered = Arc::new(Workspaces::new(&config).unwrap());
    let smaller = json!({"path": "a", "content": "x".repeat(50)});
    assert!(told_to(&lowered, &session("s"), "write_file", smaller).await.contains("was written"));
    assert!(told_to(&lowered, &session("s"), "delete_file", json!({"path": "a"})).await.contains("was deleted"));
    let longer = json!({"path": "b", "content": "x".repeat(41)});
    assert!(told_to(&lowered, &session("s"), "write_file", longer).await.contains("it may have 10"));
    std::fs::write(world.files().join("long"), "x".repeat(70)).unwrap();
    assert!(read(&world, "long").await.contains("has 70 bytes, and 60 are read as a whole"));
    assert!(told(&world, "read_file", json!({"path": "long", "from_byte": 68})).await.starts_with("xx\n"));
}

#[tokio::test]
async fn replicas_that_write_at_once_stay_within_the_quota() {
    let world = World::with(|config| WorkspaceConfig { quota: 1_000, ..config });
    let replicas = [world.workspaces.clone(), world.replica()];
    let writes = (0..24).map(|number| {
        let workspaces = &replicas[number % 2];
        async move {
            let arguments = json!({"path": format!("d{}/f{number}", number % 3), "content": "x".repeat(100)});
            told_to(workspaces, &session("s"), "write_file", arguments).await
        }
    });
    let told = futures_util::future::join_all(writes).await;
    let written = told.iter().filter(|told| told.contains("was written")).count();
    assert_eq!(written, 10, "{told:?}");
    let (files, used) = replicas[0].of(&session("s")).unwrap().list("").await.unwrap();
    assert_eq!((files.len(), used.bytes), (10, 1_000));
}

#[tokio::test]
async fn a_file_is_read_as_it_was_or_as_it_is() {
    let world = World::new();
    let text = |letter: &str| letter.repeat(40_000);
    write(&world, "f", &text("a")).await;
    let writing = async {
        for letter in ["b", "c", "d", "e", "f", "g"] {
            write(&world, "f", &text(letter)).await;
        }
    };
    let reading = async {
        let mut seen = 0;
        while seen < 40 {
            let read = read(&world, "f").await;
            assert!(read.len() == 40_000 && read.bytes().all(|byte| byte == read.as_bytes()[0]), "{}", &read[..80]);
            seen += 1;
        }
    };
    tokio::join!(writing, reading);
}

#[tokio::test]
async fn what_a_crash_leaves_is_seen_by_nobody_and_removed() {
    let world = World::new();
    write(&world, "a", "a").await;
    let own = world.root.path().join("t-default/s-s");
    std::fs::create_dir_all(own.join("new/deep")).unwrap();
    std::fs::write(own.join("new/0"), "half a fi").unwrap();
    let removed = world.root.path().join("t-default/x-018f");
    std::fs::create_dir_all(removed.join("files/d")).unwrap();
    std::fs::write(removed.join("files/d/f"), "of nobody").unwrap();
    assert!(
        told(&world, "list_files", json!({})).await.starts_with("a (1 bytes)\nThe workspace has 1 files of 1 bytes")
    );
    write(&world, "b", "b").await;
    assert_eq!(std::fs::read_dir(own.join("new")).unwrap().count(), 0);
    assert_eq!(world.workspaces.passing().await.unwrap().len(), 1);
    assert!(!removed.exists());
}

/// Waits until no call works on files.
async fn at_rest(workspaces: &Workspaces) {
    drop(timeout(Duration::from_secs(30), workspaces.at_rest()).await.expect("all threads end"));
}

#[tokio::test]
async fn a_call_that_nobody_waits_for_changes_nothing() {
    let world = World::new();
    write(&world, "a", "before").await;
    let address = Address { root: world.root.path(), tenant: "t-default", own: "s-s" };
    let locked = address.make_and_lock(&Stop::default()).unwrap();
    timeout(Duration::from_millis(50), write(&world, "a", "after")).await.expect_err("another one holds the lock");
    drop(locked);
    at_rest(&world.workspaces).await;
    assert_eq!(read(&world, "a").await, "before");
}

#[tokio::test]
async fn owners_that_look_alike_share_nothing() {
    let world = World::new();
    let of = |tenant: &str, id: &str| CallContext { tenant: Tenant::parse(tenant).unwrap(), ..session(id) };
    let all =
        [of("a", "s"), of("A", "s"), of("a", "S"), of("a.", "s"), of("a", "s.."), of("a-s", "s"), of("a_41", "s")];
    for (number, context) in all.iter().enumerate() {
        let arguments = json!({"path": "f", "content": number.to_string()});
        assert!(told_to(&world.workspaces, context, "write_file", arguments).await.contains("has 1 files"));
    }
    for (number, context) in all.iter().enumerate() {
        assert_eq!(told_to(&world.workspaces, context, "read_file", json!({"path": "f"})).await, number.to_string());
    }
    let mut passing = world.workspaces.passing().await.unwrap();
    assert_eq!(passing.len(), all.len());
    let (tenant, owner) = passing.pop().unwrap();
    assert!(!world.workspaces.remove_if_unchanged(&tenant, &owner, 0).await.unwrap(), "it changed since 1970");
    assert!(world.workspaces.remove_if_unchanged(&tenant, &owner, i64::MAX).await.unwrap());
    assert_eq!(world.workspaces.passing().await.unwrap().len(), all.len() - 1);
}

#[tokio::test]
async fn users_have_files_in_all_of_their_conversations() {
    let world = World::with(|config| WorkspaceConfig { scope: WorkspaceScope::User, ..config });
    let of = |user: Option<&str>, id: &str| CallContext { user: user.map(str::to_owned), ..session(id) };
    let write = json!({"path": "f", "content": "mine"});
    let told = told_to(&world.workspaces, &of(Some("ann"), "s"), "write_file", write.clone()).await;
    assert!(told.contains("was written"), "{told}");
    let read =
        async |context: &CallContext| told_to(&world.workspaces, context, "read_file", json!({"path": "f"})).await;
    assert_eq!(read(&of(Some("ann"), "other")).await, "mine");
    assert!(read(&of(Some("Ann"), "s")).await.contains("the workspace is empty"));
    let other = CallContext { tenant: Tenant::parse("other").unwrap(), ..of(Some("ann"), "s") };
    assert!(read(&other).await.contains("the workspace is empty"));
    for nobody in [None, Some("")] {
        let told = read(&of(nobody, "s")).await;
        assert_eq!(told, "failed: There are files for users only, and this conversation names no user.");
    }
    assert_eq!(world.workspaces.passing().await.unwrap(), [], "files of users stay");
}

#[tokio::test]
async fn a_run_without_a_session_has_files_until_it_ends() {
    let world = World::new();
    let run = context(Duration::from_secs(60));
    let write = json!({"path": "f", "content": "x"});
    assert!(told_to(&world.workspaces, &run, "write_file", write).await.contains("was written"));
    assert_eq!(world.workspaces.passing().await.unwrap().len(), 1);
    world.workspaces.run_ended(&run.tenant, &run.run);
    let deadline = Instant::now() + Duration::from_secs(30);
    while !world.workspaces.passing().await.unwrap().is_empty() {
        assert!(Instant::now() < deadline, "its files stay");
    }
}

#[tokio::test]
async fn a_session_that_is_deleted_takes_its_files_along() {
    let world = World::new();
    write(&world, "d/f", "x").await;
    let (tenant, id) = (Tenant::default_tenant(), SessionId::parse("s").unwrap());
    for _ in 0..2 {
        world.workspaces.remove_session(&tenant, &id).await.unwrap();
    }
    assert_eq!(std::fs::read_dir(world.root.path().join("t-default")).unwrap().count(), 0);
    assert!(read(&world, "d/f").await.contains("the workspace is empty"));
    assert!(write(&world, "d/f", "y").await.contains("has 1 files of 1 bytes"));
}

#[tokio::test]
async fn writers_and_removals_at_once_leave_a_whole_workspace_or_none() {
    let world = World::new();
    let (tenant, id) = (Tenant::default_tenant(), SessionId::parse("s").unwrap());
    let writing = async {
        for number in 0..60 {
            let told = write(&world, &format!("d/f{number}"), "x").await;
            assert!(told.contains("was written"), "{told}");
        }
    };
    let removing = async {
        for _ in 0..60 {
            world.workspaces.remove_session(&tenant, &id).await.unwrap();
        }
    };
    tokio::join!(writing, removing);
    world.workspaces.remove_session(&tenant, &id).await.unwrap();
    assert_eq!(std::fs::read_dir(world.root.path().join("t-default")).unwrap().count(), 0);
}

#[test]
fn a_directory_is_tried_before_it_is_used() {
    let root = tempdir().unwrap();
    assert_eq!(probe(root.path()), Ok(()));
    assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0, "nothing is left of it");
    let absent = root.path().join("absent");
    assert!(probe(&absent).unwrap_err().ends_with("/absent is not there"));
    let why = Workspaces::new(&WorkspaceConfig::of(absent)).unwrap_err();
    assert!(why.ends_with("/absent is not there"), "{why}");
    let file = root.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(probe(&file).unwrap_err().ends_with("/file is no directory"));
    assert!(probe(Path::new("/proc")).unwrap_err().starts_with("/proc cannot be used"));
}

/// What a workspace holds, as its tools tell it.
#[derive(Debug, Clone)]
enum Do {
    Write(String, usize),
    Delete(String),
}

fn path_of() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "a/b", "a/b/c", "d/e", "d", "é"]).prop_map(str::to_owned)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn a_workspace_is_what_was_written_and_never_more_than_it_may(
        steps in prop::collection::vec(
            prop_oneof![3 => (path_of(), 0..40_usize).prop_map(|(path, length)| Do::Write(path, length)), 1 => path_of().prop_map(Do::Delete)],
            1..24,
        )
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let world = World::with(|config| WorkspaceConfig { quota: 100, max_files: 4, ..config });
            let mut expected = std::collections::BTreeMap::new();
            for step in steps {
                let (path, told) = match &step {
                    Do::Write(path, length) => (path, write(&world, path, &"x".repeat(*length)).await),
                    Do::Delete(path) => (path, told(&world, "delete_file", json!({"path": path})).await),
                };
                match step {
                    Do::Write(_, length) if !told.starts_with("failed: ") => drop(expected.insert(path.clone(), length as u64)),
                    Do::Delete(_) if !told.starts_with("failed: ") => drop(expected.remove(path)),
                    Do::Write(..) | Do::Delete(_) => {}
                }
                let (files, used) = world.workspaces.of(&session("s")).unwrap().list("").await.unwrap();
                assert_eq!(files, expected, "{told}");
                assert!(used.bytes <= 100 && used.files <= 4);
            }
        });
    }
}
