//! How a run's loop treats what goes wrong in it, as its agent says: pinned with the run's specification.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::types::ToolOutcome;
use crate::types::composite::Composite;
use crate::types::context::ContextRules;
use crate::types::conversation::Part;
use crate::types::delegate::Delegation;
use crate::types::handoff::HandoffRules;
use crate::types::json::is_default;
use crate::types::memory::{AgentFiles, MemoryRules};
use crate::types::pattern::matches;
use crate::types::tool::CallEnding;

/// Most bytes of what a model is asked beside the conversation.
pub const MOST_PROMPT: usize = 16 << 10;

/// What a model is asked so that it makes a plan, unless the operator has other words for it.
pub const PLAN: &str = "Before you begin: analyse the request, list the steps that you will take, at most five, and name what may go \
                    wrong. Then go on with the first step.";
/// What a model is asked so that it sees how far it has come.
pub const REFLECT: &str = "Before you go on: say in a few sentences what the tool calls so far have brought, whether you are on the \
                       right way, and what is still to be done. Then take the next step, or answer if nothing is left.";

/// After how many tool calls it is asked that.
pub const REFLECT_EVERY: u32 = 3;

/// The rules of a run's loop.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LoopRules {
    /// What a tool call that fails does to the run.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tool_errors: ToolErrors,
    /// When a model that repeats its tool calls is stopped.
    #[serde(default, skip_serializing_if = "is_default")]
    pub loop_guard: LoopGuardRules,
    /// What the first model call of a conversation is asked beside its messages, so that the model makes a plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planning: Option<String>,
    /// When a model is asked how far it has come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reflection: Option<Reflection>,
    /// When and how a conversation is shortened that grows too long.
    #[serde(default, skip_serializing_if = "is_default")]
    pub context: ContextRules,
    /// What is remembered, and what of it the model is shown.
    #[serde(default, skip_serializing_if = "is_default")]
    pub memory: MemoryRules,
    /// What of its files its model is told from the start.
    #[serde(default, skip_serializing_if = "is_default")]
    pub files: AgentFiles,
    /// Patterns of the skills that its model has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<String>,
    /// To whom it delegates.
    #[serde(default, skip_serializing_if = "is_default")]
    pub delegation: Delegation,
    /// Which agents work in its place, if it is made of others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub composite: Option<Arc<Composite>>,
    /// To whom it hands its runs off.
    #[serde(default, skip_serializing_if = "is_default")]
    pub handoff: HandoffRules,
}

impl LoopRules {
    /// Whether nothing is to be stored of them.
    #[must_use]
    pub fn are_default(&self) -> bool {
        *self == Self::default()
    }
}

/// When a model that repeats its tool calls is warned, and when its run is stopped, by how many turns of it in a row brought
/// nothing new.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoopGuardRules {
    /// After so many turns with the same calls and the same results the model is warned.
    pub warn_after: Option<u32>,
    /// After so many the run is stopped.
    pub stop_after: Option<u32>,
    /// After so many turns whose results are the same, whatever the arguments, the model is warned.
    pub same_result_warn_after: Option<u32>,
    /// After so many the run is stopped.
    pub same_result_stop_after: Option<u32>,
    /// Patterns of tools whose calls do not count.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<String>,
}

impl Default for LoopGuardRules {
    fn default() -> Self {
        Self {
            warn_after: Some(3),
            stop_after: Some(5),
            same_result_warn_after: Some(4),
            same_result_stop_after: Some(12),
            ignored: Vec::new(),
        }
    }
}

impl LoopGuardRules {
    /// Rules by which nothing is looked at.
    #[must_use]
    pub fn off() -> Self {
        Self {
            warn_after: None,
            stop_after: None,
            same_result_warn_after: None,
            same_result_stop_after: None,
            ignored: Vec::new(),
        }
    }

    /// Whether calls of this tool do not count.
    #[must_use]
    pub fn ignores(&self, tool: &str) -> bool {
        self.ignored.iter().any(|pattern| matches(pattern, tool))
    }

    /// Whether anything is looked at.
    #[must_use]
    pub fn is_on(&self) -> bool {
        let Self { warn_after, stop_after, same_result_warn_after, same_result_stop_after, .. } = self;
        [warn_after, stop_after, same_result_warn_after, same_result_stop_after].iter().any(|after| after.is_some())
    }
}

/// By which rule a run repeats itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoopRule {
    /// The same calls had the same results.
    SameCalls,
    /// Calls with other arguments had the same results.
    SameResults,
}

impl LoopRule {
    /// The rule as it is written on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SameCalls => "same_calls",
            Self::SameResults => "same_results",
        }
    }
}

/// That a run repeats itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopFinding {
    /// The newest step that does.
    pub step: u32,
    /// By which rule.
    pub rule: LoopRule,
    /// How often it came.
    pub repeats: u32,
    /// The tools that are called again and again.
    pub tools: Vec<String>,
    /// Whether the run stops for it; else the model is warned.
    pub stops: bool,
}

/// When a model is asked how far it has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reflection {
    /// After so many tool calls.
    pub every: u32,
    /// What it is asked.
    pub prompt: String,
}

/// What a tool call that fails does to its run. A call that was never made has not failed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolErrors {
    /// Patterns of the tools whose failed call ends the run. Of all others the model is told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ends_run: Vec<String>,
    /// What the model is told in place of a failure, by patterns of tools; of several that match the longest counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallback_results: Vec<(String, String)>,
}

impl ToolErrors {
    /// Whether a run ends that this came of a call of this tool in.
    #[must_use]
    pub fn end_run(&self, tool: &str, outcome: &ToolOutcome) -> bool {
        let has_failed = match outcome.ending {
            CallEnding::Answered | CallEnding::Lost => outcome.is_error,
            CallEnding::Stopped | CallEnding::Skipped | CallEnding::Pending => false,
        };
        has_failed && self.ends_run.iter().any(|pattern| matches(pattern, tool))
    }

    /// What is recorded of a call of this tool that came to `outcome`: where the call failed, the result that the agent has
    /// for that. Where it is unknown whether the call took effect, nothing takes the place of that.
    #[must_use]
    pub fn settle(&self, tool: &str, outcome: ToolOutcome) -> ToolOutcome {
        if self.fallback_results.is_empty() || !outcome.is_error || outcome.ending != CallEnding::Answered {
            return outcome;
        }
        let fitting = self.fallback_results.iter().filter(|(pattern, _)| matches(pattern, tool));
        let Some((_, result)) = fitting.max_by_key(|(pattern, _)| (pattern == tool, pattern.len())) else {
            return outcome;
        };
        let failure = Some(outcome.text().into_owned());
        ToolOutcome {
            parts: vec![Part::text(result.clone())],
            structured: None,
            is_error: false,
            truncated: false,
            failure,
            ..outcome
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> ToolErrors {
        ToolErrors {
            ends_run: vec!["pay_*".into()],
            fallback_results: vec![("w*******".into(), "?".into()), ("weather".into(), "It is not known.".into())],
        }
    }

    #[test]
    fn only_a_call_that_was_made_and_failed_ends_the_run() {
        let ends = |tool: &str, outcome: ToolOutcome| rules().end_run(tool, &outcome);
        assert!(ends("pay_out", ToolOutcome::failed("no")) && ends("pay_out", ToolOutcome::lost("?")));
        assert!(!ends("weather", ToolOutcome::failed("no")), "it is another tool");
        assert!(!ends("pay_out", ToolOutcome::default()), "it answered");
        assert!(!ends("pay_out", ToolOutcome::skipped("no such city")), "the model can mend its arguments");
        assert!(!ends("pay_out", ToolOutcome::stopped("over")), "the run stops already");
    }

    #[test]
    fn a_fallback_takes_the_place_of_a_failure_which_the_report_keeps() {
        let settled = |outcome| rules().settle("weather", outcome);
        let told = settled(ToolOutcome { latency_ms: 7, ..ToolOutcome::failed("no route") });
        assert_eq!((told.text().as_ref(), told.is_error, told.latency_ms), ("It is not known.", false, 7));
        assert_eq!(told.failure.as_deref(), Some("no route"));
        for kept in
            [ToolOutcome::default(), ToolOutcome::skipped("?"), ToolOutcome::lost("?"), ToolOutcome::stopped("?")]
        {
            assert_eq!(settled(kept.clone()), kept);
        }
        assert_eq!(rules().settle("echo", ToolOutcome::failed("no")), ToolOutcome::failed("no"));
        assert_eq!(rules().settle("wind", ToolOutcome::failed("no")).text(), "?");
    }
}
