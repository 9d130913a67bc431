//! The runs that have ended here and are registered until they are counted.

use parking_lot::Mutex;

use crate::agent::ownership::seldom::Seldom;
use crate::agent::usage::CountedRun;
use crate::types::maps::HashMap;
use crate::types::{RunId, Tenant};

/// How many runs are kept at hand, some MiB. More of them stay registered, and the sweep counts them.
const MOST: usize = 8_192;
/// How many runs of one tenant are counted in one pass.
const PASS: usize = 512;
/// How many runs are counted by one commit.
const TOGETHER: usize = 64;

/// The runs that have ended here and are registered until they are counted.
#[derive(Debug, Default)]
pub struct UncountedRuns {
    runs: Mutex<HashMap<RunId, UncountedRun>>,
    pub(super) cannot_count: Seldom,
}

#[derive(Debug)]
struct UncountedRun {
    tenant: Tenant,
    run: CountedRun,
    /// How often it could not be counted.
    failures: u32,
}

impl UncountedRuns {
    /// Whether all runs that ended here are counted, but for those that could not be: the next process counts these.
    pub fn have_been_tried(&self) -> bool {
        self.runs.lock().values().all(|uncounted| uncounted.failures > 0)
    }

    /// Whether this run is one of them.
    pub fn contains(&self, run: &RunId) -> bool {
        self.runs.lock().contains_key(run)
    }

    /// Adds a run, if there is room; whether it is the only one.
    pub(super) fn add(&self, tenant: Tenant, run: CountedRun) -> bool {
        let mut runs = self.runs.lock();
        if runs.len() >= MOST {
            return false;
        }
        runs.insert(run.id().clone(), UncountedRun { tenant, run, failures: 0 });
        runs.len() == 1
    }

    /// What one pass counts: for each tenant some batches, those first that failed least often. A run that could not be
    /// counted is alone in its batch, so that it holds up no other.
    pub(super) fn batches(&self) -> impl Iterator<Item = (Tenant, Vec<Vec<RunId>>)> + use<> {
        let mut tenants: HashMap<Tenant, Vec<(u32, RunId)>> = HashMap::default();
        for (run, UncountedRun { tenant, failures, .. }) in &*self.runs.lock() {
            tenants.entry(tenant.clone()).or_default().push((*failures, run.clone()));
        }
        tenants.into_iter().map(|(tenant, runs)| (tenant, in_batches(runs)))
    }

    /// These runs, for one attempt to count them.
    pub(super) fn attempt(&self, batch: &[RunId]) -> Vec<CountedRun> {
        let mut runs = self.runs.lock();
        batch.iter().filter_map(|run| Some(runs.get_mut(run)?.run.attempt())).collect()
    }

    /// Notes that these runs could not be counted.
    pub(super) fn note_failure(&self, batch: &[RunId]) {
        let mut runs = self.runs.lock();
        for run in batch {
            if let Some(uncounted) = runs.get_mut(run) {
                uncounted.failures = uncounted.failures.saturating_add(1);
            }
        }
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

/// The runs of one tenant, which failed so often, as one pass counts them.
fn in_batches(mut runs: Vec<(u32, RunId)>) -> Vec<Vec<RunId>> {
    runs.sort_unstable();
    runs.truncate(PASS);
    let failed = runs.partition_point(|(failures, _)| *failures == 0);
    let ids = |runs: &[(u32, RunId)]| runs.iter().map(|(_, run)| run.clone()).collect();
    let (new, failed) = runs.split_at(failed);
    new.chunks(TOGETHER).chain(failed.chunks(1)).map(ids).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_takes_few_runs_new_ones_first_and_together_and_failed_ones_alone() {
        let run = |failures| (failures, RunId::mint());
        let runs: Vec<_> = (0..PASS).map(|_| run(2)).chain([run(1)]).chain((0..=TOGETHER).map(|_| run(0))).collect();
        let batches = in_batches(runs.clone());
        let failures = |id: &RunId| runs.iter().find(|(_, run)| run == id).unwrap().0;
        let taken: Vec<u32> = batches.iter().flatten().map(failures).collect();
        assert_eq!(taken.len(), PASS);
        assert!(taken.is_sorted());
        let sizes: Vec<usize> = batches.iter().map(Vec::len).collect();
        assert_eq!(sizes[..3], [TOGETHER, 1, 1]);
        assert!(sizes[2..].iter().all(|size| *size == 1));
    }
}
