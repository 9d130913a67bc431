//! Starts programs without a shell, each in a process group of its own, which is ended with all that the program started.

use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Pid, Signal, kill_process_group};
#[cfg(target_os = "linux")]
use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use crate::config::Secret;
use crate::types::clock::now_ms;

/// The member of the environment by which the processes of a program are known that left its group.
const MARK: &str = "LOOPGATE_PROCESS";
/// How often such processes are looked for: those that are ended may have started others meanwhile.
#[cfg(target_os = "linux")]
const ROUNDS: u32 = 4;

/// A program, and what it is given.
#[derive(Clone, Copy)]
pub struct Program<'a> {
    /// Its path or its name.
    pub path: &'a str,
    /// What it is told.
    pub arguments: &'a [String],
    /// All of its environment, but for a mark.
    pub env: &'a [(String, Secret)],
    /// Where it works; `None` for where this process does.
    pub directory: Option<&'a Path>,
}

/// A program that runs.
#[derive(Debug)]
pub struct Running {
    /// Its first process.
    pub child: Child,
    /// All its processes.
    pub group: Group,
    /// The ends of its pipes.
    pub pipes: Pipes,
}

/// The ends of a program's pipes.
#[derive(Debug)]
pub struct Pipes {
    pub input: ChildStdin,
    pub output: ChildStdout,
    pub errors: ChildStderr,
}

/// All processes of a program. They end when this is dropped.
#[derive(Debug)]
pub struct Group {
    /// The number of the group that the program was started in; `None` once it was ended.
    number: Option<Pid>,
    /// What stands in the environment of the program, and in that of what it starts.
    mark: String,
}

impl Program<'_> {
    /// Starts it. The error is one sentence without secrets.
    pub fn start(self) -> Result<Running, String> {
        let Self { path, arguments, env, directory } = self;
        let mark = new_mark();
        let mut process = Command::new(path);
        process.args(arguments).env_clear();
        process.envs(env.iter().map(|(name, value)| (name, value.expose()))).env(MARK, &mark);
        if let Some(directory) = directory {
            process.current_dir(directory);
        }
        process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Signals that a terminal sends to this process are not for it.
        process.process_group(0).kill_on_drop(true);
        let mut child = process.spawn().map_err(|error| format!("`{path}` cannot be started: {error}"))?;
        // The group has the number of its first process.
        let group = Group { number: child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw), mark };
        let pipes = child.stdin.take().zip(child.stdout.take()).zip(child.stderr.take());
        let ((input, output), errors) = pipes.ok_or_else(|| format!("`{path}` has no pipes"))?;
        Ok(Running { child, group, pipes: Pipes { input, output, errors } })
    }
}

impl Group {
    /// Sends all processes of the group this signal.
    pub fn signal(&self, signal: Signal) {
        if let Some(number) = self.number {
            // Nothing is left of the group if this fails.
            let _ = kill_process_group(number, signal);
        }
    }

    /// Ends what is left of the group whose first process has ended. Later the number may be another group's.
    pub fn end(&mut self) {
        self.signal(Signal::KILL);
        self.number = None;
    }

    /// Ends what the program started in other groups.
    pub async fn end_others(&self) {
        let mark = self.mark.clone();
        // Without an answer they stay, as they do where processes cannot be looked at.
        let _ = tokio::task::spawn_blocking(move || end_marked(&mark)).await;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.number.is_some() {
            self.end();
            let others = Others(std::mem::take(&mut self.mark));
            // Looking at all processes of the system takes too long for the thread of a runtime.
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn_blocking(move || drop(others));
            }
        }
    }
}

/// What bears this mark. It ends when this is dropped, also by a runtime that ends before it comes to that.
struct Others(String);

impl Drop for Others {
    fn drop(&mut self) {
        end_marked(&self.0);
    }
}

/// A mark that no other program has.
fn new_mark() -> String {
    static STARTED: AtomicU64 = AtomicU64::new(0);
    let (own, number) = (std::process::id(), STARTED.fetch_add(1, Ordering::Relaxed));
    format!("{own}-{}-{number}", now_ms())
}

/// Ends the processes that have this mark: those that a program started in a group of their own. One that cleared its
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

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;

    /// A program that is left by a process in a group of its own, and where that writes its number.
    async fn runaway(dir: &Path) -> (Running, std::path::PathBuf) {
        let number = dir.join("number");
        let script =
            format!("setsid sh -c 'echo $$ > {0}.new; mv {0}.new {0}; exec sleep 600' & wait", number.display());
        let arguments = ["-c".to_owned(), script];
        let env = [("PATH".to_owned(), Secret::new("/usr/bin:/bin"))];
        let running = Program { path: "/bin/sh", arguments: &arguments, env: &env, directory: None }.start().unwrap();
        until(|| number.exists()).await;
        (running, number)
    }

    async fn until(holds: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !holds() {
            assert!(Instant::now() < end, "it does not come to that");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn is_running(number: &Path) -> bool {
        let number = std::fs::read_to_string(number).unwrap();
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", number.trim())).unwrap_or_default();
        stat.contains(") S") || stat.contains(") R")
    }

    #[test]
    fn what_left_the_group_ends_beside_the_runtime_and_also_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
        let number = runtime.block_on(async {
            let (running, number) = runaway(dir.path()).await;
            let (go_on, waits) = std::sync::mpsc::channel::<()>();
            let (busy, is_busy) = tokio::sync::oneshot::channel();
            tokio::task::spawn_blocking(move || {
                let _ = busy.send(());
                let _ = waits.recv();
            });
            is_busy.await.unwrap();
            drop(running);
            assert!(is_running(&number), "the thread of the runtime looked at all processes");
            drop(go_on);
            number
        });
        drop(runtime);
        let end = Instant::now() + Duration::from_secs(20);
        while is_running(&number) {
            assert!(Instant::now() < end, "it goes on");
            std::thread::yield_now();
        }
    }
}
