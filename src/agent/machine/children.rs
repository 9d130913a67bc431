//! The runs that a run's calls have begun, as its records tell.

use crate::types::delegate::{CompletedChild, Delegated, StartedChild};
use crate::types::taken::Taken;
use crate::types::{CallId, StopReason};

/// The runs that a run's calls have begun.
#[derive(Debug, Clone, Default)]
pub(super) struct Children {
    /// Those that have not ended, as far as the run knows.
    pub(super) live: Vec<StartedChild>,
    /// What the others took, and all runs below them.
    pub(super) ended: Taken,
    /// Why those ended of an agent that is made of others.
    pub(super) reasons: Vec<(CallId, StopReason)>,
}

impl Children {
    /// Takes in what happened to one of them.
    pub(super) fn apply(&mut self, delegated: &Delegated) {
        match delegated {
            Delegated::Started(child) => {
                self.live.retain(|known| known.run != child.run);
                self.live.push(child.clone());
            }
            Delegated::Completed(CompletedChild { run, tree, .. }) => {
                let before = self.live.len();
                self.live.retain(|known| known.run != *run);
                // The end of one is told once.
                if self.live.len() < before {
                    self.ended = self.ended.and(tree);
                }
            }
        }
    }
}
