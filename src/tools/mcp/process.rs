//! The process of a server: started without a shell, in a group of its own, and ended with all that it started.

use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::Signal;
use tokio::process::Child;
use tokio::time::timeout;

use crate::config::McpCommand;
pub(super) use crate::process::Pipes;
use crate::process::{Group, Program, Running};

/// How long a server may take to end once its input is closed, and again once it is told to.
const GRACE: Duration = Duration::from_secs(2);

/// A running server.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    group: Group,
}

impl Process {
    /// Starts it. The error is one sentence without secrets.
    pub(super) fn start(command: &McpCommand) -> Result<(Self, Pipes), String> {
        let McpCommand { program, arguments, env, directory, .. } = command;
        let Running { child, group, pipes } =
            Program { path: program, arguments, env, directory: directory.as_deref() }.start()?;
        Ok((Self { child, group }, pipes))
    }

    /// Ends it, once its input is closed: it may end by itself, is then told to, and at last made to.
    pub(super) async fn end(&mut self) -> Option<ExitStatus> {
        let mut status = timeout(GRACE, self.child.wait()).await.ok();
        if status.is_none() {
            self.group.signal(Signal::TERM);
            status = timeout(GRACE, self.child.wait()).await.ok();
        }
        // What it started may have stayed.
        self.group.signal(Signal::KILL);
        let status = match status {
            Some(status) => status,
            None => self.child.wait().await,
        };
        self.group.end();
        self.group.end_others().await;
        status.ok()
    }
}
