//! The process of a server: started without a shell, in a group of its own, and ended with all that it started.

use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
#[cfg(target_os = "linux")]
use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::config::McpCommand;
use crate::types::clock::now_ms;

/// How long a server may take to end once its input is closed, and again once it is told to.
const GRACE: Duration = Duration::from_secs(2);

/// A running server.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    /// The group, which has the number of its first process.
    group: Option<Pid>,
    /// What stands in its environment, and in that of what it starts.
    mark: String,
}

/// The member of the environment by which the processes of a server are known that left its group.
const MARK: &str = "LOOPGATE_MCP_PROCESS";
/// How often such processes are looked for: those that are ended may have started others meanwhile.
#[cfg(target_os = "linux")]
const ROUNDS: u32 = 4;

/// A mark that no other process of a server has.
fn new_mark() -> String {
    static STARTED: AtomicU64 = AtomicU64::new(0);
    let (own, number) = (std::process::id(), STARTED.fetch_add(1, Ordering::Relaxed));
    format!("{own}-{}-{number}", now_ms())
}

/// The ends of its pipes.
#[derive(Debug)]
pub(super) struct Pipes {
    pub(super) input: ChildStdin,
    pub(super) output: ChildStdout,
    pub(super) errors: ChildStderr,
}

impl Process {
    /// Starts it. The error is one sentence without secrets.
    pub(super) fn start(command: &McpCommand) -> Result<(Self, Pipes), String> {
        let mut process = Command::new(&command.program);
        process.args(&command.arguments).env_clear();
        process.envs(command.env.iter().map(|(name, value)| (name, value.expose())));
        let mark = new_mark();
        process.env(MARK, &mark);
        if let Some(directory) = &command.directory {
            process.current_dir(directory);
        }
        process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Signals that a terminal sends to this process are not for it.
        process.process_group(0).kill_on_drop(true);
        let cannot = |error: std::io::Error| format!("`{}` cannot be started: {error}", command.program);
        let mut child = process.spawn().map_err(cannot)?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let pipes = child.stdin.take().zip(child.stdout.take()).zip(child.stderr.take());
        let ((input, output), errors) = pipes.ok_or_else(|| format!("`{}` has no pipes", command.program))?;
        Ok((Self { child, group, mark }, Pipes { input, output, errors }))
    }

    /// Ends it, once its input is closed: it may end by itself, is then told to, and at last made to.
    pub(super) async fn end(&mut self) -> Option<ExitStatus> {
        let mut status = timeout(GRACE, self.child.wait()).await.ok();
        if status.is_none() {
            self.signal(Signal::TERM);
            status = timeout(GRACE, self.child.wait()).await.ok();
        }
        // What it started may have stayed.
        self.signal(Signal::KILL);
        let status = match status {
            Some(status) => status,
            None => self.child.wait().await,
        };
        self.group = None;
        let mark = self.mark.clone();
        // Without an answer they stay, as they do where processes cannot be looked at.
        let _ = tokio::task::spawn_blocking(move || end_marked(&mark)).await;
        status.ok()
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // Nothing is left of the group if this fails.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.group.is_some() {
            self.signal(Signal::KILL);
            end_marked(&self.mark);
        }
    }
}

/// Ends the processes that have this mark: those that a server started in a group of their own. One that cleared its
/// environment is not found.
#[cfg(target_os = "linux")]
fn end_marked(mark: &str) {
    let member = format!("{MARK}={mark}");
    for _ in 0..ROUNDS {
        let mut found = false;
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let number = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
            // It is held before it is looked at, so that no other process of its number is ended.
            let Some(process) = number.and_then(|number| pidfd_open(number, PidfdFlags::empty()).ok()) else {
                continue;
            };
            let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            if environment.split(|byte| *byte == 0).any(|own| own == member.as_bytes()) {
                found = true;
                let _ = pidfd_send_signal(&process, Signal::KILL);
            }
        }
        if !found {
            return;
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn end_marked(_mark: &str) {}
