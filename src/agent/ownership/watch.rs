//! The replicas watch each other, so that the runs of a dead replica are found.
//!
//! The replicas are ordered by name. Each second, a replica checks whether the next one lives; if that one is dead,
//! it checks the one after it, and so on. So a dead replica is found a second after its lease has expired, and each
//! replica asks the store equally often, however many replicas there are. A replica that lives but does not look
//! would hide a dead one behind it. So each replica also checks all others from time to time, less often the more
//! there are, and learns at the same time which replicas there are.
//!
//! A replica that shuts down watches until it leaves.

use std::time::Duration;

use crate::agent::error::unavailable;
use crate::agent::ledger::keys;
use crate::agent::ownership::Ownership;
use crate::agent::ownership::lease::{Lease, Leases};
use crate::agent::ownership::registry::{MOVED, Replica};
use crate::store::{Check, CommitError, Order, Scan, Tx, Unavailable, Write};
use crate::types::pauses::random;

/// How often a replica looks at the next one.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Replicas that began together do not look together: each waits up to this much longer.
const JITTER: Duration = Duration::from_millis(200);

/// At which replicas another one looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// At the next one, and those behind it up to one that lives.
    Next,
    /// At all.
    All,
}

impl Ownership {
    /// Watches the other replicas, for ever.
    pub async fn watch_replicas(&self) {
        let mut turns_left = 0;
        loop {
            let look = if turns_left == 0 { Look::All } else { Look::Next };
            match self.look_at_replicas(look).await {
                Ok(()) if look == Look::All => turns_left = self.replica.count(),
                Ok(()) => {}
                Err(error) => {
                    if self.cannot_watch.is_due() {
                        tracing::warn!(%error, "could not look whether the other replicas live; trying again");
                    }
                }
            }
            turns_left = turns_left.saturating_sub(1);
            tokio::time::sleep(LOOK_EVERY + JITTER.mul_f64(random())).await;
        }
    }

    async fn look_at_replicas(&self, look: Look) -> Result<(), Unavailable> {
        self.join().await?;
        if look == Look::All {
            self.replica.read_others().await?;
        }
        self.replica.reap_dead_replicas(&self.leases, look).await
    }
}

impl Replica {
    /// Moves the registrations of dead replicas to where all look for orphaned runs.
    pub async fn reap_dead_replicas(&self, leases: &Leases, look: Look) -> Result<(), Unavailable> {
        for id in self.others() {
            let (partition, key) = (keys::live_partition(), keys::replica(&id));
            let Some(lease) = leases.acquire_named(partition.clone(), key.clone(), key.clone()).await? else {
                match look {
                    Look::Next => return Ok(()),
                    Look::All => continue,
                }
            };
            // A replica that left by itself, or that another one reaped, is no longer registered.
            if self.store().get(&partition, &key).await?.is_some() {
                tracing::warn!(replica = id, "a replica is gone; its runs are resumed");
                self.reap(&id, &lease).await?;
            }
            lease.release().await?;
            self.forget(&id);
        }
        Ok(())
    }

    pub(super) async fn reap(&self, id: &str, lease: &Lease) -> Result<(), Unavailable> {
        let prefix = keys::live_entries(id);
        loop {
            let scan = Scan { prefix: prefix.clone(), after: None, limit: MOVED, order: Order::Ascending };
            let entries = self.store().scan(&keys::live_partition(), scan).await?;
            let key = keys::replica(id);
            let mut tx =
                Tx::new(keys::live_partition()).check(Check::Fence { lease: key.clone(), fence: lease.fence() });
            tx.notify = Some(keys::orphans_topic());
            if entries.len() < MOVED {
                tx = tx.write(Write::Delete { key });
            }
            let last = entries.len() < MOVED;
            for (name, entry) in entries {
                let orphan = format!("{}{}", keys::live_entries(keys::ORPHANED), &name[prefix.len()..]);
                tx = tx.write(Write::Delete { key: name.into() }).write(Write::Put {
                    key: orphan.into(),
                    value: entry.value,
                    ttl: None,
                });
            }
            match self.store().commit(tx).await {
                Ok(()) if last => return Ok(()),
                Ok(()) => {}
                // The replica lives after all, or another replica reaps it.
                Err(CommitError::Fenced { .. }) => return Ok(()),
                Err(error) => return Err(unavailable(error)),
            }
        }
    }
}
