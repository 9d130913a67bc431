//! Whether a run's budgets have room for a model call.

use std::sync::Arc;

use crate::agent::admission::Admission;
use crate::agent::error::StartError;
use crate::agent::ledger::{keys, log};
use crate::agent::machine::{Run, Step, budget};
use crate::agent::quotas::Quotas;
use crate::types::clock::now_ms;
use crate::types::session::Session;
use crate::types::{Event, Micros, RunSpec, StopReason};

impl Admission {
    /// Refuses a run whose budgets have no room for a single model call.
    pub(super) async fn has_budget(
        &self,
        spec: &Arc<RunSpec>,
        session: Option<&Session>,
        quotas: &Quotas,
    ) -> Result<(), StartError> {
        let started = log::encode(&mut 0, now_ms(), Event::RunStarted).0;
        let mut run = Run::new(spec.clone());
        run.apply(&started);
        let reserve = match run.next_step() {
            Step::CallModel { reserve, .. } => reserve,
            Step::Finish(reason) => return Err(StartError::BudgetExceeded(reason)),
            Step::DiscardStep(_)
            | Step::WarnBudget { .. }
            | Step::RunTools(_)
            | Step::AnswerCall(_)
            | Step::SettleUnknown { .. }
            | Step::SkipTools(_)
            | Step::CompleteStep
            | Step::Done => return Ok(()),
        };
        let mut left = match self.limits.account(spec, quotas) {
            Some(account) => account.left().await?,
            None => [u64::MAX; 2],
        };
        if let Some(session) = session {
            let partition = keys::session_partition(&spec.tenant, &session.id);
            let budgets = [
                (session.token_budget, keys::session_tokens()),
                (session.cost_budget.map(|cost| cost.0), keys::session_cost()),
            ];
            for (left, (budget, counter)) in left.iter_mut().zip(budgets) {
                if let Some(budget) = budget {
                    let used = self.ledger.store().counter(&partition, &counter).await?;
                    *left = budget.saturating_sub(u64::try_from(used).unwrap_or(0)).min(*left);
                }
            }
        }
        let [tokens, cost] = left;
        match budget::shrink(spec, reserve, tokens, Micros(cost)) {
            Some(_) => Ok(()),
            None if tokens < reserve.tokens() => Err(StartError::BudgetExceeded(StopReason::TokenBudget)),
            None => Err(StartError::BudgetExceeded(StopReason::CostBudget)),
        }
    }
}
