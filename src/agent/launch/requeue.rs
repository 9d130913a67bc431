//! Gives back a run that may have been stored and is not driven here.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::agent::drive::meter::Meter;
use crate::agent::drive::replay::Replay;
use crate::agent::error::unavailable;
use crate::agent::launch::Launcher;
use crate::agent::ledger::{keys, log};
use crate::agent::ownership::lease::Lease;
use crate::agent::ownership::registry::Registration;
use crate::store::{Check, CommitError, Store, Tx, Unavailable, Write};
use crate::types::clock::now_ms;
use crate::types::event::DiscardReason;
use crate::types::{Event, Record, RunSpec, Usage, Used};

/// How long a run that could not be resumed is kept from being found.
const REQUEUE_AFTER: Duration = Duration::from_millis(500);
/// How soon it is tried again to void a step.
const VOID_AGAIN: Duration = Duration::from_millis(500);

/// The first step of a run that was to be created with it. Only this process knows that its model call was not made.
#[derive(Debug)]
pub(in crate::agent) struct UncalledStep {
    /// The log with which the run was to be created.
    pub(in crate::agent) log: Replay,
    /// All that the log has; the last of it begins the step.
    pub(in crate::agent) records: Vec<Arc<Record>>,
    /// The budgets in which the step is reserved.
    pub(in crate::agent) meter: Meter,
}

impl Launcher {
    /// Orphans a run, which may not even exist, so that a replica finds it; before that, voids the step that may have begun
    /// with it. This happens in the background, because the store may not answer for a while.
    pub(in crate::agent) fn requeue(&self, spec: Arc<RunSpec>, lease: Lease, uncalled: Option<Box<UncalledStep>>) {
        let (ownership, lifecycle) = (self.ownership.clone(), self.lifecycle.clone());
        let store = self.ledger.store().clone();
        self.lifecycle.spawn(async move {
            if let Some(step) = uncalled {
                while let Err(error) = step.void(&*store, &lease).await {
                    tracing::debug!(run = %spec.id, %error, "could not void the run's first step yet");
                    if lifecycle.is_leaving() {
                        break;
                    }
                    tokio::time::sleep(VOID_AGAIN).await;
                }
            }
            if let Err(error) = lease.release().await {
                tracing::warn!(run = %spec.id, %error, "could not release the run's lease; it expires by itself");
            }
            // The pause: the replica that finds the run tries at once, and may fail for the same reason.
            tokio::time::sleep(REQUEUE_AFTER).await;
            ownership.orphan(&spec.id, &Registration::of(&spec)).await;
        });
    }
}

impl UncalledStep {
    /// Voids the step, for which nothing is charged then, if the run was created with it and no other replica has gone on
    /// with the run.
    async fn void(&self, store: &dyn Store, lease: &Lease) -> Result<(), Unavailable> {
        let (run, mut seq) = (self.log.run(), self.log.seq());
        let spec = run.spec();
        let (partition, events) = (keys::partition_of(spec), keys::events(&spec.id));
        let created: Vec<Bytes> = self.records.iter().map(|record| log::entry(record)).collect();
        // A run of this id that another attempt at its request has created may have called its model.
        if store.read_log(&partition, &events, 0, created.len() + 1).await?.entries != created {
            return Ok(());
        }
        let (step, at_ms) = (run.step(), now_ms());
        let (reason, usage, unconfirmed) = (DiscardReason::Interrupted, Usage::default(), Used::default());
        let discarded = Event::StepDiscarded { step, reason, usage, unconfirmed };
        let entries = [discarded, Event::HandedOff].map(|event| log::encode(&mut seq, at_ms, event).1).into();
        let topic = keys::topic(&partition, &spec.id);
        let tx = Tx::new(partition)
            .check(Check::Fence { lease: keys::lease(&spec.id), fence: lease.fence() })
            .write(Write::Append { log: events, after: created.len() as u64, entries });
        let tx = self.meter.settled(run, run.reserved(), Used::default())(tx);
        match store.commit(Tx { notify: Some(topic), ..tx }).await {
            Err(error @ CommitError::Unavailable(_)) => Err(unavailable(error)),
            // What was refused, another replica has gone on with, or an attempt before has done.
            Ok(()) | Err(_) => Ok(()),
        }
    }
}
