//! Approvals: what is decided outside of a call before it is made.

use serde::{Deserialize, Serialize};

use crate::types::conversation::Part;
use crate::types::json::is_default;
use crate::types::{CallId, ToolCall, ToolOutcome};

/// How the calls of a run are approved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalTerms {
    /// What a run does meanwhile.
    pub mode: ApprovalMode,
    /// How long a call waits; what is undecided then is denied.
    pub timeout_ms: u64,
    /// How many must approve a call, each with a key of its own.
    pub needed: u32,
    /// Patterns of the names of keys whose callers may decide; none for all keys that have the scope.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvers: Vec<String>,
    /// Whether the key that started the run may not approve its calls.
    #[serde(default, skip_serializing_if = "is_default")]
    pub separate: bool,
}

impl Default for ApprovalTerms {
    fn default() -> Self {
        let day_ms = 24 * 3_600 * 1_000;
        Self { mode: ApprovalMode::Pause, timeout_ms: day_ms, needed: 1, approvers: Vec::new(), separate: false }
    }
}

/// What a run does while a call needs an approval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalMode {
    /// It waits, and the response ends.
    #[default]
    Pause,
    /// It waits, and the response goes on when all is decided.
    Wait,
    /// It does not wait: no approver is asked, and the call is denied.
    Deny,
}

/// A call that waits for an approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalRequest {
    /// The step whose call it is.
    pub step: u32,
    /// The call, with the arguments that it would be made with.
    pub call: ToolCall,
    /// Why it needs an approval.
    pub reason: String,
    /// When it is denied without a decision, Unix milliseconds.
    pub expires_ms: u64,
}

/// What was decided of a call that waited for an approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// The step whose call it is.
    pub step: u32,
    /// The call.
    pub call_id: CallId,
    /// The tool.
    pub name: String,
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
    /// The arguments that the call is made with, if they were changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// The result that the caller gave, in place of the tool's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// The claim of the key under which the decision was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,
    /// Whether others must approve the call as well, so that it goes on waiting.
    #[serde(default, skip_serializing_if = "is_default")]
    pub awaits_others: bool,
}

/// What was decided of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalDecision {
    /// It is made, or has the result that the caller gave.
    Approve,
    /// It is not made, and the model is told that it was denied.
    Deny,
    /// It is not made, and the model is told to go on without it.
    Skip,
    /// No decision came in time: it is not made.
    Expire,
}

impl Approval {
    /// Whether nobody decided in time.
    #[must_use]
    pub fn is_expiry(&self) -> bool {
        self.decision == ApprovalDecision::Expire
    }

    /// How the call is answered without being made; `None` if it is made.
    #[must_use]
    pub fn answer(&self) -> Option<ToolOutcome> {
        let why = match (self.decision, &self.result) {
            (ApprovalDecision::Approve, None) => return None,
            (ApprovalDecision::Approve, Some(result)) => {
                return Some(ToolOutcome { parts: vec![Part::text(result)], ..ToolOutcome::default() });
            }
            (ApprovalDecision::Deny, _) => "The call was not made: it was denied.",
            (ApprovalDecision::Skip, _) => "The call was skipped. Go on without its result.",
            (ApprovalDecision::Expire, _) => "The call was not made: it was not approved in time.",
        };
        let why = self.reason.as_ref().map_or_else(|| why.to_owned(), |reason| format!("{why} {reason}"));
        Some(ToolOutcome::skipped(why))
    }
}

impl ApprovalDecision {
    /// The decision as it is written on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Deny => "deny",
            Self::Skip => "skip",
            Self::Expire => "expire",
        }
    }
}
