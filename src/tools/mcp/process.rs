//! The process of a server: started without a shell, in a group of its own, and ended with all that it started.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::config::McpCommand;

/// How long a server may take to end once its input is closed, and again once it is told to.
const GRACE: Duration = Duration::from_secs(2);

/// A running server.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    /// The group, which has the number of its first process.
    group: Option<Pid>,
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
        Ok((Self { child, group }, Pipes { input, output, errors }))
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
        self.signal(Signal::KILL);
    }
}
