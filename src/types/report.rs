//! What a run did, step by step.
//!
//! The last event of a run holds it, so it leaves out what the log has anyway, such as the model that each step called.

use serde::{Deserialize, Serialize};

use crate::types::approval::ApprovalDecision;
use crate::types::context::Method;
use crate::types::guard::{GuardPoint, Verdict};
use crate::types::json::is_default;
use crate::types::tool::Measurement;
use crate::types::usage::{Micros, Usage};
use crate::types::{CallId, TurnEnd};

/// What a run did and how long it took.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// From start to end, in milliseconds.
    pub total_ms: u64,
    /// In model calls.
    pub llm_time_ms: u64,
    /// In tool calls, summed; parallel calls count each.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tool_time_ms: u64,
    /// One entry for each model call that counted.
    pub steps: Vec<StepReport>,
    /// One entry for each time that a guardrail's model or service was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guardrails: Option<Box<JudgeReports>>,
    /// One entry for each time that messages were replaced in what models are shown, and for each time that a model wrote down what
    /// matters before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compactions: Option<Box<CompactionReports>>,
}

/// What a model wrote down once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlushReport {
    /// Before which step.
    pub step: u32,
    /// How many messages it was about.
    pub messages: u64,
    /// How often the model was called.
    pub iterations: u32,
    /// How often it wrote a note.
    pub writes: u32,
    /// Why not all is written down that might be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How long it took.
    pub latency_ms: u64,
    /// The model's tokens.
    #[serde(default, skip_serializing_if = "is_default")]
    pub usage: Usage,
    /// What they cost.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cost: Micros,
}

/// How a conversation was shortened, and what a model wrote down before. Boxed in a report, as most runs leave theirs as it is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct CompactionReports(pub Vec<CompactionReport>, pub Vec<FlushReport>);

/// The same as it is stored: as a list alone where nothing was written down.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Stored {
    Compactions(Vec<CompactionReport>),
    Both { compactions: Vec<CompactionReport>, flushes: Vec<FlushReport> },
}

impl From<Stored> for CompactionReports {
    fn from(stored: Stored) -> Self {
        match stored {
            Stored::Compactions(compactions) => Self(compactions, Vec::new()),
            Stored::Both { compactions, flushes } => Self(compactions, flushes),
        }
    }
}

impl From<CompactionReports> for Stored {
    fn from(CompactionReports(compactions, flushes): CompactionReports) -> Self {
        if flushes.is_empty() { Self::Compactions(compactions) } else { Self::Both { compactions, flushes } }
    }
}

/// How a conversation was shortened once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompactionReport {
    /// Before which step.
    pub step: u32,
    /// How what is left out was replaced.
    pub method: Method,
    /// How often the conversation was shortened by then.
    pub version: u32,
    /// How many messages more are left out.
    pub removed_messages: u64,
    /// How many tokens the next call had before, about.
    pub before_tokens: u64,
    /// How many it had then.
    pub after_tokens: u64,
    /// How long it took.
    pub latency_ms: u64,
    /// The tokens of a model that wrote a summary.
    #[serde(default, skip_serializing_if = "is_default")]
    pub usage: Usage,
    /// What they cost.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cost: Micros,
}

/// What guardrails said that were asked. Boxed in a report, as most runs ask none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JudgeReports(pub Vec<JudgeReport>);

/// What a guardrail said that was asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JudgeReport {
    /// The guardrail.
    pub name: String,
    /// What it judged.
    pub on: GuardPoint,
    /// In which step.
    pub step: u32,
    /// What it said.
    pub verdict: Verdict,
    /// How long that took.
    pub latency_ms: u64,
    /// The upstream and its model, with a slash between them, if it asked a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The model call's tokens.
    #[serde(default, skip_serializing_if = "is_default")]
    pub usage: Usage,
    /// What they cost.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cost: Micros,
}

/// One model call and its tools.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    /// Counted from 1.
    pub index: u32,
    /// The model call's time in milliseconds.
    pub llm_latency_ms: u64,
    /// The tools' time in milliseconds, summed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tool_latency_ms: u64,
    /// The model call's tokens.
    pub usage: Usage,
    /// What they cost.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cost: Micros,
    /// The upstream and its model, with a slash between them, if the run had fallen back to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<String>,
    /// Why the model's turn ended.
    pub turn_end: TurnEnd,
    /// In call order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<CallReport>,
}

/// One tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallReport {
    /// The call.
    pub call_id: CallId,
    /// The tool.
    pub name: String,
    /// The arguments as the model wrote them.
    pub arguments: String,
    /// The result's size.
    pub result_bytes: u64,
    /// The tool's time in milliseconds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub latency_ms: u64,
    /// Whether it was never dispatched.
    #[serde(default, skip_serializing_if = "is_default")]
    pub skipped: bool,
    /// Whether it was dispatched, and it is unknown whether it took effect.
    #[serde(default, skip_serializing_if = "is_default")]
    pub outcome_unknown: bool,
    /// The result, if it describes a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What the tool measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub measurements: Vec<Measurement>,
    /// What was decided of it while it waited for an approval, in the order of the decisions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<DecisionReport>,
}

/// A decision about a call that waited for an approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionReport {
    /// The decision.
    pub decision: ApprovalDecision,
    /// The name of the key of the caller who decided; `None` where no keys are declared, and if no decision came in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The end user who decided, as the token or the request of that caller names them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Why, in the words of the caller who decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_down_stands_beside_what_was_replaced_and_only_where_there_is_any() {
        let text = r#"[{"step":1,"method":"llm","version":1,"removed_messages":3,"before_tokens":9,"after_tokens":4,"latency_ms":5}]"#;
        let mut reports: CompactionReports = serde_json::from_str(text).unwrap();
        assert_eq!((reports.0.len(), serde_json::to_string(&reports).unwrap().as_str()), (1, text));
        let (usage, cost) = (Usage::default(), Micros::default());
        let flush =
            FlushReport { step: 1, messages: 3, iterations: 2, writes: 1, error: None, latency_ms: 5, usage, cost };
        reports.1.push(flush);
        let stored = serde_json::to_string(&reports).unwrap();
        assert_eq!(serde_json::from_str::<CompactionReports>(&stored).unwrap(), reports, "{stored}");
    }
}
