//! How a server is started: its program, and what that is given.

use std::fmt;
use std::path::PathBuf;

use toml::Spanned;
use toml::de::DeValue;

use super::super::reader::Section;
use super::super::secret::Secret;
use super::super::sent_value;
use super::super::value::{FromToml, Misread};
use super::super::values::Recorded;

/// What every server is given of the environment: what programs need to find others and their own files. Nothing else: the
/// environment of this process holds keys.
const PASSED_ON: [&str; 12] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
];

/// How a server is started.
#[derive(Clone, PartialEq)]
pub struct McpCommand {
    /// The program, by its path or its name.
    pub program: String,
    /// What it is told.
    pub arguments: Vec<String>,
    /// All of its environment.
    pub env: Vec<(String, Secret)>,
    /// What of it no model is told.
    pub secrets: Vec<Secret>,
    /// Where it works; `None` for where this process does.
    pub directory: Option<PathBuf>,
}

impl McpCommand {
    pub(super) fn read(section: &mut Section<'_>) -> Option<Self> {
        let command: Option<CommandLine> = section.optional(
            "command",
            "Program that is the server, started without a shell and spoken to through its standard input and output: its name or \
             path, or a list with its arguments.",
        );
        let arguments: Vec<String> = section.key("args", "More arguments of the program.", Vec::new());
        let directory: Option<String> = section.optional("cwd", "Directory in which the program works.");
        let (own, secrets): (Vec<_>, Vec<_>) = read_env(section).into_iter().unzip();
        let CommandLine(mut line) = command?;
        let program = line.remove(0);
        line.extend(arguments);
        let env = environment(own, |variable| section.env(variable));
        let secrets = secrets.into_iter().flatten().collect();
        Some(Self { program, arguments: line, env, secrets, directory: directory.map(PathBuf::from) })
    }

    /// The values that were given to it: any of them may be a secret.
    pub fn given(&self) -> impl Iterator<Item = &Secret> {
        let given = self.env.iter().filter(|(name, _)| !PASSED_ON.contains(&name.as_str()));
        given.map(|(_, value)| value)
    }
}

impl fmt::Debug for McpCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the arguments, which may hold keys.
        f.debug_struct("McpCommand").field("program", &self.program).finish_non_exhaustive()
    }
}

/// What a server finds in its environment.
pub(super) fn environment(own: Vec<(String, Secret)>, env: impl Fn(&str) -> Option<String>) -> Vec<(String, Secret)> {
    given_and_passed_on(own, &PASSED_ON, env)
}

/// What a program finds in its environment: what it is given, and what is `passed_on` to all programs of its kind.
pub(in crate::config) fn given_and_passed_on(
    own: Vec<(String, Secret)>,
    passed_on: &[&str],
    env: impl Fn(&str) -> Option<String>,
) -> Vec<(String, Secret)> {
    let is_given = |name: &str| own.iter().any(|(given, _)| given == name);
    let passed_on = passed_on.iter().filter(|name| !is_given(name));
    let passed_on: Vec<_> = passed_on.filter_map(|name| Some(((*name).to_owned(), Secret::new(env(name)?)))).collect();
    [own, passed_on].concat()
}

/// A variable, and what of its value no model is told.
pub(in crate::config) type Given = ((String, Secret), Option<Secret>);

/// Reads the table `env`: the variables that a program is given.
pub(in crate::config) fn read_env(section: &mut Section<'_>) -> Vec<Given> {
    section.named_or_text("env", |name, text, section| {
        let prefix = section.key("prefix", "Text before the secret.", String::new());
        let value = sent_value::read(&prefix, text, section)?;
        section.record_here(Recorded::hidden(value.whole.expose()));
        if !is_variable(name) && !section.is_described() {
            section.refuse_here("this is not the name of an environment variable");
        }
        if value.whole.expose().contains('\0') {
            section.refuse_here("it holds a zero byte, which an environment variable cannot");
        }
        // What stands in the file is mostly a directory or a level, which answers may hold.
        let secret = value.secret.filter(|_| text.is_none() || names_secret(name));
        Some(((name.to_owned(), value.whole), secret))
    })
}

/// Whether the value of a variable of this name is a secret, also where it is written in the file.
pub(super) fn names_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSPHRASE", "CREDENTIAL"].iter().any(|word| name.contains(word))
}

/// Whether this can be the name of an environment variable.
pub(super) fn is_variable(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

/// A program, or a program and its arguments.
pub(in crate::config) struct CommandLine(pub(in crate::config) Vec<String>);

impl FromToml for CommandLine {
    fn form() -> String {
        "string or list of strings".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        let line = match value.get_ref() {
            DeValue::String(program) => vec![program.to_string()],
            DeValue::Array(_) => Vec::<String>::read(value)?,
            DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Table(_) => return Err(Misread::expected(value, "a string, or a list of strings")),
        };
        if line.first().is_none_or(String::is_empty) {
            return Err(Misread::new(value, "must name a program"));
        }
        if line.iter().any(|part| part.contains('\0')) {
            return Err(Misread::new(value, "must hold no zero byte"));
        }
        Ok(Self(line))
    }

    fn show(&self) -> String {
        self.0.show()
    }

    /// Arguments may hold keys.
    fn recorded(&self) -> Recorded {
        Recorded::hidden(&self.show())
    }
}
