//! `guardrails = [{ name, on, kind, … }]` of an agent: rules by which texts are judged.

use regex::RegexBuilder;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::value::{FromToml, Misread, PLAIN_NAME, Word, is_plain_name, text};
use crate::types::guard::{GuardPoint, Guardrail, GuardrailRule, MAX_COMPILED, Severity};

/// The members of a guardrail, which stand on one line as a rule.
const MEMBERS: [&str; 7] = ["name", "on", "kind", "pattern", "max_chars", "tripwire", "severity"];

/// A rule as it is written.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Regex,
    MaxLength,
}

impl Word for Kind {
    const WORDS: &'static [(&'static str, Self)] = &[("regex", Self::Regex), ("max_length", Self::MaxLength)];
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
        let rule = match Kind::read(required(value, table, "kind")?)? {
            Kind::Regex => {
                let pattern = required(value, table, "pattern")?;
                let expression = text(pattern, "a regular expression")?;
                RegexBuilder::new(expression).size_limit(MAX_COMPILED).build().map_err(|error| {
                    Misread::new(pattern, format!("this is no regular expression: {}", last_line(&error.to_string())))
                })?;
                GuardrailRule::Regex { pattern: expression.to_owned() }
            }
            Kind::MaxLength => GuardrailRule::MaxLength { chars: u32::read(required(value, table, "max_chars")?)? },
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
        };
        let Self { name, on, tripwire, severity, .. } = self;
        let (on, severity) = (on.as_str(), severity.as_str());
        format!("{{ name = {name:?}, on = {on:?}, {rule}, tripwire = {tripwire}, severity = {severity:?} }}")
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
