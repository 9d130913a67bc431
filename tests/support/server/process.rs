//! One life of the binary under test.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use reqwest::Client;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

use super::memory_limit::MemoryLimit;
use super::output::Output;
use super::{CONFIG, Place};
use crate::support::MAX_WAIT;

/// The binary, to be started in a directory, with nothing of the environment that would configure it.
pub(crate) fn loopgate(directory: &Path) -> Command {
    program(Path::new(env!("CARGO_BIN_EXE_loopgate")), directory)
}

fn program(path: &Path, directory: &Path) -> Command {
    let mut command = Command::new(path);
    for (name, _) in std::env::vars_os() {
        let upper = name.to_string_lossy().to_uppercase();
        if upper.starts_with("OPENAI_") || upper.starts_with("LOOPGATE_") || upper.ends_with("_PROXY") {
            command.env_remove(name);
        }
    }
    command.current_dir(directory);
    command
}

/// One life of the server.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) child: Child,
    pub(super) url: String,
    pub(super) output: Output,
    _readers: JoinSet<()>,
    /// After the process, without which it cannot be removed.
    pub(super) memory: Option<MemoryLimit>,
}

impl Process {
    /// Starts one and waits until it is ready; or says how it died before.
    pub(super) async fn start(directory: &TempDir, place: &Place, env: &[(String, String)]) -> Result<Self, String> {
        let listen = format!("127.0.0.1:{}", place.port.unwrap_or(0));
        let built = Path::new(env!("CARGO_BIN_EXE_loopgate"));
        let mut command = program(place.program.as_deref().unwrap_or(built), directory.path());
        command.args(["serve", "--config", CONFIG, "--listen", &listen]);
        if let Some(store) = &place.store {
            command.args(["--store", store]);
        }
        command.envs(env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        // Before the process, and so dropped after it: it cannot be removed while the process is in it.
        let memory = place.memory.and_then(MemoryLimit::new);
        let mut child = command.spawn().expect("the binary was built with the tests");
        if let (Some(memory), Some(process)) = (&memory, child.id()) {
            memory.bound(process);
        }
        let output = Output::default();
        let mut readers = JoinSet::new();
        readers.spawn(output.clone().collect(child.stdout.take().expect("it is piped")));
        readers.spawn(output.clone().collect(child.stderr.take().expect("it is piped")));
        let ready = async {
            let url = output.url().await;
            wait_until_ready(&url, &output).await;
            url
        };
        let url = tokio::select! {
            url = ready => url,
            status = child.wait() => {
                // What it said last may still be on its way.
                while readers.join_next().await.is_some() {}
                return Err(format!("the server did not start, {status:?}:\n{}", output.text()));
            }
        };
        Ok(Self { child, url, output, _readers: readers, memory })
    }
}

impl Process {
    /// The most memory that this life ever had resident, in bytes.
    pub(super) fn most_memory(&self) -> u64 {
        self.memory("VmHWM:")
    }

    /// How much memory it has resident now, in bytes.
    pub(super) fn resident_memory(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// How much of that is its own, in bytes: neither pages of files, which the kernel can drop, nor the tables of its binary in
    /// which the linker writes addresses, which are larger the more code there is.
    pub(super) fn own_memory(&self) -> u64 {
        self.memory("RssAnon:") - self.relocated()
    }

    /// The most that was its own, in bytes, if it has as much of its files resident as ever.
    pub(super) fn most_own_memory(&self) -> u64 {
        self.most_memory() - (self.resident_memory() - self.own_memory())
    }

    /// How much of what its files are mapped to was written to.
    fn relocated(&self) -> u64 {
        let mut is_of_file = false;
        let mut written = 0;
        for line in self.told("smaps").lines() {
            if let Some(kilobytes) = line.strip_prefix("Anonymous:") {
                written += if is_of_file { bytes(kilobytes) } else { 0 };
            } else if !line.split(' ').next().unwrap_or_default().ends_with(':') {
                is_of_file = line.contains('/');
            }
        }
        written
    }

    fn memory(&self, name: &str) -> u64 {
        bytes(self.told("status").lines().find_map(|line| line.strip_prefix(name)).expect("it is told"))
    }

    /// What the system tells of the process.
    fn told(&self, what: &str) -> String {
        let path = format!("/proc/{}/{what}", self.child.id().expect("it is running"));
        std::fs::read_to_string(path).expect("it is running")
    }
}

/// What the system writes in kilobytes.
fn bytes(kilobytes: &str) -> u64 {
    kilobytes.trim().trim_end_matches(" kB").parse::<u64>().expect("it is a number") * 1024
}

async fn wait_until_ready(url: &str, output: &Output) {
    let client = Client::builder().no_proxy().build().expect("the defaults are valid");
    let deadline = tokio::time::Instant::now() + MAX_WAIT;
    loop {
        let answer = client.get(format!("{url}/readyz")).send().await;
        if answer.is_ok_and(|answer| answer.status() == 200) {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "the server is not ready:\n{}", output.text());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
