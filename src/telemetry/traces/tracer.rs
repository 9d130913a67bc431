//! Decides at a run's end whether its trace is exported, and hands the run to the exporter.
//!
//! Nothing is kept of a run before: the exporter makes the spans of the log. So a run that is not exported costs a look
//! at each of its records, and a trace is whole although several replicas drove the run.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::content::Content;
use super::keep::Keep;
use super::subject::Subject;
use crate::telemetry::metrics::{TraceFate, TraceMetrics};
use crate::types::trace::RunTrace;
use crate::types::{Event, Outcome, Record, RunId, RunSpec, Tenant, TraceContext};

/// Where the runs of this process leave their traces, or nowhere. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Traces(Option<Arc<Tracing>>);

#[derive(Debug)]
struct Tracing {
    keep: Keep,
    content: Content,
    ended: mpsc::Sender<Ended>,
    counted: Option<Arc<TraceMetrics>>,
}

/// A run that ended, whose trace is to be exported.
#[derive(Debug)]
pub struct Ended {
    /// Whose run it is.
    pub tenant: Tenant,
    /// The run.
    pub subject: Subject,
}

/// Reads the records of one run.
#[derive(Debug, Default)]
pub struct RunTracer(Option<(Arc<Tracing>, Arc<RunSpec>)>);

impl Traces {
    /// Hands runs over to the returned queue, which has room for so many.
    #[must_use]
    pub fn new(
        keep: Keep,
        content: Content,
        room: usize,
        counted: Option<Arc<TraceMetrics>>,
    ) -> (Self, mpsc::Receiver<Ended>) {
        let (ended, queue) = mpsc::channel(room.max(1));
        (Self(Some(Arc::new(Tracing { keep, content, ended, counted }))), queue)
    }

    /// The trace that a new run belongs to.
    #[must_use]
    pub fn trace_of(&self, run: &RunId, caller: Option<TraceContext>) -> Option<RunTrace> {
        match &self.0 {
            Some(tracing) => Some(tracing.keep.trace_of(run, caller)),
            None => caller.map(RunTrace::passed_on),
        }
    }

    /// What reads the records of a run.
    #[must_use]
    pub fn of_run(&self, spec: &Arc<RunSpec>) -> RunTracer {
        RunTracer(self.0.as_ref().map(|tracing| (tracing.clone(), spec.clone())))
    }

    /// A run ended that could not be resumed.
    pub fn failed_run(&self, tenant: &Tenant, subject: impl FnOnce() -> Subject, outcome: &Outcome) {
        if let Some(tracing) = &self.0 {
            tracing.end(tenant, subject(), outcome);
        }
    }
}

impl RunTracer {
    /// Takes in a record that is stored now, and was stored by this replica.
    pub fn recorded(&mut self, record: &Record) {
        let Some((tracing, spec)) = &self.0 else { return };
        let Event::RunFinished(outcome) = &record.event else { return };
        if outcome.status().is_final() && tracing.takes(spec.trace.as_ref(), outcome) {
            tracing.hand_over(&spec.tenant, Subject::new(spec, tracing.content));
        }
    }
}

impl Tracing {
    fn end(&self, tenant: &Tenant, subject: Subject, outcome: &Outcome) {
        if self.takes(subject.trace.as_ref(), outcome) {
            self.hand_over(tenant, subject);
        }
    }

    /// Of a run that was accepted without spans, models and tools were told no span that could be exported.
    fn takes(&self, trace: Option<&RunTrace>, outcome: &Outcome) -> bool {
        trace.is_some_and(|trace| trace.has_spans && self.keep.takes_ended(trace, outcome))
    }

    /// Never waits: without room the trace is dropped.
    fn hand_over(&self, tenant: &Tenant, subject: Subject) {
        if self.ended.try_send(Ended { tenant: tenant.clone(), subject }).is_err()
            && let Some(counted) = &self.counted
        {
            counted.count(TraceFate::NoRoom, 1);
        }
    }
}
