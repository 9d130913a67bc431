//! `[hooks.NAME]`: what the operator has looked at, changed or refused at certain points of runs.

mod action;
mod command;
mod webhook;

use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

pub use self::action::HookAction;
pub use self::command::HookCommand;
pub use self::webhook::{SigningSecret, Webhook};
use super::quantity::seconds;
use super::reader::Section;
use super::tool_pattern::ToolPattern;
use super::value::{FromToml, Misread, PLAIN_NAME, Word, is_plain_name};
use crate::types::hook::{HookPoint, PinnedHook};
use crate::types::pattern::matches;

/// Most time for one attempt: a run waits for it, or a place for sending messages is taken.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(600);
/// Most time for which a message is sent again.
pub const LONGEST_RETRIES: Duration = Duration::from_secs(7 * 86_400);

/// A hook.
#[derive(Debug, Clone, PartialEq)]
pub struct HookConfig {
    /// Its name.
    pub name: String,
    /// Where it stands.
    pub points: Vec<HookPoint>,
    /// The tools that it concerns, where it stands at tools; `*` matches any characters.
    pub tools: Vec<String>,
    /// The agents whose runs it concerns.
    pub agents: Vec<String>,
    /// The users whose runs it concerns; `None` for all, and those of nobody.
    pub users: Option<Vec<String>>,
    /// What it does.
    pub action: HookAction,
    /// Whether a run waits for what it says.
    pub is_asked: bool,
    /// How long one attempt may take.
    pub timeout: Duration,
    /// Whether a run goes on as if the hook had nothing against it, where the hook fails.
    pub fails_open: bool,
    /// How long a message is sent again that no run waits for, until it is given up.
    pub retry_for: Duration,
}

impl HookConfig {
    pub(super) fn read(name: &str, section: &mut Section<'_>) -> Option<Self> {
        if !is_plain_name(name) && !section.is_described() {
            section.refuse_here(PLAIN_NAME);
        }
        let points: Option<Points> = section.required(
            "on",
            "Where the hook stands: before the first model call, before and after calls of tools, where a call or a run failed, where \
             four fifths of a budget are used, or at the end of a run; one of them, or a list. `guardrail`, which stands alone, \
             is for hooks that guardrails ask."
        );
        let tools = section.key(
            "tools",
            "Tools that it concerns, where it stands at tools; `*` matches any characters.",
            vec![ToolPattern::new("*")],
        );
        let tools = tools.into_iter().map(|ToolPattern(pattern)| pattern).collect();
        let agents = section.key("agents", "Agents whose runs it concerns.", vec!["*".to_owned()]);
        let users: Option<Vec<String>> = section.optional(
            "users",
            "Users whose runs it concerns, by the request's `user`; if absent, all runs, also those of nobody.",
        );
        let action = HookAction::read(section);
        let waits: Option<bool> = section.optional(
            "wait",
            "Whether the run waits for what a webhook or command says. If not, each message is kept in the store and sent again until it \
             is taken ([delivery](hooks.md#delivery)). By default a run waits wherever a hook may change what happens: everywhere but at \
             `budget_warning` and `run_end`.",
        );
        let timeout = section.key("timeout", "Most time for one webhook or command; 10 minutes at most.", seconds(5));
        let on_failure = section.key(
            "on_failure",
            "What holds where a hook that the run waits for fails or takes too long: `deny` refuses the call (after a call: withholds \
             its result; at the start: ends the run), `allow` goes on.",
            OnFailure::Deny,
        );
        let retry_for = section.key(
            "retry_for",
            "How long a message is sent again that no run waits for, before it is given up; 7 days at most.",
            seconds(86_400),
        );
        let (Points(points), action) = (points?, action?);
        let is_asked = action.may_be_asked(&points, waits).map_err(|what| section.refuse("wait", what)).ok()?;
        if let Err((key, what)) = action.fits(&points) {
            section.refuse(key, what);
        }
        let fails_open = on_failure == OnFailure::Allow;
        let name = name.to_owned();
        let read = Self { name, points, tools, agents, users, action, is_asked, timeout, fails_open, retry_for };
        read.refuse_idle_keys(section);
        read.refuse_keys_of_guardrails(section);
        Some(read)
    }

    /// Reports what would make the hook concern nothing, what would do nothing, and times that are of no use.
    fn refuse_idle_keys(&self, section: &Section<'_>) {
        let lists = [("tools", Some(&self.tools)), ("agents", Some(&self.agents)), ("users", self.users.as_ref())];
        for (key, _) in lists.into_iter().filter(|(_, names)| names.is_some_and(Vec::is_empty)) {
            section.refuse(key, "names nothing, so the hook would never apply: leave it out for all");
        }
        let is_of_tools =
            |point: &HookPoint| matches!(point, HookPoint::BeforeTool | HookPoint::AfterTool | HookPoint::OnError);
        if section.is_written("tools") && !self.points.iter().any(is_of_tools) {
            section.refuse(
                "tools",
                "no tool is called at these points: a hook at before_tool, after_tool or on_error has tools",
            );
        }
        if section.is_written("on_failure") && !self.is_asked {
            section.refuse("on_failure", "no run waits for this hook, so nothing fails where it does");
        }
        // Hooks that are asked about failed calls are told of failed runs.
        if section.is_written("retry_for") && self.is_asked && !self.points.contains(&HookPoint::OnError) {
            section.refuse("retry_for", "runs wait for what this hook says, so it is sent no message again");
        }
        let reads_answers = self.is_asked || matches!(self.action, HookAction::Command(_));
        if section.is_written("max_response") && !reads_answers {
            section.refuse("max_response", "no run waits for this hook, so no answer of the service is read");
        }
        if self.timeout > LONGEST_TIMEOUT {
            section.refuse("timeout", "must be no longer than 10m");
        }
        if self.retry_for > LONGEST_RETRIES {
            section.refuse("retry_for", "must be no longer than 7d");
        }
    }

    /// Reports what a hook that guardrails ask does nothing with.
    fn refuse_keys_of_guardrails(&self, section: &Section<'_>) {
        if !self.points.contains(&HookPoint::Guardrail) {
            return;
        }
        if self.points.len() > 1 {
            section.refuse("on", "a hook that guardrails ask stands at no other point");
        }
        if !matches!(self.action, HookAction::Webhook(_) | HookAction::Command(_)) {
            section.refuse("action", "a guardrail asks a webhook or a command");
        }
        for key in ["tools", "agents", "users", "wait", "on_failure", "retry_for"] {
            if section.is_written(key) {
                section
                    .refuse(key, "the guardrails that ask the hook say what is judged, and what holds where it fails");
            }
        }
    }

    /// Whether guardrails ask it, and it stands nowhere by itself.
    #[must_use]
    pub fn is_of_guardrails(&self) -> bool {
        self.points.contains(&HookPoint::Guardrail)
    }

    /// Whether it concerns the runs of this agent and user.
    #[must_use]
    pub fn concerns(&self, agent: &str, user: Option<&str>) -> bool {
        let names = |patterns: &[String], name: &str| patterns.iter().any(|pattern| matches(pattern, name));
        let users = |patterns: &Vec<String>| user.is_some_and(|user| names(patterns, user));
        names(&self.agents, agent) && self.users.as_ref().is_none_or(users)
    }

    /// What a run keeps of it that it concerns.
    #[must_use]
    pub fn pinned(&self) -> PinnedHook {
        let Self { points, tools, is_asked, fails_open, action, .. } = self;
        PinnedHook {
            name: self.name.as_str().into(),
            points: points.clone(),
            tools: tools.clone(),
            is_asked: *is_asked,
            fails_open: *fails_open,
            sends: action.sends(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum OnFailure {
    Deny,
    Allow,
}

impl Word for OnFailure {
    const WORDS: &'static [(&'static str, Self)] = &[("deny", Self::Deny), ("allow", Self::Allow)];
}

impl Word for HookPoint {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("run_start", Self::RunStart),
        ("before_tool", Self::BeforeTool),
        ("after_tool", Self::AfterTool),
        ("on_error", Self::OnError),
        ("budget_warning", Self::BudgetWarning),
        ("run_end", Self::RunEnd),
        ("guardrail", Self::Guardrail),
    ];
}

/// One point, or a list of several.
struct Points(Vec<HookPoint>);

impl FromToml for Points {
    fn form() -> String {
        HookPoint::form()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        let points = match value.get_ref() {
            DeValue::Array(_) => Vec::<HookPoint>::read(value)?,
            DeValue::String(_)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Table(_) => vec![HookPoint::read(value)?],
        };
        if points.is_empty() {
            return Err(Misread::new(value, "must name a point"));
        }
        Ok(Self(points))
    }

    fn show(&self) -> String {
        self.0.show()
    }
}
