//! How a run ended, or why it waits.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::types::ToolCall;
use crate::types::error::RunError;
use crate::types::fallback::FallbackUsage;
use crate::types::json::is_default;
use crate::types::report::Report;
use crate::types::shortfall::Shortfall;
pub use crate::types::stop::{RunStatus, StopReason};
use crate::types::taken::Taken;
use crate::types::usage::{BudgetStatus, Micros, Usage};

/// How a run ended, or why it waits. Everything that its last event says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Why it stopped; decides the status.
    pub reason: StopReason,
    /// The final text.
    pub output_text: String,
    /// The words in which the model declined to answer.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub refusal: String,
    /// Reasoning text of the last step.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reasoning: String,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RunError>,
    /// The calls that its caller is to answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required_calls: Vec<RequiredCall>,
    /// Whether the responses of those who wait for it go on once it is resumed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub stays_open: bool,
    /// Tokens of all steps.
    pub usage: Usage,
    /// Tokens since the request came that the run was on when it ended; `None` if that is the request that started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leg_usage: Option<Usage>,
    /// Cost of all steps.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cost: Micros,
    /// The part of both that it took of models that it fell back to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub of_fallbacks: Vec<FallbackUsage>,
    /// What the runs took that it began, and all runs below these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegated: Option<Box<Taken>>,
    /// Where its budgets stand.
    pub budget: BudgetStatus,
    /// The budget that has no room for another model call, if that is why it stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short: Option<Shortfall>,
    /// Model calls that counted.
    pub iterations: u32,
    /// Tool calls that were answered.
    pub tool_calls: u32,
    /// Things the caller should know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// What happened, step by step. Shared, as the event that ends a run is copied on its way to log, state and readers.
    pub report: Arc<Report>,
}

/// The sentence that says which limit ended a run, and how much a budget lacked.
#[must_use]
pub fn limit_message(reason: StopReason, short: Option<&Shortfall>) -> Option<Cow<'static, str>> {
    let sentence = reason.limit_sentence()?;
    let Some(short) = short else { return Some(sentence.into()) };
    let (budget, state) = (short.budget(), short.state());
    Some(Cow::Owned(if reason == StopReason::Timeout {
        format!("The run stopped at its time limit, while it waited for room in the {budget}: {state}.")
    } else {
        format!("The run stopped because the {budget} has no room for another model call: {state}.")
    }))
}

/// A call that the run waits with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequiredCall {
    /// The call.
    pub call: ToolCall,
    /// What became of it at the server, or why it waits for others; `None` for one of the client's own tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Until when it can be approved, or answered by its service, Unix milliseconds; `None` if it waits for its caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<u64>,
}

impl Outcome {
    /// The end of a run whose progress is unknown.
    #[must_use]
    pub fn unknown(reason: StopReason) -> Self {
        Self {
            reason,
            output_text: String::new(),
            refusal: String::new(),
            reasoning: String::new(),
            error: reason.default_error(),
            required_calls: Vec::new(),
            stays_open: false,
            usage: Usage::default(),
            leg_usage: None,
            cost: Micros::default(),
            of_fallbacks: Vec::new(),
            delegated: None,
            budget: BudgetStatus::default(),
            short: None,
            iterations: 0,
            tool_calls: 0,
            warnings: vec!["the usage of the run is unknown: its events were lost".to_owned()],
            report: Arc::default(),
        }
    }

    /// Tokens since the request came that the run was on when it ended.
    #[must_use]
    pub fn leg_usage(&self) -> &Usage {
        self.leg_usage.as_ref().unwrap_or(&self.usage)
    }

    /// Which limit ended the run, in a sentence.
    #[must_use]
    pub fn message(&self) -> Option<Cow<'static, str>> {
        limit_message(self.reason, self.short.as_ref())
    }

    /// The run's status: that of its reason, unless it was asked to fail at its limits.
    #[must_use]
    pub fn status(&self) -> RunStatus {
        if self.error.is_some() { RunStatus::Failed } else { self.reason.status() }
    }

    /// Whether the same request may be made again: it came to nothing, for a reason that may have gone,
    /// and no tool was called that would be called once more.
    #[must_use]
    pub fn may_be_repeated(&self) -> bool {
        let failed_for_now = self.error.as_ref().is_some_and(|error| error.kind.is_retryable());
        let is_limit = self.reason.status() == RunStatus::Incomplete;
        self.tool_calls == 0 && !is_limit && (failed_for_now || self.reason.status() == RunStatus::Cancelled)
    }

    /// Whether the run was cancelled because its readers had left, before it called a tool that a new run would
    /// call once more.
    #[must_use]
    pub fn was_abandoned_idle(&self) -> bool {
        self.tool_calls == 0 && self.reason == StopReason::Abandoned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_run_that_did_nothing_before_it_was_abandoned_may_be_begun_anew() {
        let ended = |reason, tool_calls| Outcome { tool_calls, ..Outcome::unknown(reason) }.was_abandoned_idle();
        assert!(ended(StopReason::Abandoned, 0));
        assert!(!ended(StopReason::Abandoned, 1), "its call would be made again");
        assert!(!ended(StopReason::Cancelled, 0), "somebody cancelled it");
    }
}
