//! How long an answer may take in each of its phases.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use super::upstream::Upstream;
use crate::llm::{ModelError, ModelErrorKind};

/// How long to wait: for the first byte, then between one thing said and the next, and never beyond
/// the deadline.
///
/// One timer serves a whole answer. It is set anew only once it rings, because most waits are short
/// and there is one for each token.
pub(super) struct AnswerTimer {
    /// When the present phase has taken too long.
    phase_end: Instant,
    deadline: Instant,
    /// Whether any byte of the body arrived.
    pub(super) begun: bool,
    timer: Pin<Box<Sleep>>,
}

impl AnswerTimer {
    /// Of a request that is sent now.
    pub(super) fn new(first_byte: Duration, deadline: Instant) -> Self {
        let phase_end = Instant::now() + first_byte;
        Self { phase_end, deadline, begun: false, timer: Box::pin(sleep_until(phase_end.min(deadline))) }
    }

    fn until(&self) -> Instant {
        self.phase_end.min(self.deadline)
    }

    /// Something was said: the wait for more begins.
    pub(super) fn renew(&mut self, idle: Duration) {
        self.begun = true;
        self.phase_end = Instant::now() + idle;
        if self.until() < self.timer.deadline() {
            let until = self.until();
            self.timer.as_mut().reset(until);
        }
    }

    /// Waits, or fails when it took too long.
    pub(super) async fn wait_for<T>(
        &mut self,
        upstream: &Upstream,
        what: impl Future<Output = T>,
    ) -> Result<T, ModelError> {
        tokio::pin!(what);
        loop {
            tokio::select! {
                // The timer first: a flood of empty chunks must not keep it from being looked at.
                biased;
                () = self.timer.as_mut() => {
                    let (now, until) = (Instant::now(), self.until());
                    if now < until {
                        self.timer.as_mut().reset(until);
                    } else {
                        return Err(upstream.error(ModelErrorKind::Timeout, self.complaint(now)));
                    }
                }
                done = &mut what => return Ok(done),
            }
        }
    }

    fn complaint(&self, now: Instant) -> &'static str {
        match (now >= self.deadline, self.begun) {
            (true, _) => "had not finished its answer when the time for it was up",
            (false, false) => "did not begin to answer in time",
            (false, true) => "fell silent in the middle of its answer",
        }
    }
}
