//! Watches what happens outside of a run, and tells its driver: commands that arrive, and readers that leave.
//!
//! The watcher runs in the driver's task, so it ends with it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::agent::follow::tail::Tail;
use crate::agent::inbox;
use crate::agent::ledger::keys;
use crate::store::{Partition, Store, Unavailable, Watch};
use crate::types::RunId;

/// How soon the store is asked again when it did not answer.
const RETRY_EVERY: Duration = Duration::from_millis(500);

/// How long a run in a shared store is driven before its watcher listens for commands. Many runs have ended by then,
/// and listening costs such a store more than driving a step; commands that were sent before are found.
const LISTEN_AFTER: Duration = Duration::from_millis(250);

/// Watches over one run.
#[derive(Debug)]
pub struct RunWatcher {
    pub(in crate::agent) store: Arc<dyn Store>,
    pub(in crate::agent) partition: Partition,
    pub(in crate::agent) run: RunId,
    /// What tells of its inbox, if that was listened to before the inbox was looked at.
    pub(in crate::agent) nudges: Option<Watch>,
    /// Commands that were looked at.
    pub(in crate::agent) seen: u64,
    /// How many commands there are, as far as the lease's renewals told.
    pub(in crate::agent) commands: watch::Receiver<u64>,
    /// How the driver learns how many there are: it reads them when it can apply them.
    pub(in crate::agent) found: watch::Sender<u64>,
    /// How the driver learns at once that it is to stop.
    pub(in crate::agent) cancel: CancellationToken,
    /// How it learns that its last reader has gone.
    pub(in crate::agent) abandoned: CancellationToken,
    pub(in crate::agent) tail: Arc<Tail>,
    /// How long the run outlives its last reader; `None` if the run needs no reader.
    pub(in crate::agent) grace: Option<Duration>,
}

impl RunWatcher {
    /// Watches until it is dropped.
    pub async fn watch(&mut self) {
        let nudges = self.nudges.take();
        let alone = async {
            let Some(grace) = self.grace else { return std::future::pending().await };
            abandoned(&self.store, &self.partition, &self.run, &self.tail, grace).await;
            self.abandoned.cancel();
            std::future::pending::<()>().await;
        };
        tokio::join!(self.watch_inbox(nudges), alone);
    }

    /// Tells the driver how many commands its inbox has, whenever that changes.
    async fn watch_inbox(&self, nudges: Option<Watch>) {
        let (mut seen, mut commands) = (self.seen, self.commands.clone());
        let mut nudges = if let Some(nudges) = nudges {
            nudges
        } else {
            tokio::time::sleep(LISTEN_AFTER).await;
            let nudges = self.store.watch(&keys::inbox_topic(&self.partition, &self.run));
            seen = self.look_until_answered(seen).await;
            nudges
        };
        loop {
            tokio::select! {
                () = nudges.changed() => {}
                gone = more_than(&mut commands, seen) => if gone {
                    // The lease is no longer held, so the driver is about to stop.
                    return nudges.changed().await;
                },
            }
            seen = self.look_until_answered(seen).await;
        }
    }

    /// Looks at the inbox, again and again until the store answers. Returns how many commands the inbox has.
    async fn look_until_answered(&self, seen: u64) -> u64 {
        loop {
            match Box::pin(self.look(seen)).await {
                Ok(length) => return length,
                Err(_) => tokio::time::sleep(RETRY_EVERY).await,
            }
        }
    }

    /// Looks at the inbox.
    async fn look(&self, seen: u64) -> Result<u64, Unavailable> {
        let glance = inbox::glance(&self.store, &self.partition, &self.run, seen).await?;
        if glance.cancels {
            self.cancel.cancel();
        }
        self.found.send_replace(glance.length);
        Ok(glance.length)
    }
}

/// Returns `false` once there are more than `seen` commands, or `true` once the sender is gone.
async fn more_than(commands: &mut watch::Receiver<u64>, seen: u64) -> bool {
    commands.wait_for(|commands| *commands > seen).await.is_err()
}

/// Returns once the run has had no reader for the whole grace, at this replica or another.
async fn abandoned(store: &Arc<dyn Store>, partition: &Partition, run: &RunId, tail: &Arc<Tail>, grace: Duration) {
    let mut readers = tail.readers();
    let mut elsewhere = None;
    loop {
        let alone_since = readers.borrow_and_update().alone_since.max(elsewhere);
        let Some(since) = readers.borrow().alone_since.and(alone_since) else {
            if readers.changed().await.is_err() {
                return std::future::pending().await;
            }
            continue;
        };
        tokio::select! {
            () = tokio::time::sleep_until(since + grace) => {}
            changed = readers.changed() => {
                if changed.is_err() {
                    return std::future::pending().await;
                }
                continue;
            }
        }
        match store.get(partition, &keys::reader(run)).await {
            Ok(None) => return,
            // The run has a reader at another replica, or the store does not answer.
            Ok(Some(_)) => {
                elsewhere = Some(Instant::now());
                tokio::time::sleep(RETRY_EVERY).await;
            }
            Err(_) => tokio::time::sleep(RETRY_EVERY).await,
        }
    }
}
