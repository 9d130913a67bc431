//! The unit for systemd: the command that it runs serves with the environment that it gives, and ends in time.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::timeout;

use crate::support::redis::{Signal, send_signal};
use crate::support::server::loopgate;
use crate::support::within;

#[tokio::test]
async fn the_unit_starts_a_server_and_gives_it_time_to_end() {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/systemd/loopgate.service");
    let unit = fs::read_to_string(unit).expect("it is there");
    let directory = tempfile::tempdir().expect("a directory can be made");
    let here = directory.path().display().to_string();
    let said = |name: &str| {
        let line = unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        let line = line.unwrap_or_else(|| panic!("the unit says nothing of {name}"));
        line.replace("/etc/loopgate", &here).replace("/var/lib/loopgate", &here)
    };
    fs::write(directory.path().join("loopgate.toml"), "[upstreams.demo]\nkind = \"demo\"\n").expect("it is new");
    let command = said("ExecStart");
    let mut words = command.split(' ');
    assert_eq!(words.next(), Some("/usr/local/bin/loopgate"));
    let environment = said("Environment");
    let (name, value) = environment.split_once('=').expect("it sets a variable");

    let mut server = loopgate(directory.path());
    server.args(words).env(name, value).env("LOOPGATE_LISTEN", "127.0.0.1:0");
    server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut server = server.spawn().expect("the binary was built with the tests");
    let mut lines = BufReader::new(server.stderr.take().expect("it is piped")).lines();
    let serving = async {
        while let Some(line) = lines.next_line().await.expect("it is text") {
            if line.contains("listens on http://") {
                return;
            }
        }
        panic!("the server ended");
    };
    within("the server to listen", serving).await;
    assert!(directory.path().join("data/store.redb").is_file(), "it keeps its store where the unit says");

    let patience = Duration::from_secs(said("TimeoutStopSec").parse().expect("it is a number of seconds"));
    assert!(patience >= Duration::from_secs(45), "runs have 30 s to end, and connections some more");
    send_signal(&server, Signal::TERM);
    let status = timeout(patience, server.wait()).await.expect("it ends in time").expect("it is our child");
    assert!(status.success(), "{status}");
}
