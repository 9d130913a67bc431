//! The runs that have ended here and are registered until they are counted.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::agent::ownership::seldom::Seldom;
use crate::agent::usage::CountedRun;
use crate::types::{RunId, Tenant};

/// The runs that have ended here and are registered until they are counted.
#[derive(Debug, Default)]
pub struct UncountedRuns {
    runs: Mutex<HashMap<RunId, (Tenant, CountedRun)>>,
    pub(super) cannot_count: Seldom,
}

impl UncountedRuns {
    /// Whether all runs that ended here are counted.
    pub fn is_empty(&self) -> bool {
        self.runs.lock().is_empty()
    }

    /// Whether this run is one of them.
    pub fn contains(&self, run: &RunId) -> bool {
        self.runs.lock().contains_key(run)
    }

    /// Adds a run; whether it is the only one.
    pub(super) fn add(&self, tenant: Tenant, run: CountedRun) -> bool {
        let mut runs = self.runs.lock();
        runs.insert(run.id().clone(), (tenant, run));
        runs.len() == 1
    }

    /// All of them, by their tenants, for one attempt to count them.
    pub(super) fn attempt(&self) -> HashMap<Tenant, Vec<CountedRun>> {
        let mut tenants: HashMap<Tenant, Vec<CountedRun>> = HashMap::new();
        for (tenant, run) in self.runs.lock().values_mut() {
            tenants.entry(tenant.clone()).or_default().push(run.attempt());
        }
        tenants
    }

    /// Removes runs that are counted and unregistered; whether none is left.
    pub(super) fn remove(&self, counted: &[RunId]) -> bool {
        let mut runs = self.runs.lock();
        for run in counted {
            runs.remove(run);
        }
        runs.is_empty()
    }
}
