//! What may interrupt a run while it waits for a model or a tool.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::agent::tail::Readers;
use crate::types::StopReason;

/// Why a wait ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interruption {
    /// The run is to stop; the reason is recorded.
    Stop(StopReason),
    /// Another process goes on with the run, or this one does after its restart: nothing is recorded.
    Leave,
}

/// The sources of interruptions of one run.
#[derive(Debug)]
pub struct Signals {
    /// Someone asked for it to be cancelled.
    pub cancel: CancellationToken,
    /// Its lease is no longer ours.
    pub lost: CancellationToken,
    /// This process is to end.
    pub leave: CancellationToken,
    /// Who reads it.
    pub readers: watch::Receiver<Readers>,
    /// How long it outlives its last reader; `None` for a run that goes on without.
    pub grace: Option<Duration>,
    /// When its time is up.
    pub deadline: Instant,
    /// Time after `deadline` that is held back for a closing answer.
    pub closing_time: Duration,
}

impl Signals {
    /// Returns at the first interruption.
    pub async fn interrupted(&mut self) -> Interruption {
        let deadline = self.deadline;
        tokio::select! {
            biased;
            () = self.lost.cancelled() => Interruption::Leave,
            () = self.leave.cancelled() => Interruption::Leave,
            () = self.cancel.cancelled() => Interruption::Stop(StopReason::Cancelled),
            () = abandoned(&mut self.readers, self.grace) => Interruption::Stop(StopReason::Cancelled),
            () = tokio::time::sleep_until(deadline) => Interruption::Stop(StopReason::Timeout),
        }
    }

    /// An interruption that is already there.
    pub fn now(&self) -> Option<Interruption> {
        if self.lost.is_cancelled() || self.leave.is_cancelled() {
            Some(Interruption::Leave)
        } else if self.cancel.is_cancelled() || self.is_abandoned() {
            Some(Interruption::Stop(StopReason::Cancelled))
        } else {
            (Instant::now() >= self.deadline).then_some(Interruption::Stop(StopReason::Timeout))
        }
    }

    fn is_abandoned(&self) -> bool {
        let since = self.readers.borrow().alone_since;
        self.grace.zip(since).is_some_and(|(grace, since)| since.elapsed() >= grace)
    }

    /// Lets the closing answer use the time that was held back for it.
    pub fn begin_closing(&mut self) {
        self.deadline += std::mem::take(&mut self.closing_time);
    }
}

/// Returns once nobody has read the run for the whole grace.
async fn abandoned(readers: &mut watch::Receiver<Readers>, grace: Option<Duration>) {
    let Some(grace) = grace else { return std::future::pending().await };
    loop {
        let alone_since = readers.borrow_and_update().alone_since;
        let alone_for_grace = async {
            match alone_since {
                Some(since) => tokio::time::sleep_until(since + grace).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = alone_for_grace => return,
            changed = readers.changed() => if changed.is_err() {
                return std::future::pending().await;
            },
        }
    }
}
