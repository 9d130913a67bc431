//! `[tools.run_code]`: code of models that is run in a sandbox.

use std::path::PathBuf;
use std::time::Duration;

use super::quantity::{Size, seconds};
use super::reader::Section;

/// Which code is run, and what it may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunCodeConfig {
    /// What code may be written in; never empty.
    pub languages: Vec<LanguageConfig>,
    /// Most time for a run.
    pub timeout: Duration,
    /// Most bytes of memory of a run.
    pub memory: u64,
    /// Most bytes of files of a run.
    pub files: u64,
    /// Most bytes of each output of a run that are kept.
    pub output: u64,
    /// Most runs at once; never 0.
    pub concurrent: u32,
    /// Whether it works in the files of the call's workspace, where files are kept.
    pub workspace: bool,
}

/// An interpreter of a language.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LanguageConfig {
    /// The name of the language.
    pub name: String,
    /// The file of the interpreter.
    pub module: PathBuf,
    /// The name of the file that the code is in.
    pub file: String,
    /// What the interpreter is called with; `{file}` stands for the path of the code.
    pub arguments: Vec<String>,
    /// Its environment, as `NAME=value`.
    pub environment: Vec<String>,
    /// What models are told of it.
    pub hint: Option<String>,
}

impl RunCodeConfig {
    pub(super) fn read(section: &mut Section<'_>) -> Option<Self> {
        let timeout = section.key(
            "timeout",
            "Most time for a run; one that takes longer is ended, and the model is told what it said until then.",
            seconds(10),
        );
        let Size(memory) = section.key("memory", "Most memory of a run.", Size(256 << 20));
        let Size(files) = section.key(
            "files",
            "Most bytes that the files of a run have together, beside those of the workspace that it finds.",
            Size(16 << 20),
        );
        let Size(output) = section.key(
            "output",
            "Most bytes of its output that a run may have, and of its errors; the model is told if there are more.",
            Size(16 << 10),
        );
        let concurrent = section.key(
            "concurrent",
            "Most runs at once; others wait. Each takes a core, with a lower priority than all else that the server does.",
            2_u32,
        );
        let workspace = section.key(
            "workspace",
            "Whether code finds the files of the [workspace](#workspaces), where there is one, and changes them. A call then has the \
             effect `write`, else `read`.",
            true,
        );
        let languages = section.named("languages", None, LanguageConfig::read);
        if section.is_described() {
            return None;
        }
        if cfg!(not(feature = "run-code")) {
            section
                .refuse_here("this build of Loopgate runs no code: it was made without the Cargo feature `run-code`");
        } else if !section.has_entries("languages") {
            section.refuse_here("name an interpreter, such as [tools.run_code.languages.python] with `module`");
        }
        (!languages.is_empty()).then_some(Self { languages, timeout, memory, files, output, concurrent, workspace })
    }
}

impl LanguageConfig {
    fn read(name: &str, section: &mut Section<'_>) -> Option<Self> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'+' | b'#');
        if !(1..=32).contains(&name.len()) || !name.bytes().all(allowed) {
            section.refuse_here("the name of a language has 1 to 32 characters of A-Z a-z 0-9 _ - + #");
        }
        let module: Option<String> = section.required(
            "module",
            "File of the interpreter: a WebAssembly module for WASI preview 1 with a `_start`. It is read when it is first needed.",
        );
        let file = section.optional(
            "file",
            "Name of the file that the code is in; if absent, `main.py` for `python`, `main.js` for `javascript`, else `main`.",
        );
        let arguments: Option<Vec<String>> = section.optional(
            "arguments",
            "What the interpreter is called with; `{file}` stands for the path of the code, which is below `/code`. If absent, \
             `[\"--std\", \"{file}\"]` for `javascript`, which is QuickJS, else `[\"{file}\"]`.",
        );
        let environment: Option<Vec<String>> = section.optional(
            "environment",
            "Its environment, which code can read; if absent, `[\"PYTHONPATH=/workspace\"]` for `python`, else nothing.",
        );
        let hint: Option<String> = section.optional(
            "hint",
            "A sentence that models are told of it with the tool; if absent, that of QuickJS for `javascript`, else none.",
        );
        let usual = Usual::of(name);
        let own = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let file = file.unwrap_or_else(|| usual.file.to_owned());
        if file.is_empty() || file.contains(['/', '\0']) {
            section.refuse("file", "must be the name of a file, without a directory");
            return None;
        }
        Some(Self {
            name: name.to_owned(),
            module: module?.into(),
            file,
            arguments: arguments.unwrap_or_else(|| own(usual.arguments)),
            environment: environment.unwrap_or_else(|| own(usual.environment)),
            hint: hint.or_else(|| usual.hint.map(str::to_owned)),
        })
    }
}

/// What is usual for a language.
struct Usual {
    file: &'static str,
    arguments: &'static [&'static str],
    environment: &'static [&'static str],
    hint: Option<&'static str>,
}

impl Usual {
    fn of(language: &str) -> Self {
        let usual = Self { file: "main", arguments: &["{file}"], environment: &[], hint: None };
        match language {
            "python" => Self { file: "main.py", environment: &["PYTHONPATH=/workspace"], ..usual },
            "javascript" => Self { file: "main.js", arguments: &["--std", "{file}"], hint: Some(QUICKJS), ..usual },
            _ => usual,
        }
    }
}

/// What models have to know that write for it.
const QUICKJS: &str = "JavaScript is that of QuickJS without the modules of Node: print with console.log, read a file with \
                       std.loadFile(name) and write one with std.open(name, 'w').";
