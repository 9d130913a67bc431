//! The last event of a run.

use super::Run;
use crate::types::outcome::Report;
use crate::types::run::OnLimit;
use crate::types::usage::{PriceOrigin, StepModel};
use crate::types::{ErrorKind, Outcome, RunError, RunStatus, StopReason, Used};

impl Run {
    /// Everything that the run's last event says, if it ends now for `reason`.
    #[must_use]
    pub fn outcome(&self, reason: StopReason, at_ms: u64) -> Outcome {
        let error = self.stop.as_ref().and_then(|(_, error)| error.clone()).or_else(|| reason.default_error());
        let error = if self.spec.on_limit == OnLimit::Error { error.or_else(|| limit_error(reason)) } else { error };
        let mut warnings = self.spec.warnings.clone();
        warnings.extend(self.unpriced.iter().filter_map(|model| price_warning(model)));
        if self.usage.estimated {
            warnings.push("some of the usage is estimated: the upstream did not report it".to_owned());
        }
        if !self.unconfirmed.is_nothing() {
            let Used { tokens, cost } = self.unconfirmed;
            warnings.push(format!(
                "model calls were cut off: they may have taken up to {tokens} more tokens (${}), which the budgets of \
                 the key are charged",
                cost.as_usd()
            ));
        }
        Outcome {
            reason,
            output_text: self.last_turn.text().into_owned(),
            reasoning: self.last_turn.thinking().into_owned(),
            error,
            required_calls: if reason.status() == RunStatus::RequiresAction {
                self.required_calls()
            } else {
                Vec::new()
            },
            usage: self.usage,
            leg_usage: self.leg_usage,
            cost: self.used.cost,
            budget: self.budget_status(),
            iterations: self.iterations,
            tool_calls: self.tool_calls,
            warnings,
            report: Report { total_ms: self.elapsed.until(at_ms), ..self.report.clone() },
        }
    }
}

/// What the caller should know of the price of a model that was called.
fn price_warning(StepModel { upstream, model, price_origin, .. }: &StepModel) -> Option<String> {
    match price_origin {
        PriceOrigin::Known => None,
        PriceOrigin::AssumedFree => Some(format!(
            "the model {model} is counted as free: its upstream {upstream} has a private address, and no price is known \
             for it"
        )),
        PriceOrigin::Guessed => Some(format!("the cost is estimated: no price is known for the model {model}")),
    }
}

/// The error of a run that is to fail at its limits.
fn limit_error(reason: StopReason) -> Option<RunError> {
    let kind = match reason {
        StopReason::TokenBudget | StopReason::CostBudget => ErrorKind::BudgetExceeded,
        StopReason::Timeout => ErrorKind::TimeLimit,
        StopReason::MaxIterations => ErrorKind::IterationLimit,
        StopReason::Done
        | StopReason::Length
        | StopReason::ContentFilter
        | StopReason::ClientTools
        | StopReason::OutcomeAsked
        | StopReason::Cancelled
        | StopReason::Abandoned
        | StopReason::ProviderError
        | StopReason::EmptyResponse
        | StopReason::OutcomeUnknown
        | StopReason::CrashLoop
        | StopReason::StoreLostState
        | StopReason::InternalError => return None,
    };
    Some(RunError::new(kind, reason.limit_sentence().unwrap_or_default()))
}
