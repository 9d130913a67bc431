//! How many runs of a tree are under way at once, on all replicas.
//!
//! A run that another one begins has a place in its tree from before it begins until it ends, or is known never to begin. A place is a
//! document beside the counter of those that are taken, in the partition of the tree's first run, and both change in one commit.

use crate::agent::error::unavailable;
use crate::agent::ledger::keys;
use crate::agent::limits::Limits;
use crate::store::{Check, CommitError, Key, Tx, Unavailable, Write};
use crate::types::{RunId, RunSpec, Tenant};

/// Most runs of a tree that are under way at once, beside its first.
pub const MOST_LIVE: i64 = 64;
/// The version of a place that is taken.
const TAKEN: u64 = 1;

/// The place of a run.
fn place(run: &RunId) -> Key {
    format!("live/{run}").into()
}

/// How many are taken.
pub(in crate::agent) fn taken() -> Key {
    "live-runs".into()
}

impl Limits {
    /// Takes the place of a run that `parent` begins, unless it has that; `false` if there is none left.
    pub(in crate::agent) async fn take_place(&self, parent: &RunSpec, child: &RunId) -> Result<bool, Unavailable> {
        let ttl = self.ledger.retention().tree_ttl(parent);
        let tx = Tx::new(keys::tree_partition(&parent.tenant, parent.root()))
            .put_at(place(child), 0, "taken".into(), Some(ttl))
            .write(Write::Add { counter: taken(), delta: 1, ceiling: Some(MOST_LIVE) })
            .write(Write::ExpireCounter { counter: taken(), ttl });
        match self.ledger.commit(tx).await {
            Ok(()) | Err(CommitError::VersionConflict { .. }) => Ok(true),
            Err(CommitError::CeilingReached { .. }) => Ok(false),
            Err(error) => Err(unavailable(error)),
        }
    }

    /// Gives back the place of a run in the tree of `root`, if it has one.
    pub(in crate::agent) async fn free_place(
        &self,
        tenant: &Tenant,
        root: &RunId,
        child: &RunId,
    ) -> Result<(), Unavailable> {
        let tx = Tx::new(keys::tree_partition(tenant, root))
            .check(Check::Version { key: place(child), version: TAKEN })
            .write(Write::Delete { key: place(child) })
            .write(Write::Add { counter: taken(), delta: -1, ceiling: None });
        match self.ledger.commit(tx).await {
            Ok(()) | Err(CommitError::VersionConflict { .. }) => Ok(()),
            Err(error) => Err(unavailable(error)),
        }
    }
}
