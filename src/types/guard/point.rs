//! Where guardrails judge.

use serde::{Deserialize, Serialize};

/// What a guardrail judges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuardPoint {
    /// What users say, before the model is asked.
    Input,
    /// What the model says, before it is shown.
    Output,
    /// The arguments of a call, before it is made.
    ToolArguments,
    /// The result of a call, before it is kept.
    ToolResult,
}

impl GuardPoint {
    /// Its name in the configuration, on the wire and in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Output => "output",
            Self::ToolArguments => "tool_arguments",
            Self::ToolResult => "tool_result",
        }
    }
}
