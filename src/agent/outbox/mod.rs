//! Sends hooks what they are told: messages that lie in the store until they were taken.
//!
//! A message is sent as soon as it is stored, by the replica that stored it. If that replica dies, the due index leads
//! another one to the message. Before each attempt the attempt is counted and the entry of the next one is put, so a crash
//! at any place neither loses a message nor repeats one without end. Two replicas that find the same message count its
//! attempt against the version that they read, so only one of them sends it.
//!
//! The messages about one run are sent one after another, those about so many runs at once ([`work`]). A hook that does not
//! take its messages holds none up that is for another hook: few of its messages are tried at once, and the others are
//! postponed ([`places`]).

mod deliver;
mod places;
mod work;

use std::sync::Arc;

use parking_lot::Mutex;

use self::places::Places;
use self::work::Work;
use crate::agent::generation::Generations;
use crate::agent::ledger::Ledger;
use crate::agent::ledger::due::Due;
use crate::agent::lifecycle::Lifecycle;
use crate::agent::ownership::seldom::Seldom;
use crate::telemetry::metrics::HookMetrics;

/// Sends messages to hooks. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Outbox(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    ledger: Ledger,
    generations: Arc<Generations>,
    lifecycle: Arc<Lifecycle>,
    metrics: HookMetrics,
    work: Mutex<Work>,
    places: Places,
    cannot_send: Seldom,
}

impl Outbox {
    /// The outbox of the runs in this ledger.
    pub(super) fn new(
        ledger: Ledger,
        generations: Arc<Generations>,
        lifecycle: Arc<Lifecycle>,
        metrics: HookMetrics,
    ) -> Self {
        let (work, places, cannot_send) = (Mutex::default(), Places::default(), Seldom::default());
        Self(Arc::new(Inner { ledger, generations, lifecycle, metrics, work, places, cannot_send }))
    }

    /// What is counted of hooks.
    pub(super) fn metrics(&self) -> &HookMetrics {
        &self.0.metrics
    }

    /// Sends the messages about a run that are due now, in a task of its own, once there is room for it. If too much waits for
    /// that, it is left to a later sweep.
    pub(super) fn send_soon(&self, due: Due) {
        self.0.work.lock().add(due);
        self.begin();
    }

    /// Begins as much as there is room for. Each task that ends makes room for the next.
    fn begin(&self) {
        while let Some(due) = { self.0.work.lock().next() } {
            let outbox = self.clone();
            self.0.lifecycle.spawn_until_leaving(async move {
                let under_way = UnderWay(&outbox, &due);
                if let Err(error) = outbox.send_due(&due).await
                    && outbox.0.cannot_send.is_due()
                {
                    tracing::warn!(run = %due.run, %error, "could not send the messages about a run, and perhaps others; trying again");
                }
                drop(under_way);
                outbox.begin();
            });
        }
    }
}

/// That the messages about a run are being sent.
struct UnderWay<'a>(&'a Outbox, &'a Due);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.0.work.lock().ended(&self.1.run);
    }
}
