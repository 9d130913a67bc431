//! A program that is asked or told.

use std::fmt;
use std::path::PathBuf;

use crate::config::mcp::{CommandLine, given_and_passed_on, read_env};
use crate::config::reader::Section;
use crate::config::secret::Secret;

/// What every program is given of the environment: what it needs to find others and to write text. Nothing else: the
/// environment of this process holds keys.
const PASSED_ON: [&str; 5] = ["PATH", "LANG", "LC_ALL", "TZ", "TMPDIR"];

/// A program that is asked or told.
#[derive(Clone, PartialEq)]
pub struct HookCommand {
    /// The program, by its path or its name.
    pub program: String,
    /// What it is told beside the message on its standard input.
    pub arguments: Vec<String>,
    /// All of its environment.
    pub env: Vec<(String, Secret)>,
    /// Where it works; `None` for where this process does.
    pub directory: Option<PathBuf>,
    /// Most bytes that are read of what it writes.
    pub max_output: usize,
}

impl HookCommand {
    pub(super) fn read(section: &mut Section<'_>, max_output: usize) -> Option<Self> {
        let command: Option<CommandLine> = section.optional(
            "command",
            "Program of `command`, started without a shell for each message, which it finds on its standard input: its name or path, or \
             a list with its arguments.",
        );
        let arguments: Vec<String> = section.key("args", "More arguments of the program.", Vec::new());
        let directory: Option<String> = section.optional("cwd", "Directory in which the program works.");
        let own: Vec<(String, Secret)> = read_env(section).into_iter().map(|(variable, _)| variable).collect();
        let CommandLine(mut line) = command?;
        let program = line.remove(0);
        line.extend(arguments);
        let env = given_and_passed_on(own, &PASSED_ON, |variable| section.env(variable));
        Some(Self { program, arguments: line, env, directory: directory.map(PathBuf::from), max_output })
    }
}

impl fmt::Debug for HookCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the arguments, which may hold keys.
        f.debug_struct("HookCommand").field("program", &self.program).finish_non_exhaustive()
    }
}
