//! Backups of the embedded store, made and restored as docs/backup.md says.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use crate::support::{Reply, TestServer, Upstream, within};

const ENDPOINT: &str = "/v1/agent/completions";

/// The first backup after those that are `known`.
async fn backup(directory: &Path, known: &[PathBuf]) -> PathBuf {
    let waiting = async {
        loop {
            let found = backups(directory).into_iter().find(|path| !known.contains(path));
            match found {
                Some(path) => return path,
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    within("a backup", waiting).await
}

fn backups(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().map(|entry| entry.expect("it can be read").path());
    entries.filter(|path| path.extension().is_some_and(|end| end.to_string_lossy().ends_with('Z'))).collect()
}

#[tokio::test]
async fn what_a_running_server_backs_up_is_there_after_it_is_restored() {
    let upstream = Upstream::start([Reply::says("Noted."), Reply::says("You said A."), Reply::says("Lost.")]).await;
    let place = tempfile::tempdir().expect("a directory can be made");
    let config = |every: &str| {
        let directory = place.path().join("backups");
        format!("{}[store.backup]\ndirectory = {directory:?}\nevery = \"{every}\"\nkeep = 3\n", upstream.config())
    };
    let server = TestServer::start(&config("100ms")).await;
    let say = |text: &str| json!({"model": "test", "messages": [{"role": "user", "content": text}], "agent": {"session_id": "s1"}});
    let run = server.post(ENDPOINT, &say("A")).await.ok();
    let run = run["agent"]["run_id"].as_str().expect("it has an id").to_owned();
    // The next copy may have begun before the run ended; the one after it has not.
    let mut known = backups(&place.path().join("backups"));
    known.push(backup(&place.path().join("backups"), &known).await);
    let copy = backup(&place.path().join("backups"), &known).await;
    let kept = place.path().join("kept");
    fs::rename(&copy, &kept).expect("it is on the same disk");
    let logged = server.logged("the store was backed up").await;
    assert!(logged.contains("bytes"), "{logged}");
    drop(server);

    // Restored as the documentation says: a copy of the backup, in the place of the data directory.
    let data = place.path().join("data");
    fs::create_dir(&data).expect("it can be made");
    for entry in fs::read_dir(&kept).expect("it is there") {
        let path = entry.expect("it can be read").path();
        fs::copy(&path, data.join(path.file_name().expect("it is a file"))).expect("it can be copied");
    }
    let restored = TestServer::builder(&upstream.config()).store(&format!("embedded:{}", data.display())).start().await;
    let found = restored.get(&format!("/v1/runs/{run}")).await.ok();
    assert_eq!((&found["status"], &found["session_id"]), (&json!("completed"), &json!("s1")), "{found}");
    let session = restored.get("/v1/sessions/s1/messages").await.ok();
    let said: Vec<_> =
        session["data"].as_array().into_iter().flatten().map(|one| one["message"]["content"].clone()).collect();
    assert_eq!(said, ["A", "Noted."], "{session}");
    let answer = restored.post(ENDPOINT, &say("What did I say?")).await.ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "You said A.", "{answer}");
    assert_eq!(upstream.requests().last().map(|request| request["messages"].as_array().map_or(0, Vec::len)), Some(3));
}
