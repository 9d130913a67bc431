//! What is counted of schedules.

use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;

use super::declare::Declarations;
use super::family::Family;

/// What is counted of schedules; nothing where metrics are off.
#[derive(Debug, Clone, Default)]
pub struct ScheduleMetrics(Option<Arc<Family<Counter>>>);

impl ScheduleMetrics {
    pub(super) fn declare(to: &mut Declarations) -> Self {
        Self(Some(Arc::new(to.counters(
            "schedule_firings",
            &["result"],
            "What became of the firings of schedules: `started` for those that began a run, `skipped` as the schedule says, or \
             `refused` for requests that began none.",
        ))))
    }

    /// Counts a firing.
    pub fn fired(&self, result: &str) {
        if let Some(firings) = &self.0 {
            firings.of(&[result]).inc();
        }
    }
}
