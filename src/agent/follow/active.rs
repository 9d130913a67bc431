//! The runs that this process drives now.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

use crate::agent::follow::tail::Tail;
use crate::types::maps::HashMap;
use crate::types::{RunId, Tenant};

/// A run that this process drives, for its readers and those who cancel it.
#[derive(Debug, Clone)]
pub struct Live {
    /// The run's tenant.
    pub tenant: Tenant,
    /// The newest records.
    pub tail: Arc<Tail>,
    /// Cancels the run.
    pub cancel: CancellationToken,
    /// Cancelled once this process no longer drives the run.
    pub left: CancellationToken,
}

impl Live {
    /// Whether both are of the same driver.
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.tail, &other.tail)
    }
}

/// The driven runs by id.
#[derive(Debug, Default)]
pub struct Active(Mutex<HashMap<RunId, Driven>>);

/// A run, and how far its driver is.
#[derive(Debug)]
struct Driven {
    live: Live,
    /// Whether the driver is about to leave the run, which needs none from now on.
    is_done: bool,
}

impl Active {
    /// Adds a run.
    pub fn insert(&self, run: RunId, live: Live) {
        self.runs().insert(run, Driven { live, is_done: false });
    }

    /// Notes that the driver of a run is about to leave it and to remove its registration: from now on nothing that is
    /// found here is a reason to register the run.
    pub fn note_done(&self, run: &RunId, live: &Live) {
        if let Some(driven) = self.runs().get_mut(run).filter(|driven| driven.live.is(live)) {
            driven.is_done = true;
        }
    }

    /// Whether a run has to be registered, because it is driven here and its driver is not about to leave it.
    pub fn needs_registration(&self, run: &RunId) -> bool {
        self.runs().get(run).is_some_and(|driven| !driven.is_done)
    }

    /// A run, if it is driven here.
    pub fn get(&self, run: &RunId) -> Option<Live> {
        self.runs().get(run).map(|driven| driven.live.clone())
    }

    /// Removes a run that is no longer driven as `live`, and wakes the tasks that wait for that. If the run is driven
    /// here again already, it stays.
    pub fn remove(&self, run: &RunId, live: &Live) {
        if let Entry::Occupied(entry) = self.runs().entry(run.clone())
            && entry.get().live.is(live)
        {
            entry.remove();
        }
        live.tail.close();
        live.left.cancel();
    }

    /// How many runs there are.
    pub fn len(&self) -> usize {
        self.runs().len()
    }

    /// How many events the reader has not taken that is furthest behind its run.
    pub fn reader_lag(&self) -> u64 {
        self.runs().values().map(|driven| driven.live.tail.reader_lag()).max().unwrap_or(0)
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<RunId, Driven>> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_leaves_late_does_not_remove_the_one_after_it() {
        let (active, run) = (Active::default(), RunId::mint());
        let live = || Live {
            tenant: Tenant::default_tenant(),
            tail: Arc::<Tail>::default(),
            cancel: CancellationToken::new(),
            left: CancellationToken::new(),
        };
        let (first, second) = (live(), live());
        active.insert(run.clone(), first.clone());
        active.insert(run.clone(), second.clone());
        active.remove(&run, &first);
        assert!(first.left.is_cancelled() && first.tail.is_closed());
        assert!(!second.left.is_cancelled() && !second.tail.is_closed());
        assert_eq!(active.len(), 1);
        active.remove(&run, &second);
        assert!(active.get(&run).is_none() && second.left.is_cancelled());
    }
}
