//! What somebody planted in a directory of workspaces, or changes there while a call is under way, leads nowhere.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FileType, Mode, mknodat};

use super::*;

/// A world with a secret outside of its workspaces.
async fn planted() -> (World, PathBuf) {
    let world = World::new();
    write(&world, "a", "a").await;
    let outside = world.root.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("secret"), "secret").unwrap();
    (world, outside)
}

#[tokio::test]
async fn no_path_leads_out_of_a_workspace() {
    let (world, outside) = planted().await;
    let long = "a".repeat(300);
    for path in [
        "../../../outside/secret",
        "..",
        "a/../../new",
        "/etc/passwd",
        "./../x",
        "a\0b",
        "",
        "/",
        &long,
        &"d/".repeat(200),
    ] {
        for (tool, arguments) in [
            ("read_file", json!({"path": path})),
            ("write_file", json!({"path": path, "content": "x"})),
            ("delete_file", json!({"path": path})),
        ] {
            let told = told(&world, tool, arguments).await;
            assert!(told.starts_with("failed: The path "), "{tool} {path}: {told}");
        }
    }
    assert!(told(&world, "list_files", json!({"directory": "../.."})).await.starts_with("failed: The path "));
    assert_eq!(std::fs::read_to_string(outside.join("secret")).unwrap(), "secret");
}

#[tokio::test]
async fn links_are_not_followed_and_no_path_of_the_machine_is_told() {
    let (world, outside) = planted().await;
    let files = world.files();
    symlink(&outside, files.join("dir")).unwrap();
    symlink(outside.join("secret"), files.join("link")).unwrap();
    symlink("a", files.join("inner")).unwrap();
    symlink("/proc/self/environ", files.join("proc")).unwrap();
    std::fs::hard_link(outside.join("secret"), files.join("hard")).unwrap();
    mknodat(std::fs::File::open(&files).unwrap(), "fifo", FileType::Fifo, Mode::RWXU, 0).unwrap();
    std::fs::write(files.join(std::ffi::OsStr::from_bytes(b"\xff")), "no name").unwrap();
    for path in ["dir/secret", "link", "inner", "proc", "hard", "fifo", "dir"] {
        let read = read(&world, path).await;
        assert!(read.starts_with("failed: ") && read.contains("no plain file"), "{path}: {read}");
        assert!(!read.contains(world.root.path().to_str().unwrap()), "{read}");
    }
    let told_all = told(&world, "list_files", json!({})).await;
    assert!(told_all.starts_with("a (1 bytes)\nThe workspace has 1 files"), "{told_all}");
    // What is in the place of a file is replaced; what it leads to stays.
    for path in ["link", "hard", "fifo", "inner"] {
        assert!(write(&world, path, "mine").await.contains("was written"), "{path}");
        assert_eq!(read(&world, path).await, "mine");
    }
    let written = write(&world, "dir/new", "mine").await;
    assert!(written.starts_with("failed: The server's files cannot be used now. Nothing changed."), "{written}");
    let deleted = told(&world, "delete_file", json!({"path": "dir/secret"})).await;
    assert!(deleted.starts_with("failed: The server's files cannot be used now."), "{deleted}");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
    assert_eq!(std::fs::read_to_string(outside.join("secret")).unwrap(), "secret");
    assert_eq!(read(&world, "a").await, "a");
    // Removing all of it removes links, and nothing behind them.
    let (tenant, id) = (Tenant::default_tenant(), SessionId::parse("s").unwrap());
    world.workspaces.remove_session(&tenant, &id).await.unwrap();
    assert!(!files.exists() && outside.join("secret").exists());
}

#[tokio::test]
async fn directories_of_owners_that_are_links_are_not_followed() {
    let (world, outside) = planted().await;
    symlink(&outside, world.root.path().join("t-default/s-other")).unwrap();
    symlink(&outside, world.root.path().join("t-linked")).unwrap();
    symlink(&outside, world.root.path().join("t-default/s-half")).unwrap();
    let linked = CallContext { tenant: Tenant::parse("linked").unwrap(), ..session("s") };
    for context in [session("other"), linked, session("half")] {
        for (tool, arguments) in
            [("write_file", json!({"path": "secret", "content": "x"})), ("read_file", json!({"path": "secret"}))]
        {
            let told = told_to(&world.workspaces, &context, tool, arguments).await;
            assert!(told.starts_with("failed: "), "{told}");
        }
    }
    std::fs::create_dir_all(world.root.path().join("t-default/s-inner")).unwrap();
    symlink(&outside, world.root.path().join("t-default/s-inner/files")).unwrap();
    symlink(&outside, world.root.path().join("t-default/s-inner/new")).unwrap();
    let told = told_to(&world.workspaces, &session("inner"), "write_file", json!({"path": "f", "content": "x"})).await;
    assert!(told.starts_with("failed: "), "{told}");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
    assert!(outside.join("secret").exists());
}

#[tokio::test]
async fn a_directory_that_becomes_a_link_during_a_call_leads_nowhere() {
    let (world, outside) = planted().await;
    let files = world.files();
    write(&world, "d/f", "inside").await;
    symlink(&outside, files.join("link")).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let swapping = std::thread::spawn({
        let (files, done) = (files.clone(), done.clone());
        move || {
            // A call may make the directory anew while it is away: then it stays.
            while !done.load(Ordering::Relaxed) {
                for (from, to) in [("d", "aside"), ("link", "d"), ("d", "link"), ("aside", "d")] {
                    let _ = std::fs::rename(files.join(from), files.join(to));
                }
            }
        }
    });
    for number in 0..300 {
        let written = write(&world, "d/f", &format!("inside {number}")).await;
        let read = read(&world, "d/f").await;
        assert!(read.starts_with("inside") || read.starts_with("failed: "), "{written} {read}");
        told(&world, "delete_file", json!({"path": "d/secret"})).await;
    }
    done.store(true, Ordering::Relaxed);
    swapping.join().unwrap();
    let names: Vec<_> = std::fs::read_dir(&outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["secret"]);
    assert_eq!(std::fs::read_to_string(outside.join("secret")).unwrap(), "secret");
}

#[tokio::test]
async fn a_directory_with_more_than_can_be_looked_at_is_told() {
    let world = World::with(|config| WorkspaceConfig { max_files: 1, ..config });
    write(&world, "a", "a").await;
    for number in 0..1_010 {
        std::fs::create_dir(world.files().join(format!("d{number}"))).unwrap();
    }
    let listed = told(&world, "list_files", json!({})).await;
    assert_eq!(listed, "failed: The workspace holds more than 1004 files and directories.");
}
