//! Whether a run's budgets have room for a model call.

use std::sync::Arc;
use std::time::Duration;

use crate::agent::admission::Admission;
use crate::agent::error::StartError;
use crate::agent::ledger::session::SessionBudget;
use crate::agent::ledger::{keys, log};
use crate::agent::limits::holds::{Taken, counted, taken};
use crate::agent::limits::quota::amounts;
use crate::agent::machine::{Run, Step, budget};
use crate::agent::quotas::Quotas;
use crate::store::Unavailable;
use crate::types::clock::now_ms;
use crate::types::event::Reservation;
use crate::types::session::Session;
use crate::types::shortfall::BudgetKind;
use crate::types::{BudgetOwner, Event, RunSpec, Shortfall, StopReason};

impl Admission {
    /// Refuses a run whose budgets have no room for a single model call.
    pub(super) async fn has_budget(
        &self,
        spec: &Arc<RunSpec>,
        session: Option<&Session>,
        quotas: &Quotas,
    ) -> Result<(), StartError> {
        let timeout = Duration::from_millis(spec.limits.timeout_ms);
        let refused = |short| Err(StartError::BudgetExceeded { short, timeout });
        let least = match least(spec) {
            Ok(Some(least)) => least,
            Ok(None) => return Ok(()),
            Err(short) => return refused(short),
        };
        // Boxed, as most runs share no budget.
        let short = match self.limits.account(spec, quotas) {
            Some(account) => Box::pin(account.shortfall(least)).await?,
            None => None,
        };
        let short = match (short, session) {
            (None, Some(session)) => Box::pin(self.of_session(spec, session, least)).await?,
            (short, _) => short,
        };
        short.map_or(Ok(()), refused)
    }

    /// The first of the session's budgets that has no room for this.
    async fn of_session(
        &self,
        spec: &RunSpec,
        session: &Session,
        least: Reservation,
    ) -> Result<Option<Shortfall>, Unavailable> {
        let (partition, budgets) = (keys::session_partition(&spec.tenant, &session.id), SessionBudget::of(session));
        let store = &**self.ledger.store();
        for (kind, needed) in amounts(least) {
            let Some((limit, counter)) = budgets.of_kind(kind) else { continue };
            let seen = counted(store, &partition, &counter).await?;
            if limit.saturating_sub(seen) >= needed {
                continue;
            }
            let Taken { total: taken, set_aside } = taken(store, &partition, &counter, Some(&spec.id), seen).await?;
            let (owner, renews_in_s) = (BudgetOwner::Session, None);
            let short = Shortfall { owner, kind, limit, taken, set_aside, needed, renews_in_s };
            if short.missing() > 0 {
                return Ok(Some(short));
            }
        }
        Ok(None)
    }
}

/// A run as it is before its first step.
pub(super) fn begun(spec: &Arc<RunSpec>) -> Run {
    let mut run = Run::new(spec.clone());
    // Hooks at its start may refuse it, and cost nothing.
    let told = spec.guarded.iter().map(|guarded| Event::Guarded(Box::new(guarded.clone())));
    let mut seq = 0;
    for event in [Event::RunStarted].into_iter().chain(told).chain([Event::StartHooked]) {
        run.apply(&log::encode(&mut seq, now_ms(), event).0);
    }
    if let Step::Plan(text) = run.next_step() {
        run.apply(&log::encode(&mut seq, now_ms(), Event::PlanCreated { step: 1, text }).0);
    }
    run
}

/// The least that the run's first step takes, if it calls the model; or what the run's own budget lacks for it.
fn least(spec: &Arc<RunSpec>) -> Result<Option<Reservation>, Shortfall> {
    let run = begun(spec);
    match run.next_step() {
        Step::CallModel { reserve, .. } => Ok(Some(budget::least(&run.terms(), reserve))),
        Step::Finish(reason) => Err(of_run(&run, reason)),
        Step::FallBack
        | Step::Fit(_)
        | Step::DropCompaction(_)
        | Step::Flush
        | Step::DropJudging(_)
        | Step::DiscardStep(_)
        | Step::Plan(_)
        | Step::Reflect(_)
        | Step::ReportLoop(_)
        | Step::TellGuarded(_)
        | Step::WarnBudget { .. }
        | Step::JudgeCalls(_)
        | Step::AskStartHooks
        | Step::SettleAnswer(..)
        | Step::RunTools(_)
        | Step::AnswerCall(_)
        | Step::SettleUnknown { .. }
        | Step::SkipTools(_)
        | Step::CutCalls(_)
        | Step::AwaitServices
        | Step::CompleteStep
        | Step::Conduct(_)
        | Step::Stop(..)
        | Step::Done => Ok(None),
    }
}

/// What is wrong with a budget of the run's own that stops it at once.
fn of_run(run: &Run, reason: StopReason) -> Shortfall {
    let spec = run.spec();
    let (kind, limit) = if reason == StopReason::CostBudget {
        (BudgetKind::Cost, spec.limits.cost_budget.map(|money| money.0))
    } else {
        (BudgetKind::Tokens, spec.limits.token_budget)
    };
    let needed = budget::least_of(&run.terms(), run.next_input());
    let needed = amounts(needed).into_iter().find_map(|(of, amount)| (of == kind).then_some(amount)).unwrap_or(0);
    let (owner, limit) = (BudgetOwner::Run, limit.unwrap_or(0));
    Shortfall { owner, kind, limit, taken: 0, set_aside: 0, needed, renews_in_s: None }
}
