//! Hooks: what the operator has looked at, changed or refused at certain points of a run.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::types::CallId;
use crate::types::json::is_default;
use crate::types::pattern::matches;

/// Where in a run a hook stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookPoint {
    /// Before the run's first model call.
    RunStart,
    /// Before a call of a server-side tool is made.
    BeforeTool,
    /// Once such a call has its answer.
    AfterTool,
    /// Once such a call has failed, or the run has.
    OnError,
    /// Four fifths of a budget are used.
    BudgetWarning,
    /// The run ended, or waits for its client.
    RunEnd,
    /// Nowhere by itself: guardrails ask about texts.
    Guardrail,
}

impl HookPoint {
    /// All points at which hooks stand by themselves, in the order in which a run comes to them.
    pub const ALL: [Self; 6] =
        [Self::RunStart, Self::BeforeTool, Self::AfterTool, Self::OnError, Self::BudgetWarning, Self::RunEnd];

    /// The point as it is written in the configuration and on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RunStart => "run_start",
            Self::BeforeTool => "before_tool",
            Self::AfterTool => "after_tool",
            Self::OnError => "on_error",
            Self::BudgetWarning => "budget_warning",
            Self::RunEnd => "run_end",
            Self::Guardrail => "guardrail",
        }
    }
}

/// What is to become of what a hook was asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookDecision {
    /// The hook has nothing to say against it.
    #[default]
    Pass,
    /// The hook allows the call. What the policy says of it holds all the same.
    Allow,
    /// The call needs an approval.
    Ask,
    /// It is refused.
    Deny,
    /// The hook gives the call's result itself.
    Answer,
}

impl HookDecision {
    /// The decision as it is written on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
            Self::Answer => "answer",
        }
    }
}

/// What a hook is sent that is told, and that no run waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sends {
    /// Nothing: a line or a count is all.
    #[default]
    Nothing,
    /// Messages.
    Messages,
    /// Messages in words.
    Words,
}

/// A hook that a run is subject to, pinned when the run was accepted. What the hook does is the configuration's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedHook {
    /// Its name.
    pub name: Arc<str>,
    /// Where it stands.
    pub points: Vec<HookPoint>,
    /// The tools that it concerns, where it stands at tools; `*` matches any characters.
    pub tools: Vec<String>,
    /// Whether the run waits for what it says.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_asked: bool,
    /// Whether the run goes on as if the hook had nothing against it, where the hook fails.
    #[serde(default, skip_serializing_if = "is_default")]
    pub fails_open: bool,
    /// What it is sent. A replica whose configuration lacks the hook keeps that for another one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub sends: Sends,
}

impl PinnedHook {
    /// Whether it stands at this point, of this tool where the point is one of tools.
    #[must_use]
    pub fn stands_at(&self, point: HookPoint, tool: Option<&str>) -> bool {
        let concerns = |tool: &str| self.tools.iter().any(|pattern| matches(pattern, tool));
        self.points.contains(&point) && tool.is_none_or(concerns)
    }
}

/// What a hook said that the run waited for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HookReply {
    /// What is to become of what it was asked about.
    pub decision: HookDecision,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What the caller is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What the model is told beside the call's result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// The call's arguments in place of the model's, as JSON text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// The call's result in place of the tool's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// Whether that result describes a failure.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_error: bool,
}

/// That a hook was asked, and what it said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HookRan {
    /// The step in which it was asked; 0 before the first.
    pub step: u32,
    /// Its name.
    pub hook: Arc<str>,
    /// Where.
    pub point: HookPoint,
    /// About which call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<CallId>,
    /// What it said, or what holds in its place.
    pub reply: HookReply,
    /// Whether it failed, so that the reply is what its operator wants to hold then.
    #[serde(default, skip_serializing_if = "is_default")]
    pub failed: bool,
    /// How long it took.
    pub latency_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_stands_at_its_points_and_tools() {
        let hook = PinnedHook {
            name: "a".into(),
            points: vec![HookPoint::BeforeTool, HookPoint::RunEnd],
            tools: vec!["github__*".to_owned(), "shell".to_owned()],
            is_asked: true,
            fails_open: false,
            sends: Sends::Nothing,
        };
        let stands = |point, tool| hook.stands_at(point, tool);
        assert!(stands(HookPoint::BeforeTool, Some("shell")) && stands(HookPoint::BeforeTool, Some("github__x")));
        assert!(!stands(HookPoint::BeforeTool, Some("shells")) && !stands(HookPoint::AfterTool, Some("shell")));
        assert!(stands(HookPoint::RunEnd, None), "no tool is asked for at a run's end");
    }
}
