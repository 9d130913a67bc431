//! The runs that ended here and wish their conversation to be shortened in the background.

use std::sync::Arc;

use tokio::sync::{Mutex, mpsc};

use crate::types::RunSpec;

/// How many may wait for that. Of those beyond, the session's next run will wish for the same.
const MOST: usize = 256;

/// What runs wish for that ended here, on its way to where runs are started.
#[derive(Debug)]
pub struct Compactions {
    wishes: mpsc::Sender<Arc<RunSpec>>,
    pub(in crate::agent) ended: Mutex<mpsc::Receiver<Arc<RunSpec>>>,
}

impl Default for Compactions {
    fn default() -> Self {
        let (wishes, ended) = mpsc::channel(MOST);
        Self { wishes, ended: Mutex::new(ended) }
    }
}

impl Compactions {
    /// Wishes for the conversation of this run, which has ended.
    pub(super) fn wish(&self, spec: &Arc<RunSpec>) {
        if self.wishes.try_send(spec.clone()).is_err() {
            tracing::debug!(run = %spec.id, "too many conversations wait to be shortened");
        }
    }
}
