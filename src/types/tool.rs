//! What calling a tool does, and what comes back.

use serde::{Deserialize, Serialize};

/// What repeating a call would do, as its operator declares it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// Changes nothing; may be repeated and runs beside other calls.
    Read,
    /// Repeating it with the same idempotency key changes nothing more.
    Idempotent,
    /// Has side effects: dispatched at most once, and one at a time. What is not declared is this.
    #[default]
    Write,
}

/// How one call ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolOutcome {
    /// What the model is told.
    pub content: String,
    /// Whether `content` describes a failure.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_error: bool,
    /// Whether `content` was cut to the size limit.
    #[serde(default, skip_serializing_if = "is_false")]
    pub truncated: bool,
    /// Whether the tool was never dispatched.
    #[serde(default, skip_serializing_if = "is_false")]
    pub skipped: bool,
    /// From dispatch to answer, in milliseconds.
    pub latency_ms: u64,
}

impl ToolOutcome {
    /// A call that was refused or abandoned before it was dispatched.
    #[must_use]
    pub fn skipped(why: impl Into<String>) -> Self {
        Self { content: why.into(), is_error: true, truncated: false, skipped: true, latency_ms: 0 }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
pub(crate) fn is_false(flag: &bool) -> bool {
    !flag
}
