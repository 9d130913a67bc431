//! What the operating system says of a process, and the limits it sets to this one.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use rustix::param::clock_ticks_per_second;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::failure::Failure;

/// The CPU time that a process had spent when it was read.
pub(crate) struct CpuTime {
    /// Nanoseconds by thread, from the scheduler.
    threads: HashMap<String, u64>,
    /// Of the whole process, ended threads included, in clock ticks.
    ticks: u64,
}

impl CpuTime {
    /// Reads what the process `pid` has spent.
    pub(crate) fn of(pid: u32) -> Result<Self, Failure> {
        let mut threads = HashMap::new();
        for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
            let entry = entry?;
            // A thread may end between the listing and the reading; a kernel may keep no such statistics.
            if let Ok(text) = fs::read_to_string(entry.path().join("schedstat"))
                && let Some(nanoseconds) = text.split_whitespace().next().and_then(|word| word.parse().ok())
            {
                threads.insert(entry.file_name().to_string_lossy().into_owned(), nanoseconds);
            }
        }
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The command's name, in parentheses, may hold anything; the fields are counted from behind it.
        let (_, fields) = stat.rsplit_once(')').ok_or("/proc/PID/stat has no command")?;
        let times = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
        Ok(Self { threads, ticks: times.sum::<Result<u64, _>>()? })
    }

    /// What was spent since `earlier`: to the nanosecond, unless a thread ended in between and took its
    /// figure along; then to the clock tick (10 ms).
    pub(crate) fn since(&self, earlier: &Self) -> Duration {
        let none_ended = earlier.threads.keys().all(|thread| self.threads.contains_key(thread));
        if none_ended && !self.threads.is_empty() {
            let sum = |time: &Self| time.threads.values().sum::<u64>();
            return Duration::from_nanos(sum(self).saturating_sub(sum(earlier)));
        }
        let ticks = self.ticks.saturating_sub(earlier.ticks);
        Duration::from_nanos(ticks * (1_000_000_000 / clock_ticks_per_second()))
    }
}

/// The resident memory of the process `pid`, in bytes.
pub(crate) fn resident(pid: u32) -> Result<u64, Failure> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("/proc/PID/status has no VmRSS")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib * 1024)
}

/// Raises the limit on open files as far as this user may, for this process and those it starts,
/// and returns what it is then.
pub(crate) fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    if setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).is_ok() {
        return limit.maximum.unwrap_or(u64::MAX);
    }
    limit.current.unwrap_or(u64::MAX)
}

/// The cores: one for the server that is measured, the others for the client and the upstream.
pub(crate) struct Cores {
    server: CpuSet,
    others: CpuSet,
}

impl Cores {
    /// Divides the cores that this process may use, and keeps this thread and what it starts off the
    /// server's. Nothing if there is one core only.
    pub(crate) fn divide() -> Option<Self> {
        let mut others = sched_getaffinity(None).ok().filter(|all| all.count() > 1)?;
        let first = (0..CpuSet::MAX_CPU).find(|&core| others.is_set(core))?;
        let mut server = CpuSet::new();
        server.set(first);
        others.unset(first);
        sched_setaffinity(None, &others).ok()?;
        Some(Self { server, others })
    }

    /// Runs `start` on the server's core. A process that it starts stays there.
    pub(crate) fn on_server_core<T>(&self, start: impl FnOnce() -> T) -> T {
        sched_setaffinity(None, &self.server).ok();
        let started = start();
        sched_setaffinity(None, &self.others).ok();
        started
    }
}

impl Drop for Cores {
    fn drop(&mut self) {
        let mut all = self.others;
        for core in (0..CpuSet::MAX_CPU).filter(|&core| self.server.is_set(core)) {
            all.set(core);
        }
        sched_setaffinity(None, &all).ok();
    }
}
