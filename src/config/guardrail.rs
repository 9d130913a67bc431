//! `guardrails = [{ name, on, kind, … }]` of an agent: rules by which texts are judged.

use std::time::Duration;

use regex::RegexBuilder;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::hook::OnFailure;
use super::quantity::seconds;
use super::value::{FromToml, Misread, PLAIN_NAME, Word, is_plain_name, text, whole};
use crate::types::guard::{GuardPoint, Guardrail, GuardrailRule, MAX_COMPILED, ModelJudge, Severity};
use crate::types::rules::MOST_PROMPT;

/// The members of a guardrail, which stand on one line as a rule.
const MEMBERS: [&str; 13] = [
    "name",
    "on",
    "kind",
    "pattern",
    "max_chars",
    "hook",
    "model",
    "prompt",
    "max_output_tokens",
    "timeout",
    "on_failure",
    "tripwire",
    "severity",
];

/// Most output tokens of one call of a model that says one word, and may think before.
const OUTPUT: u32 = 512;
/// The most that may be asked for instead.
const MOST_OUTPUT: u32 = 32_768;
/// How long such a call may take.
const TIMEOUT: Duration = seconds(30);
/// The longest that may be asked for instead.
const LONGEST_TIMEOUT: Duration = seconds(600);

/// A rule as it is written.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Regex,
    MaxLength,
    Webhook,
    Model,
}

impl Kind {
    /// The members of a guardrail that are of this kind alone.
    fn members(self) -> &'static [&'static str] {
        match self {
            Self::Regex => &["pattern"],
            Self::MaxLength => &["max_chars"],
            Self::Webhook => &["hook", "on_failure"],
            Self::Model => &["model", "prompt", "max_output_tokens", "timeout", "on_failure"],
        }
    }
}

impl Word for Kind {
    const WORDS: &'static [(&'static str, Self)] =
        &[("regex", Self::Regex), ("max_length", Self::MaxLength), ("webhook", Self::Webhook), ("model", Self::Model)];
}

impl Word for GuardPoint {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("input", Self::Input),
        ("output", Self::Output),
        ("tool_arguments", Self::ToolArguments),
        ("tool_result", Self::ToolResult),
    ];
}

impl Word for Severity {
    const WORDS: &'static [(&'static str, Self)] =
        &[("low", Self::Low), ("medium", Self::Medium), ("high", Self::High), ("critical", Self::Critical)];
}

impl FromToml for Guardrail {
    fn form() -> String {
        "guardrail".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        let Some(table) = value.get_ref().as_table() else { return Err(Misread::expected(value, "a table in braces")) };
        if let Some(unknown) = table.keys().find(|key| !MEMBERS.contains(&key.get_ref().as_ref())) {
            let what = format!("unknown member of a guardrail; known here: {}", MEMBERS.join(", "));
            return Err(Misread { at: unknown.span().start, what });
        }
        let name = required(value, table, "name")?;
        if !text(name, "a string").is_ok_and(is_plain_name) {
            return Err(Misread::new(name, PLAIN_NAME));
        }
        let kind = Kind::read(required(value, table, "kind")?)?;
        refuse_foreign(table, kind)?;
        let rule = match kind {
            Kind::Regex => {
                let pattern = required(value, table, "pattern")?;
                let expression = text(pattern, "a regular expression")?;
                RegexBuilder::new(expression).size_limit(MAX_COMPILED).build().map_err(|error| {
                    Misread::new(pattern, format!("this is no regular expression: {}", last_line(&error.to_string())))
                })?;
                GuardrailRule::Regex { pattern: expression.to_owned() }
            }
            Kind::MaxLength => GuardrailRule::MaxLength { chars: u32::read(required(value, table, "max_chars")?)? },
            Kind::Webhook => {
                let hook = text(required(value, table, "hook")?, "the name of a hook")?.to_owned();
                GuardrailRule::Webhook { hook, fails_open: fails_open(table)? }
            }
            Kind::Model => GuardrailRule::Model(Box::new(read_judge(value, table)?)),
        };
        Ok(Self {
            name: text(name, "a string")?.to_owned(),
            on: GuardPoint::read(required(value, table, "on")?)?,
            rule,
            tripwire: table.get("tripwire").map_or(Ok(false), bool::read)?,
            severity: table.get("severity").map_or(Ok(Severity::Medium), Severity::read)?,
        })
    }

    fn show(&self) -> String {
        let rule = match &self.rule {
            GuardrailRule::Regex { pattern } => format!("kind = \"regex\", pattern = {pattern:?}"),
            GuardrailRule::MaxLength { chars } => format!("kind = \"max_length\", max_chars = {chars}"),
            GuardrailRule::Webhook { hook, fails_open } => {
                format!("kind = \"webhook\", hook = {hook:?}, on_failure = {}", show_failure(*fails_open))
            }
            GuardrailRule::Model(judge) => {
                let ModelJudge { model, prompt, max_output_tokens, timeout_ms, fails_open } = &**judge;
                let (timeout, on_failure) = (Duration::from_millis(*timeout_ms).show(), show_failure(*fails_open));
                format!(
                    "kind = \"model\", model = {model:?}, prompt = {prompt:?}, max_output_tokens = {max_output_tokens}, \
                     timeout = {timeout}, on_failure = {on_failure}"
                )
            }
        };
        let Self { name, on, tripwire, severity, .. } = self;
        let (on, severity) = (on.as_str(), severity.as_str());
        format!("{{ name = {name:?}, on = {on:?}, {rule}, tripwire = {tripwire}, severity = {severity:?} }}")
    }
}

fn show_failure(fails_open: bool) -> String {
    if fails_open { OnFailure::Allow } else { OnFailure::Deny }.show()
}

/// A model that judges texts.
fn read_judge(value: &Spanned<DeValue<'_>>, table: &DeTable<'_>) -> Result<ModelJudge, Misread> {
    let model = text(required(value, table, "model")?, "UPSTREAM/MODEL")?.to_owned();
    let written = required(value, table, "prompt")?;
    let prompt = text(written, "a string")?;
    if prompt.trim().is_empty() || prompt.len() > MOST_PROMPT {
        return Err(Misread::new(written, format!("must be a text of 1 to {MOST_PROMPT} bytes")));
    }
    let max_output_tokens = match table.get("max_output_tokens") {
        Some(written) => whole(written, MOST_OUTPUT)?,
        None => OUTPUT,
    };
    let timeout = match table.get("timeout") {
        Some(written) => match Duration::read(written)? {
            timeout if timeout > LONGEST_TIMEOUT => return Err(Misread::new(written, "must be no longer than 10m")),
            timeout => timeout,
        },
        None => TIMEOUT,
    };
    let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
    let fails_open = fails_open(table)?;
    Ok(ModelJudge { model, prompt: prompt.to_owned(), max_output_tokens, timeout_ms, fails_open })
}

fn fails_open(table: &DeTable<'_>) -> Result<bool, Misread> {
    let on_failure = table.get("on_failure").map_or(Ok(OnFailure::Deny), OnFailure::read)?;
    Ok(on_failure == OnFailure::Allow)
}

/// Refuses members that belong to other kinds: they would do nothing.
fn refuse_foreign(table: &DeTable<'_>, kind: Kind) -> Result<(), Misread> {
    const OF_ALL: [&str; 5] = ["name", "on", "kind", "tripwire", "severity"];
    let is_foreign = |name: &str| !OF_ALL.contains(&name) && !kind.members().contains(&name);
    match table.keys().find(|key| is_foreign(key.get_ref().as_ref())) {
        Some(key) => {
            let what = format!("a guardrail with kind = {} does nothing with this", kind.show());
            Err(Misread { at: key.span().start, what })
        }
        None => Ok(()),
    }
}

/// A member that must be there.
fn required<'t, 'd>(
    value: &Spanned<DeValue<'d>>,
    table: &'t DeTable<'d>,
    name: &str,
) -> Result<&'t Spanned<DeValue<'d>>, Misread> {
    table.get(name).ok_or_else(|| Misread::new(value, format!("a guardrail of this kind needs `{name}`")))
}

/// The line of an explanation that says what is wrong.
fn last_line(error: &str) -> &str {
    error.lines().last().unwrap_or_default().trim_start_matches("error: ")
}
