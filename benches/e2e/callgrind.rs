//! Counts what a server does under valgrind's callgrind: instructions, and how often it calls which functions.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::Failure;

/// What callgrind calls its reports, which it numbers.
const REPORT: &str = "callgrind.out";
/// Names the pipes by which the server under valgrind is told to begin and to report.
const PIPES: &str = "vgdb";

/// What a server did in some time.
pub(crate) struct Counts {
    /// Of all its threads, outside of the kernel.
    pub(crate) instructions: u64,
    /// How often each function was called that has a name and was not inlined.
    calls: HashMap<String, u64>,
}

impl Counts {
    /// How often functions were called whose names `is_meant` takes.
    pub(crate) fn calls(&self, is_meant: impl Fn(&str) -> bool) -> u64 {
        self.calls.iter().filter(|(name, _)| is_meant(name)).map(|(_, count)| count).sum()
    }
}

/// Runs `program` under callgrind, which reports into `directory`.
pub(crate) fn command(program: &Path, directory: &Path) -> Command {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "-q"]).arg(option("--callgrind-out-file", directory, REPORT));
    command.arg(option("--vgdb-prefix", directory, PIPES)).arg(program);
    command
}

/// Counts that the process `pid` has been given by this module's command, one after the other.
pub(crate) struct Callgrind {
    pid: u32,
    directory: PathBuf,
    reports: u32,
}

impl Callgrind {
    /// The process was started with [`command`] and this directory.
    pub(crate) fn of(pid: u32, directory: &Path) -> Self {
        Self { pid, directory: directory.to_owned(), reports: 0 }
    }

    /// Forgets what was counted so far.
    pub(crate) fn begin(&self) -> Result<(), Failure> {
        self.tell("zero")
    }

    /// What was counted since [`Callgrind::begin`].
    pub(crate) fn report(&mut self) -> Result<Counts, Failure> {
        self.tell("dump")?;
        self.reports += 1;
        let report = self.directory.join(format!("{REPORT}.{}", self.reports));
        parse(&std::fs::read_to_string(report)?)
    }

    fn tell(&self, what: &str) -> Result<(), Failure> {
        let mut vgdb = Command::new("vgdb");
        vgdb.arg(format!("--pid={}", self.pid)).arg(option("--vgdb-prefix", &self.directory, PIPES)).arg(what);
        let status = vgdb.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        match status.map_err(|error| format!("cannot start vgdb: {error}"))? {
            status if status.success() => Ok(()),
            status => Err(format!("vgdb could not tell the server to {what} what was counted: {status}").into()),
        }
    }
}

fn option(name: &str, directory: &Path, file: &str) -> String {
    format!("{name}={}", directory.join(file).display())
}

/// Reads callgrind's format, in which a name is written once and has a number from then on.
fn parse(report: &str) -> Result<Counts, Failure> {
    let (mut names, mut calls) = (HashMap::new(), HashMap::<&str, u64>::new());
    let (mut instructions, mut callee) = (None, None);
    for line in report.lines() {
        let Some((key, value)) = line.split_once(['=', ':']) else { continue };
        match key {
            "totals" | "summary" => instructions = Some(value.trim().parse()?),
            "fn" => _ = named(value, &mut names),
            "cfn" => callee = named(value, &mut names),
            "calls" => {
                let count = value.split(' ').next().unwrap_or_default();
                *calls.entry(callee.unwrap_or_default()).or_default() += count.parse::<u64>()?;
            }
            _ => {}
        }
    }
    let calls = calls.into_iter().map(|(id, count)| (names.get(id).copied().unwrap_or_default().to_owned(), count));
    let mut by_name = HashMap::new();
    for (name, count) in calls {
        *by_name.entry(name).or_default() += count;
    }
    Ok(Counts { instructions: instructions.ok_or("callgrind's report has no total")?, calls: by_name })
}

/// The number of a function in `(number) name`, or in `(number)` once it was named.
fn named<'a>(value: &'a str, names: &mut HashMap<&'a str, &'a str>) -> Option<&'a str> {
    let (id, name) = value.strip_prefix('(')?.split_once(')')?;
    if !name.is_empty() {
        names.insert(id, name.trim_start());
    }
    Some(id)
}
