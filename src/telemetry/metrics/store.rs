//! What is counted of the store.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;

use super::declare::Declarations;
use super::family::{Family, Histogram};

/// Bounds of the times that a store takes.
const BOUNDS: &[f64] =
    &[0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// What a store is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are named as the store's functions")]
pub enum StoreOperation {
    Commit,
    ReadLog,
    Get,
    Scan,
    Counter,
    Acquire,
    Renew,
    Release,
    Take,
    Health,
}

impl StoreOperation {
    const WORDS: [&'static str; 10] =
        ["commit", "read_log", "get", "scan", "counter", "acquire", "renew", "release", "take", "health"];

    fn word(self) -> &'static str {
        Self::WORDS[self as usize]
    }
}

/// All metrics of the store.
#[derive(Debug)]
pub struct StoreMetrics {
    durations: [Histogram; StoreOperation::WORDS.len()],
    errors: Family<Counter>,
    lease_losses: Family<Counter>,
}

impl StoreMetrics {
    pub(super) fn declare(to: &mut Declarations) -> Self {
        let durations = to.seconds(
            "store_operation_duration",
            &["operation"],
            BOUNDS,
            "How long the store took to answer, failures included.",
        );
        Self {
            durations: StoreOperation::WORDS.map(|operation| durations.of(&[operation])),
            errors: to.counters(
                "store_errors",
                &["operation", "class"],
                "What the store did not do: `unavailable` if it did not answer; conflicts are expected where several \
                 want to change the same thing.",
            ),
            lease_losses: to.counters(
                "lease_losses",
                &["noticed_by"],
                "Leases that another replica took, noticed by a `renewal` or by a `commit` that was refused.",
            ),
        }
    }

    /// Counts an operation that took so long.
    pub fn answered(&self, operation: StoreOperation, after: Duration) {
        self.durations[operation as usize].observe(after.as_secs_f64(), None);
    }

    /// Counts an operation that failed.
    pub fn failed(&self, operation: StoreOperation, class: &'static str) {
        self.errors.of(&[operation.word(), class]).inc();
    }

    /// Counts a lease that another replica took.
    pub fn lost_lease(&self, operation: StoreOperation) {
        let noticed_by = if operation == StoreOperation::Renew { "renewal" } else { "commit" };
        self.lease_losses.of(&[noticed_by]).inc();
    }
}
