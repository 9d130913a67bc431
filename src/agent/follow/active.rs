//! The runs that this process drives now.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

use crate::agent::follow::tail::Tail;
use crate::types::RunId;

/// What others in this process can do with a driven run.
#[derive(Debug, Clone)]
pub struct Live {
    /// Read it.
    pub tail: Arc<Tail>,
    /// Cancel it.
    pub cancel: CancellationToken,
    /// Wait until it is no longer driven here.
    pub left: CancellationToken,
}

/// The driven runs by id.
#[derive(Debug, Default)]
pub struct Active(Mutex<HashMap<RunId, Live>>);

impl Active {
    /// Adds a run.
    pub fn insert(&self, run: RunId, live: Live) {
        self.runs().insert(run, live);
    }

    /// A run, if it is driven here.
    pub fn get(&self, run: &RunId) -> Option<Live> {
        self.runs().get(run).cloned()
    }

    /// Removes a run and wakes the tasks that wait for that.
    pub fn remove(&self, run: &RunId) {
        if let Some(live) = self.runs().remove(run) {
            live.tail.close();
            live.left.cancel();
        }
    }

    /// How many runs there are.
    pub fn len(&self) -> usize {
        self.runs().len()
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<RunId, Live>> {
        self.0.lock()
    }
}
