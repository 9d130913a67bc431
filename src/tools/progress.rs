//! How a tool reports its progress.
//!
//! Nothing waits for a report and nothing depends on one: reports that come too fast, or that have no receiver,
//! are dropped.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::types::{CallId, ToolProgress};

/// A report that follows another of the same call within this time is dropped.
const PACE: Duration = Duration::from_millis(100);
/// Longest message of a report, in bytes.
const MAX_MESSAGE: usize = 1_024;

/// Where a tool tells how far it is.
#[derive(Debug, Clone, Default)]
pub struct ProgressSink(Option<Arc<Sink>>);

#[derive(Debug)]
struct Sink {
    call: CallId,
    reports: mpsc::Sender<(CallId, ToolProgress)>,
    last: Mutex<Option<Instant>>,
}

impl ProgressSink {
    /// A sink whose reports name `call`.
    #[must_use]
    pub fn new(call: CallId, reports: mpsc::Sender<(CallId, ToolProgress)>) -> Self {
        Self(Some(Arc::new(Sink { call, reports, last: Mutex::default() })))
    }

    /// Tells how far the call is.
    pub fn report(&self, mut progress: ToolProgress) {
        let Some(sink) = &self.0 else { return };
        let now = Instant::now();
        {
            let mut last = sink.last.lock();
            if last.is_some_and(|last| now < last + PACE) {
                return;
            }
            *last = Some(now);
        }
        if let Some(message) = &mut progress.message {
            message.truncate(message.floor_char_boundary(MAX_MESSAGE));
        }
        // A receiver that is too slow misses reports.
        let _ = sink.reports.try_send((sink.call.clone(), progress));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_report_that_comes_too_soon_is_dropped() {
        let (reports, mut taken) = mpsc::channel(8);
        let sink = ProgressSink::new(CallId::foreign("c"), reports);
        for done in 0..5_u8 {
            sink.report(ToolProgress { done: Some(done.into()), ..ToolProgress::default() });
            tokio::time::sleep(PACE / 2).await;
        }
        drop(sink);
        let mut seen = Vec::new();
        while let Some((_, progress)) = taken.recv().await {
            seen.extend(progress.done);
        }
        assert_eq!(seen, [0.0, 2.0, 4.0]);
        ProgressSink::default().report(ToolProgress::default());
    }
}
