//! What is counted of traces.

use prometheus_client::metrics::counter::Counter;

use super::declare::Declarations;

/// What became of the trace of a run that was to be exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceFate {
    /// The collector took it.
    Exported,
    /// Too many wait already.
    NoRoom,
    /// The collector did not take it.
    NotSent,
    /// The run's log could not be read, or is gone.
    Unreadable,
}

/// What is counted of traces.
#[derive(Debug)]
pub struct TraceMetrics {
    exported: Counter,
    failures: Counter,
    rejected: Counter,
    no_room: Counter,
    not_sent: Counter,
    unreadable: Counter,
}

impl TraceMetrics {
    pub(super) fn declare(to: &mut Declarations) -> Self {
        let exported = to.counters("traces_exported", &[], "Traces of runs that the collector took.").of(&[]);
        let dropped = to.counters(
            "traces_dropped",
            &["reason"],
            "Traces of runs that were to be exported and were not: too many waited, the collector did not take them, or the \
             log was not readable.",
        );
        let failures = to.counters(
            "traces_export_failures",
            &[],
            "Attempts to send traces that the collector did not take, those that were repeated too.",
        );
        let rejected =
            to.counters("traces_rejected_spans", &[], "Spans that the collector did not want of traces that it took.");
        let of = |reason| dropped.of(&[reason]);
        Self {
            exported,
            failures: failures.of(&[]),
            rejected: rejected.of(&[]),
            no_room: of("no_room"),
            not_sent: of("not_sent"),
            unreadable: of("unreadable"),
        }
    }

    /// Counts an attempt to send traces that failed.
    pub fn count_failure(&self) {
        self.failures.inc();
    }

    /// Counts spans that the collector did not want.
    pub fn count_rejected(&self, spans: u64) {
        self.rejected.inc_by(spans);
    }

    /// Counts traces.
    pub fn count(&self, fate: TraceFate, traces: u64) {
        let counter = match fate {
            TraceFate::Exported => &self.exported,
            TraceFate::NoRoom => &self.no_room,
            TraceFate::NotSent => &self.not_sent,
            TraceFate::Unreadable => &self.unreadable,
        };
        counter.inc_by(traces);
    }
}
