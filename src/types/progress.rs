//! How far a run under way came.

use crate::types::{BudgetStatus, CallId, Record, Usage};

/// How far a run under way came. What a model call in flight takes is not known yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// The current step, counted from 1; 0 before the first.
    pub step: u32,
    /// Model calls that counted.
    pub iterations: u32,
    /// Tool calls that were answered.
    pub tool_calls: u32,
    /// Tokens of all steps.
    pub usage: Usage,
    /// Where its budgets stand.
    pub budget: BudgetStatus,
    /// The calls of the server's tools that have begun and have no result.
    pub open_calls: Vec<CallUnderWay>,
    /// What happened last of what clients see.
    pub last: Option<Record>,
    /// The replica that drives it; `None` where no replica does, or it is not known.
    pub replica: Option<String>,
}

/// A tool call that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallUnderWay {
    /// The call.
    pub call_id: CallId,
    /// The tool.
    pub name: String,
    /// When it began, Unix milliseconds.
    pub since_ms: u64,
}
