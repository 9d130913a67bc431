//! What reads the records of runs: metrics and traces.

use std::sync::Arc;

use super::fold::RunFold;
use super::metrics::{HookMetrics, Metrics, RunCounter};
use super::traces::{RunTracer, Traces};
use crate::types::{Event, Record, RunSpec};

/// Everything that reads the records of runs. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Telemetry {
    /// Counts what happens.
    pub metrics: Metrics,
    /// Tells what happened.
    pub traces: Traces,
}

/// What reads the records of one run.
#[derive(Debug, Default)]
pub struct RunReaders {
    counter: RunCounter,
    tracer: RunTracer,
    hooks: HookMetrics,
}

impl Telemetry {
    /// What reads the records of a run that continues where `fold` has it.
    #[must_use]
    pub fn of_run(&self, spec: &Arc<RunSpec>, fold: impl FnOnce() -> RunFold) -> RunReaders {
        let (counter, tracer) = (self.metrics.of_run(spec, fold), self.traces.of_run(spec));
        RunReaders { counter, tracer, hooks: self.metrics.hooks() }
    }
}

impl RunReaders {
    /// Takes in a record that is stored now, and was stored by this replica.
    pub fn recorded(&mut self, record: &Record) {
        self.counter.recorded(record);
        if let Event::HookRan(ran) = &record.event {
            self.hooks.ran(ran);
        }
        self.tracer.recorded(record);
    }
}
