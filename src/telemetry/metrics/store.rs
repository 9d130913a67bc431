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
    /// What did not answer, by operation: there from the start, so that its first error is an increase.
    unavailable: [Counter; StoreOperation::WORDS.len()],
    errors: Family<Counter>,
}

/// Why an operation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreFailure {
    /// The store did not answer.
    Unavailable,
    /// It refused, for this reason.
    Refused(&'static str),
}

/// Counts leases that another replica took; nothing where metrics are off.
#[derive(Debug, Clone, Default)]
pub struct LeaseLosses(Option<[Counter; 2]>);

/// How a replica notices that a lease is another's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticedBy {
    /// It could not be renewed.
    Renewal,
    /// A change under it was refused.
    Commit,
}

impl LeaseLosses {
    pub(super) fn declare(to: &mut Declarations) -> Self {
        let losses = to.counters(
            "lease_losses",
            &["noticed_by"],
            "Leases that another replica took, each counted once: noticed by a `renewal` or by a `commit` that was refused.",
        );
        Self(Some(["renewal", "commit"].map(|by| losses.of(&[by]))))
    }

    /// Counts a lost lease.
    pub fn count(&self, by: NoticedBy) {
        if let Some(losses) = &self.0 {
            losses[by as usize].inc();
        }
    }
}

impl StoreMetrics {
    pub(super) fn declare(to: &mut Declarations) -> Self {
        let durations = to.seconds(
            "store_operation_duration",
            &["operation"],
            BOUNDS,
            "How long the store took to answer, failures included.",
        );
        let errors = to.counters(
            "store_errors",
            &["operation", "class"],
            "What the store did not do: `unavailable` if it did not answer; conflicts are expected where several want to \
             change the same thing.",
        );
        Self {
            durations: StoreOperation::WORDS.map(|operation| durations.of(&[operation])),
            unavailable: StoreOperation::WORDS.map(|operation| errors.of(&[operation, "unavailable"])),
            errors,
        }
    }

    /// Counts an operation that took so long.
    pub fn answered(&self, operation: StoreOperation, after: Duration) {
        self.durations[operation as usize].observe(after.as_secs_f64(), None);
    }

    /// Counts an operation that failed.
    pub fn failed(&self, operation: StoreOperation, failure: StoreFailure) {
        match failure {
            StoreFailure::Unavailable => self.unavailable[operation as usize].inc(),
            StoreFailure::Refused(class) => self.errors.of(&[operation.word(), class]).inc(),
        };
    }
}
