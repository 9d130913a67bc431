//! The runs that have ended and are still registered: those of a moment are unregistered together.
//!
//! A registration is a hint, and that of a run that has ended leads nowhere. So a run's end need not wait until its
//! registration is removed, and a busy replica removes many with one commit.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::types::RunId;

/// How long a run that has ended stays registered at most. Not a setting: nothing that a caller sees depends on it.
const TOGETHER: Duration = Duration::from_millis(100);

/// The runs of this replica that have ended and are still registered.
#[derive(Debug, Default)]
pub(super) struct EndedRuns {
    runs: Mutex<Vec<RunId>>,
    first: Notify,
}

impl EndedRuns {
    /// Adds a run that has ended.
    pub(super) fn add(&self, run: RunId) {
        let mut runs = self.runs.lock();
        runs.push(run);
        if runs.len() == 1 {
            self.first.notify_one();
        }
    }

    /// Takes all of them.
    pub(super) fn take(&self) -> Vec<RunId> {
        std::mem::take(&mut *self.runs.lock())
    }

    /// Returns a moment after the first of them was added.
    pub(super) async fn gather(&self) {
        self.first.notified().await;
        tokio::time::sleep(TOGETHER).await;
    }
}
