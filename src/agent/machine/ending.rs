//! What a run's last event says.

use super::Run;
use crate::types::outcome::{Report, RunError};
use crate::types::run::OnLimit;
use crate::types::{Micros, Outcome, RunStatus, StopReason, Usage};

impl Run {
    /// Everything that the run's last event says, if it ends now for `reason`.
    #[must_use]
    pub fn outcome(&self, reason: StopReason, at_ms: u64) -> Outcome {
        let error = self.stop.as_ref().and_then(|(_, error)| error.clone()).or_else(|| default_error(reason));
        let error = if self.spec.on_limit == OnLimit::Error { error.or_else(|| limit_error(reason)) } else { error };
        let mut output_text = self.last_turn.text.clone();
        if output_text.is_empty() && matches!(reason.status(), RunStatus::Incomplete) {
            limit_sentence(reason).clone_into(&mut output_text);
        }
        let mut warnings = Vec::new();
        if self.spec.price_estimated && self.used.cost.0 > 0 {
            warnings
                .push(format!("the cost is estimated: no price is known for the model {}", self.spec.upstream_model));
        }
        if self.usage.estimated {
            warnings.push("some of the usage is estimated: the upstream did not report it".to_owned());
        }
        Outcome {
            reason,
            output_text,
            reasoning: self.last_turn.thinking.clone(),
            error,
            required_calls: if reason == StopReason::ClientTools { self.required_calls() } else { Vec::new() },
            usage: self.usage,
            cost: self.used.cost,
            token_budget: self.spec.limits.token_budget,
            iterations: self.iterations,
            tool_calls: self.tool_calls,
            warnings,
            report: Report { total_ms: self.spent.until(at_ms), ..self.report.clone() },
        }
    }
}

impl Outcome {
    /// How a run ends of which nobody can tell how far it came.
    #[must_use]
    pub fn unknown(reason: StopReason) -> Self {
        Self {
            reason,
            output_text: String::new(),
            reasoning: String::new(),
            error: default_error(reason),
            required_calls: Vec::new(),
            usage: Usage::default(),
            cost: Micros::default(),
            token_budget: None,
            iterations: 0,
            tool_calls: 0,
            warnings: vec!["what the run used is not known any more".to_owned()],
            report: Report::default(),
        }
    }
}

fn limit_sentence(reason: StopReason) -> &'static str {
    match reason {
        StopReason::MaxIterations => "The run stopped at its limit of model calls before the answer was complete.",
        StopReason::TokenBudget => "The run stopped because its token budget is used up.",
        StopReason::CostBudget => "The run stopped because its cost budget is used up.",
        StopReason::Timeout => "The run stopped at its time limit before the answer was complete.",
        StopReason::Done
        | StopReason::Length
        | StopReason::ClientTools
        | StopReason::Cancelled
        | StopReason::ProviderError
        | StopReason::EmptyResponse
        | StopReason::OutcomeUnknown
        | StopReason::CrashLoop
        | StopReason::StoreLostState
        | StopReason::InternalError => "",
    }
}

fn limit_error(reason: StopReason) -> Option<RunError> {
    let (status, r#type, code) = match reason {
        StopReason::TokenBudget | StopReason::CostBudget => (429, "insufficient_quota", "budget_exceeded"),
        StopReason::Timeout => (408, "invalid_request_error", "request_timeout"),
        StopReason::MaxIterations => (400, "invalid_request_error", "max_iterations"),
        StopReason::Done
        | StopReason::Length
        | StopReason::ClientTools
        | StopReason::Cancelled
        | StopReason::ProviderError
        | StopReason::EmptyResponse
        | StopReason::OutcomeUnknown
        | StopReason::CrashLoop
        | StopReason::StoreLostState
        | StopReason::InternalError => return None,
    };
    Some(run_error(status, r#type, code, limit_sentence(reason)))
}

fn default_error(reason: StopReason) -> Option<RunError> {
    let (status, r#type, code, message) = match reason {
        StopReason::EmptyResponse => (502, "provider_error", "empty_response", "The model answered nothing, twice."),
        StopReason::OutcomeUnknown => (
            500,
            "server_error",
            "outcome_unknown",
            "A tool with side effects was interrupted; whether it took effect is unknown.",
        ),
        StopReason::CrashLoop => {
            (500, "server_error", "crash_loop", "The run was interrupted too often without getting further.")
        }
        StopReason::StoreLostState => {
            (500, "server_error", "store_lost_state", "Part of what the run needs is no longer there.")
        }
        StopReason::ProviderError => (502, "provider_error", "provider_error", "The upstream failed."),
        StopReason::InternalError => (500, "server_error", "internal_error", "The server failed."),
        StopReason::Done
        | StopReason::Length
        | StopReason::MaxIterations
        | StopReason::TokenBudget
        | StopReason::CostBudget
        | StopReason::Timeout
        | StopReason::ClientTools
        | StopReason::Cancelled => return None,
    };
    Some(run_error(status, r#type, code, message))
}

fn run_error(status: u16, r#type: &str, code: &str, message: &str) -> RunError {
    RunError {
        status,
        r#type: r#type.to_owned(),
        code: code.to_owned(),
        message: message.to_owned(),
        retryable: status == 502,
    }
}
