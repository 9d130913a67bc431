//! Commands that are made from declarations: of the commands themselves, and of the settings.

use tempfile::tempdir;
use tokio::process::Command;

use super::{run, text};
use crate::support::within;

#[tokio::test]
async fn shells_complete_every_command() {
    let directory = tempdir().expect("a directory can be made");
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let ran = run(directory.path(), &["completions", shell]).await;
        let script = text(&ran.stdout);
        assert!(ran.status.success(), "{shell}: {}", text(&ran.stderr));
        for known in ["check-config", "completions", "accept", "insecure-no-auth"] {
            assert!(script.contains(known), "{shell} does not know {known}");
        }
    }
    assert_eq!(run(directory.path(), &["completions", "cmd"]).await.status.code(), Some(2));
}

#[tokio::test]
async fn bash_takes_its_completions() {
    let directory = tempdir().expect("a directory can be made");
    let script = run(directory.path(), &["completions", "bash"]).await.stdout;
    std::fs::write(directory.path().join("loopgate"), script).expect("it can be written to");
    // What bash does when somebody has typed `loopgate tools c` and presses the key.
    let typed = "source ./loopgate; COMP_WORDS=(loopgate tools c); COMP_CWORD=2; _loopgate loopgate c tools; echo ${COMPREPLY[@]}";
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", typed]).current_dir(directory.path()).kill_on_drop(true);
    let ran = within("bash to end", bash.output()).await.expect("it can be started");
    assert_eq!(text(&ran.stdout), "call check\n", "{}", text(&ran.stderr));
}

#[tokio::test]
async fn every_command_has_its_manual_page() {
    let directory = tempdir().expect("a directory can be made");
    let page = text(&run(directory.path(), &["man"]).await.stdout);
    assert!(page.contains(".TH loopgate 1") && page.contains("loopgate\\-check\\-config(1)"), "{page}");
    let page = text(&run(directory.path(), &["man", "tools", "call"]).await.stdout);
    let named =
        page.contains("loopgate\\-tools\\-call") && page.contains(concat!("loopgate ", env!("CARGO_PKG_VERSION")));
    assert!(named && page.contains("\\-\\-timeout"), "{page}");
    let ran = run(directory.path(), &["man", "tool"]).await;
    assert_eq!(ran.status.code(), Some(2));
    assert!(text(&ran.stderr).contains("no command \"tool\""), "{}", text(&ran.stderr));

    let pages = directory.path().join("man1");
    let ran = run(directory.path(), &["man", "--directory", pages.to_str().expect("it is a text")]).await;
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    for name in ["loopgate.1", "loopgate-serve.1", "loopgate-tools-call.1", "loopgate-runs-follow.1"] {
        assert!(pages.join(name).is_file(), "{name} is missing");
    }
}

#[tokio::test]
async fn a_new_configuration_file_says_nothing_yet_and_none_is_overwritten() {
    let directory = tempdir().expect("a directory can be made");
    let check = async || text(&run(directory.path(), &["check-config"]).await.stdout);
    let without = check().await;
    let ran = run(directory.path(), &["init"]).await;
    assert!(ran.status.success() && text(&ran.stdout).contains("loopgate.toml"), "{}", text(&ran.stderr));
    assert_eq!(check().await, without);

    let path = directory.path().join("loopgate.toml");
    std::fs::write(&path, "[server]\nlisten = \"127.0.0.1:1\"\n").expect("it can be written to");
    let ran = run(directory.path(), &["init"]).await;
    assert_eq!(ran.status.code(), Some(1));
    assert!(text(&ran.stderr).contains("loopgate.toml is there already"), "{}", text(&ran.stderr));
    assert_eq!(std::fs::read_to_string(&path).expect("it is there"), "[server]\nlisten = \"127.0.0.1:1\"\n");
    let ran = run(directory.path(), &["init", "no/such/place.toml"]).await;
    assert!(!ran.status.success() && text(&ran.stderr).contains("no/such/place.toml"), "{}", text(&ran.stderr));
}
