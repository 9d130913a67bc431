//! What reads the records of runs: metrics and traces.

use std::sync::Arc;

use super::fold::RunFold;
use super::metrics::{Metrics, RunCounter};
use super::traces::{RunTracer, Traces};
use crate::types::{Record, RunSpec};

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
}

impl Telemetry {
    /// What reads the records of a run that continues where `fold` has it.
    #[must_use]
    pub fn of_run(&self, spec: &Arc<RunSpec>, fold: impl FnOnce() -> RunFold) -> RunReaders {
        RunReaders { counter: self.metrics.of_run(spec, fold), tracer: self.traces.of_run(spec) }
    }
}

impl RunReaders {
    /// Takes in a record that is stored now, and was stored by this replica.
    pub fn recorded(&mut self, record: &Record) {
        self.counter.recorded(record);
        self.tracer.recorded(record);
    }
}
