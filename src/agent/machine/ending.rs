//! The last event of a run.

use super::{Run, UNANSWERED, budget};
use crate::types::event::Reservation;
use crate::types::outcome::limit_message;
use crate::types::price::{PriceOrigin, StepModel};
use crate::types::report::{Report, StepReport};
use crate::types::run::OnLimit;
use crate::types::shortfall::BudgetKind;
use crate::types::{
    BudgetOwner, ErrorKind, Limits, Message, Outcome, RunError, RunStatus, Shortfall, StopReason, Used,
};

/// What the caller should know who asked for a conversation to be shortened that is short.
const NOTHING_REPLACED: &str =
    "nothing was replaced: the messages that could be left out are too few to make the conversation shorter";

impl Run {
    /// What is known of the newest model call that counted.
    #[must_use]
    pub fn last_step(&self) -> Option<&StepReport> {
        self.report.steps.last()
    }

    /// Its own messages once every open call has a result: what its session gets when it ends.
    #[must_use]
    pub fn final_messages(&self) -> Vec<Message> {
        let mut open = self.calls.clone();
        for open in &mut open {
            open.close(UNANSWERED);
        }
        let results = open.into_iter().filter_map(|open| self.result_of(open));
        let all = self.messages.iter().cloned().chain(results).chain(self.steering.iter().cloned());
        all.filter(|message| self.is_kept(message)).collect()
    }

    /// Everything that the run's last event says, if it ends now for `reason`.
    #[must_use]
    pub fn outcome(&self, reason: StopReason, at_ms: u64) -> Outcome {
        let short = self.shortfall(reason);
        let error = self.stop.as_ref().and_then(|stop| stop.error.clone());
        let error = error.or_else(|| self.outgrown(reason)).or_else(|| reason.default_error());
        let error = if self.spec.on_limit == OnLimit::Error {
            error.or_else(|| limit_error(reason, short.as_ref()))
        } else {
            error
        };
        let mut warnings = self.warnings.clone();
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
        if self.spec.compacts {
            let did = self.report.compactions.as_ref().is_some_and(|done| !done.0.is_empty());
            warnings.extend((!did && reason == StopReason::Done).then(|| NOTHING_REPLACED.to_owned()));
        } else if reason == StopReason::Done && self.last_turn.says_nothing() {
            warnings.push("the model thought and gave no answer; the report has what it took".to_owned());
        }
        Outcome {
            reason,
            output_text: self.said_so_far(reason),
            refusal: self.last_turn.refusal().into_owned(),
            reasoning: self.last_turn.thinking().into_owned(),
            error,
            required_calls: if reason.status() == RunStatus::RequiresAction {
                self.awaited_calls(reason)
            } else {
                Vec::new()
            },
            stays_open: self.waits_openly(reason),
            usage: self.usage,
            leg_usage: self.shown_usage(),
            cost: self.used.cost,
            of_fallbacks: self.of_fallbacks.clone(),
            delegated: self.delegated(),
            budget: self.budget_status(),
            short,
            iterations: self.iterations,
            tool_calls: self.tool_calls,
            warnings,
            report: self.report_so_far(reason, at_ms).into(),
        }
    }

    /// What it tells of its steps if it ends or waits now for `reason`. One that waits for services or for other runs may do so several
    /// times in each step, and each time is in its log: then it tells of its last step alone. Its end tells of all.
    fn report_so_far(&self, reason: StopReason, at_ms: u64) -> Report {
        let (report, total_ms) = (&self.report, self.elapsed.until(at_ms));
        if reason != StopReason::ToolPending {
            return Report { total_ms, ..report.clone() };
        }
        let steps = report.steps.last().cloned().into_iter().collect();
        let (llm_time_ms, tool_time_ms) = (report.llm_time_ms, report.tool_time_ms);
        Report { total_ms, llm_time_ms, tool_time_ms, steps, guardrails: None, compactions: None }
    }

    /// The error of a run whose conversation has grown beyond what the model takes.
    fn outgrown(&self, reason: StopReason) -> Option<RunError> {
        let (tokens, window, model) = (self.context.tokens(), self.terms().context_window, &self.model.model);
        let message = format!(
            "The conversation has grown beyond what the model takes: it has about {tokens} tokens, and the model {model} \
             takes {window}."
        );
        (reason == StopReason::ContextLimit).then(|| RunError::new(ErrorKind::ContextLength, message))
    }

    /// The budget that has no room for another model call, if that is why the run ends.
    fn shortfall(&self, reason: StopReason) -> Option<Shortfall> {
        let stop = self.stop.as_ref().filter(|stop| stop.reason == reason);
        if let Some(short) = stop.and_then(|stop| stop.short) {
            return Some(short);
        }
        if self.spec.rules.composite.is_some() {
            // What was lacking was lacking below.
            return None;
        }
        let Limits { token_budget, cost_budget, .. } = self.spec.limits;
        let (terms, input) = (self.terms(), self.next_input());
        let least = budget::least_of(&terms, input);
        // After the first call, a step needs room for the closing answer behind it as well.
        let is_kept = self.spec.on_limit == OnLimit::Synthesize && self.iterations > 0;
        let kept = if is_kept { budget::closing_of(&terms, input) } else { Reservation::default() };
        let (owner, used) = (BudgetOwner::Run, self.used_of_budgets());
        let (kind, limit, taken, needed) = if reason == StopReason::TokenBudget {
            (BudgetKind::Tokens, token_budget?, used.tokens, least.tokens() + kept.tokens())
        } else {
            let limit = cost_budget.filter(|_| reason == StopReason::CostBudget)?;
            (BudgetKind::Cost, limit.0, used.cost.0, least.cost.0 + kept.cost.0)
        };
        // Where the run was stopped for it, something else than a step had no room, such as a guardrail's model.
        let needed = if stop.is_some() { needed.max(limit.saturating_sub(taken).saturating_add(1)) } else { needed };
        Some(Shortfall { owner, kind, limit, taken, set_aside: 0, needed, renews_in_s: None })
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
fn limit_error(reason: StopReason, short: Option<&Shortfall>) -> Option<RunError> {
    let kind = match reason {
        StopReason::TokenBudget | StopReason::CostBudget => ErrorKind::BudgetExceeded,
        StopReason::Timeout => ErrorKind::TimeLimit,
        StopReason::MaxIterations => ErrorKind::IterationLimit,
        StopReason::MaxToolCalls => ErrorKind::ToolCallLimit,
        StopReason::LoopGuard => ErrorKind::LoopGuard,
        StopReason::Done
        | StopReason::NoReply
        | StopReason::Guardrail
        | StopReason::Length
        | StopReason::ContentFilter
        | StopReason::ClientTools
        | StopReason::OutcomeAsked
        | StopReason::AskUser
        | StopReason::Approval
        | StopReason::ToolPending
        | StopReason::Cancelled
        | StopReason::Abandoned
        | StopReason::ProviderError
        | StopReason::ContextLimit
        | StopReason::EmptyResponse
        | StopReason::OutcomeUnknown
        | StopReason::ToolError
        | StopReason::CrashLoop
        | StopReason::StoreLostState
        | StopReason::InternalError => return None,
    };
    let message = limit_message(reason, short).unwrap_or_default().into_owned();
    let retry_after_ms = short.and_then(Shortfall::retry_after_s).map(|seconds| seconds.saturating_mul(1_000));
    Some(RunError { retry_after_ms, ..RunError::new(kind, message) })
}
