//! What may interrupt a run while it waits for a model or a tool.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::agent::lifecycle::Ending;
use crate::agent::ownership::lease::LeaseValidity;
use crate::types::StopReason;

/// Why a wait ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interruption {
    /// The run is to stop; the reason is recorded.
    Stop(StopReason),
    /// Another process resumes the run, or this one does after its restart: nothing is recorded.
    Leave,
}

/// The sources of interruptions of one run.
#[derive(Debug)]
pub struct Signals {
    /// The run is cancelled.
    pub cancel: CancellationToken,
    /// The run has lost its last reader.
    pub abandoned: CancellationToken,
    /// How long the run's lease is certainly valid.
    pub validity: LeaseValidity,
    /// Whether this process is to end: now, or so that another replica resumes the run before its next step.
    pub ending: Ending,
    /// When its time is up.
    pub deadline: Instant,
    /// Time after `deadline` that is held back for a closing answer.
    pub closing_time: Duration,
}

impl Signals {
    /// Returns at the first interruption.
    pub async fn interrupted(&mut self) -> Interruption {
        loop {
            if let Some(interruption) = self.now() {
                return interruption;
            }
            // One timer for whatever time ends first: every wake of the run's task polls all of these.
            let until = self.validity.until().map_or(self.deadline, |until| until.min(self.deadline));
            tokio::select! {
                biased;
                () = self.validity.changed() => {}
                () = self.ending.changed() => {}
                () = self.cancel.cancelled() => {}
                () = self.abandoned.cancelled() => {}
                () = tokio::time::sleep_until(until) => {}
            }
        }
    }

    /// An interruption that is already there.
    pub fn now(&self) -> Option<Interruption> {
        if !self.validity.is_valid() || self.ending.is_leaving() {
            Some(Interruption::Leave)
        } else if self.cancel.is_cancelled() {
            Some(Interruption::Stop(StopReason::Cancelled))
        } else if self.abandoned.is_cancelled() {
            Some(Interruption::Stop(StopReason::Abandoned))
        } else {
            (Instant::now() >= self.deadline).then_some(Interruption::Stop(StopReason::Timeout))
        }
    }

    /// What keeps the run from beginning something new here.
    pub fn before_a_step(&self) -> Option<Interruption> {
        self.now().or_else(|| self.ending.is_handing_over().then_some(Interruption::Leave))
    }

    /// Lets the closing answer use the time that was held back for it.
    pub fn begin_closing(&mut self) {
        self.deadline += std::mem::take(&mut self.closing_time);
    }
}
