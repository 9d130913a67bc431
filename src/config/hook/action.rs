//! What a hook does.

use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::DeValue;

use super::{HookCommand, Webhook};
use crate::config::quantity::Size;
use crate::config::reader::Section;
use crate::config::to_json::to_json;
use crate::config::value::{FromToml, Misread, Word};
use crate::config::values::Recorded;
use crate::types::hook::{HookPoint, Sends};

/// What a hook does.
#[derive(Debug, Clone, PartialEq)]
pub enum HookAction {
    /// Writes a line to the log.
    Log,
    /// Counts.
    Metric,
    /// Tells a channel in words.
    Notify(Webhook),
    /// Asks or tells a service.
    Webhook(Webhook),
    /// Asks or tells a program.
    Command(HookCommand),
    /// Refuses, for this reason.
    Block(String),
    /// Changes a call.
    Rewrite {
        /// Arguments that are set, before the call.
        arguments: Option<Map<String, Value>>,
        /// The result, after the call.
        result: Option<String>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Log,
    Metric,
    Notify,
    Webhook,
    Command,
    Block,
    Rewrite,
}

impl Word for Kind {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("log", Self::Log),
        ("metric", Self::Metric),
        ("notify", Self::Notify),
        ("webhook", Self::Webhook),
        ("command", Self::Command),
        ("block", Self::Block),
        ("rewrite", Self::Rewrite),
    ];
}

impl HookAction {
    pub(super) fn read(section: &mut Section<'_>) -> Option<Self> {
        let kind: Option<Kind> = section.required(
            "action",
            "What it does: writes a line to the log, counts (`loopgate_hook_matches_total`), tells a channel in words, asks or tells a \
             service or program, refuses, or sets arguments or the result.",
        );
        let Size(max_response) = section.key(
            "max_response",
            "Most bytes of an answer, or of what a program writes; a longer one counts as a failure.",
            Size(256 << 10),
        );
        let max_response = usize::try_from(max_response).unwrap_or(usize::MAX);
        let webhook = Webhook::read(section, max_response);
        let command = HookCommand::read(section, max_response);
        let reason: Option<String> =
            section.optional("reason", "Why `block` refuses: the model and the caller are told.");
        let arguments: Option<Arguments> =
            section.optional("arguments", "Arguments that `rewrite` sets before a call, in place of the model's.");
        let result: Option<String> =
            section.optional("result", "Result that `rewrite` sets after a call, in place of the tool's.");
        let needs = |key: &str, what: &str| section.refuse_here(format!("`{key}` is missing: {what}"));
        let kind = kind?;
        refuse_foreign(section, kind);
        match kind {
            Kind::Log => Some(Self::Log),
            Kind::Metric => Some(Self::Metric),
            Kind::Notify | Kind::Webhook => {
                if !section.is_written("url") {
                    needs("url", "where the service is");
                }
                let webhook = webhook?;
                Some(if kind == Kind::Notify { Self::Notify(webhook) } else { Self::Webhook(webhook) })
            }
            Kind::Command => {
                if !section.is_written("command") {
                    needs("command", "the program");
                }
                Some(Self::Command(command?))
            }
            Kind::Block => Some(Self::Block(reason.unwrap_or_else(|| "The operator does not allow it.".to_owned()))),
            Kind::Rewrite => {
                let arguments = arguments.map(|Arguments(arguments)| arguments);
                if arguments.is_none() && result.is_none() {
                    section.refuse_here("a hook that rewrites needs `arguments` or `result`");
                }
                Some(Self::Rewrite { arguments, result })
            }
        }
    }

    /// What it is sent where it is told.
    #[must_use]
    pub fn sends(&self) -> Sends {
        match self {
            Self::Notify(_) => Sends::Words,
            Self::Webhook(_) | Self::Command(_) => Sends::Messages,
            Self::Log | Self::Metric | Self::Block(_) | Self::Rewrite { .. } => Sends::Nothing,
        }
    }

    /// Whether a run waits for what it says at these points.
    pub(super) fn may_be_asked(&self, points: &[HookPoint], waits: Option<bool>) -> Result<bool, String> {
        let tells_only = |point: &HookPoint| matches!(point, HookPoint::BudgetWarning | HookPoint::RunEnd);
        match self {
            Self::Log | Self::Metric | Self::Notify(_) | Self::Block(_) | Self::Rewrite { .. } if waits.is_some() => {
                Err("only a webhook or a command can be waited for, or not".to_owned())
            }
            Self::Log | Self::Metric | Self::Notify(_) => Ok(false),
            Self::Block(_) | Self::Rewrite { .. } => Ok(true),
            Self::Webhook(_) | Self::Command(_) => match (waits, points.iter().any(tells_only)) {
                (Some(true), true) => {
                    Err("nothing waits at budget_warning and run_end: what happened cannot be changed".to_owned())
                }
                (None, true) if !points.iter().all(tells_only) => Err(
                    "say whether to wait: at budget_warning and run_end nothing waits, and at the other points runs do"
                        .to_owned(),
                ),
                (waits, is_told) => Ok(waits.unwrap_or(!is_told)),
            },
        }
    }

    /// Whether it can be done at these points; else the key that is wrong, and why.
    pub(super) fn fits(&self, points: &[HookPoint]) -> Result<(), (&'static str, &'static str)> {
        let all = |fit: &[HookPoint]| points.iter().all(|point| fit.contains(point));
        match self {
            Self::Block(_) if !all(&[HookPoint::RunStart, HookPoint::BeforeTool, HookPoint::AfterTool]) => {
                Err(("on", "only at run_start, before_tool and after_tool is there something to refuse"))
            }
            Self::Rewrite { arguments: Some(_), result: Some(_) } => {
                Err(("result", "a hook rewrites `arguments` before a call or `result` after it: declare two hooks"))
            }
            Self::Rewrite { arguments: Some(_), .. } if !all(&[HookPoint::BeforeTool]) => {
                Err(("on", "arguments are rewritten at before_tool"))
            }
            Self::Rewrite { result: Some(_), .. } if !all(&[HookPoint::AfterTool, HookPoint::OnError]) => {
                Err(("on", "a result is rewritten at after_tool or on_error"))
            }
            Self::Log
            | Self::Metric
            | Self::Notify(_)
            | Self::Webhook(_)
            | Self::Command(_)
            | Self::Block(_)
            | Self::Rewrite { .. } => Ok(()),
        }
    }
}

/// Reports the keys that belong to other actions: they would do nothing.
fn refuse_foreign(section: &Section<'_>, kind: Kind) {
    const WEBHOOK: &[Kind] = &[Kind::Webhook, Kind::Notify];
    const KEYS: [(&str, &[Kind]); 16] = [
        ("url", WEBHOOK),
        ("headers", WEBHOOK),
        ("secret_env", WEBHOOK),
        ("secret_file", WEBHOOK),
        ("previous_secret_env", WEBHOOK),
        ("previous_secret_file", WEBHOOK),
        ("max_response", &[Kind::Webhook, Kind::Notify, Kind::Command]),
        ("command", &[Kind::Command]),
        ("args", &[Kind::Command]),
        ("cwd", &[Kind::Command]),
        ("env", &[Kind::Command]),
        ("reason", &[Kind::Block]),
        ("arguments", &[Kind::Rewrite]),
        ("result", &[Kind::Rewrite]),
        ("timeout", &[Kind::Webhook, Kind::Notify, Kind::Command]),
        ("retry_for", &[Kind::Webhook, Kind::Notify, Kind::Command]),
    ];
    for (key, of) in KEYS {
        if section.is_written(key) && !of.contains(&kind) {
            section.refuse(key, format!("a hook with action = {} does nothing with this", kind.show()));
        }
    }
}

/// A table of arguments.
struct Arguments(Map<String, Value>);

impl FromToml for Arguments {
    fn form() -> String {
        "table".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        match to_json(value)? {
            Value::Object(members) => Ok(Self(members)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Err(Misread::expected(value, "a table of arguments"))
            }
        }
    }

    fn show(&self) -> String {
        Value::Object(self.0.clone()).to_string()
    }

    /// It may be long.
    fn recorded(&self) -> Recorded {
        Recorded::hidden(&self.show())
    }
}
