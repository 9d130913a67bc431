//! Counts what happens in one run.

use std::sync::Arc;

use super::family::Exemplar;
use super::models::ModelMeters;
use super::runs::{AgentMeters, RunMetrics, TenantMeters};
use crate::telemetry::fold::{Observation, RunFold};
use crate::types::event::Reservation;
use crate::types::price::StepModel;
use crate::types::{Record, RunSpec};

/// Counts the records of one run as they are stored; nothing where metrics are off.
#[derive(Debug, Default)]
pub struct RunCounter(Option<Box<Counting>>);

/// Separate from the fold, which borrows a record while this counts it.
#[derive(Debug)]
struct Counting {
    fold: RunFold,
    meters: Meters,
}

#[derive(Debug)]
struct Meters {
    metrics: Arc<RunMetrics>,
    agent: Arc<AgentMeters>,
    /// The model that was called last, and what is counted of it.
    model: Option<(Arc<StepModel>, Arc<ModelMeters>)>,
    /// The model that was last counted by its name because it answered.
    admitted: Option<Arc<StepModel>>,
    tenant: Option<Arc<TenantMeters>>,
    trace: Option<Exemplar>,
    /// What the call in flight has reserved.
    reserved: Reservation,
}

impl RunCounter {
    /// Counts the run of this specification, which is where `fold` has it.
    pub(super) fn new(metrics: &Arc<RunMetrics>, spec: &RunSpec, fold: RunFold, by_tenant: bool) -> Self {
        let meters = Meters {
            agent: metrics.agents.of(&spec.agent),
            model: None,
            admitted: None,
            tenant: by_tenant.then(|| metrics.tenants.of(spec.tenant.as_str())),
            trace: spec.trace_id().map(|id| Exemplar(id.into())),
            reserved: Reservation::default(),
            metrics: metrics.clone(),
        };
        Self(Some(Box::new(Counting { fold, meters })))
    }

    /// Counts a record that is stored now, and was stored by this replica.
    pub fn recorded(&mut self, record: &Record) {
        let Some(counting) = &mut self.0 else { return };
        let Counting { fold, meters } = &mut **counting;
        fold.apply(record, |model, observation| meters.count(model, &observation));
    }
}

impl Meters {
    fn count(&mut self, model: &Arc<StepModel>, observation: &Observation<'_>) {
        match *observation {
            Observation::Accepted => drop(self.agent.accepted.inc()),
            Observation::Dequeued { waited_ms } => {
                self.metrics.queue_wait.observe_ms(waited_ms, self.trace.as_ref());
            }
            Observation::Resumed(cause) => self.agent.resume(cause),
            Observation::Reserved(reserved) => self.reserve(reserved),
            Observation::Settled => self.reserve(Reservation::default()),
            Observation::Retried(class) => self.model(model).retry(class),
            Observation::FellBack(class) => self.model(model).fall_back(class),
            Observation::Hedged(kept) => self.model(model).hedge(kept),
            Observation::UpstreamFailed(class) => self.model(model).fail(class),
            Observation::Answered { latency_ms, first_token_ms, output_tokens } => {
                self.admit(model);
                let meters = self.model(model);
                meters.duration.observe_ms(latency_ms, self.trace.as_ref());
                if let Some(first_ms) = first_token_ms {
                    meters.first_token.observe_ms(first_ms, self.trace.as_ref());
                    meters.pace(first_ms, latency_ms, output_tokens);
                }
            }
            Observation::Took { usage, cost } => {
                self.model(model).take(&usage, cost);
                if let Some(tenant) = &self.tenant {
                    tenant.take(&usage, cost);
                }
            }
            Observation::Unconfirmed(used) => self.model(model).leave_unconfirmed(used),
            Observation::StepCompleted { total_ms } => {
                self.model(model).completed.inc();
                if let Some(total_ms) = total_ms {
                    self.agent.step_duration.observe_ms(total_ms, self.trace.as_ref());
                }
            }
            Observation::StepDiscarded(reason) => self.model(model).discard(reason),
            Observation::ToolFinished { name, outcome } => {
                self.metrics.tools.of(name).finish(outcome, self.trace.as_ref());
            }
            Observation::Delegated(delegated) => self.metrics.count_delegated(delegated),
            Observation::Handoff(handoff) => self.metrics.count_handoff(&handoff.to),
            Observation::Guarded(guarded) => self.metrics.guards.count(guarded),
            Observation::Context(event) => self.metrics.context.count(event),
            Observation::BudgetWarned(owner) => drop(self.metrics.budget_warnings.of(&[owner.as_str()]).inc()),
            Observation::Waits(reason) => self.agent.wait(reason),
            Observation::Ended { reason, total_ms } => {
                self.agent.finish(reason);
                self.agent.duration.observe_ms(total_ms, self.trace.as_ref());
                if let Some(tenant) = &self.tenant {
                    tenant.finish(reason);
                }
            }
        }
    }

    /// Counts a model by its name that an upstream answered for, though the configuration may not name it. A name that
    /// no upstream knows is a caller's invention.
    fn admit(&mut self, model: &Arc<StepModel>) {
        if self.admitted.as_ref().is_some_and(|admitted| Arc::ptr_eq(admitted, model)) {
            return;
        }
        let name = model_name(model);
        self.metrics.models.admit(&name);
        self.model = Some((model.clone(), self.metrics.models.of(&name)));
        self.admitted = Some(model.clone());
    }

    /// What is counted of this model.
    fn model(&mut self, model: &Arc<StepModel>) -> Arc<ModelMeters> {
        match &self.model {
            Some((known, meters)) if Arc::ptr_eq(known, model) => meters.clone(),
            _ => {
                let meters = self.metrics.models.of(&model_name(model));
                self.model = Some((model.clone(), meters.clone()));
                meters
            }
        }
    }

    /// Sets the reservation of the run's call in flight.
    fn reserve(&mut self, next: Reservation) {
        let before = std::mem::replace(&mut self.reserved, next);
        let change = |now: u64, before: u64| i64::try_from(now).unwrap_or(0) - i64::try_from(before).unwrap_or(0);
        self.metrics.reserved_tokens.inc_by(change(next.tokens(), before.tokens()));
        self.metrics.reserved_cost.replace(before.cost, next.cost);
    }
}

fn model_name(model: &StepModel) -> String {
    format!("{}/{}", model.upstream, model.model)
}

impl Drop for Meters {
    fn drop(&mut self) {
        // A run that is left has nothing reserved here any more.
        self.reserve(Reservation::default());
    }
}
