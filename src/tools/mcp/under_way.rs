//! The calls that are under way at a server, and whether one of them shows that the server may hang.
//!
//! A server that works on a long call may answer nothing else meanwhile. So a call that gets no answer in its time says nothing
//! of the server while an older call is still within its own time.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The calls that are under way. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct UnderWay(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    calls: Mutex<Calls>,
    suspected: Notify,
}

#[derive(Debug, Default)]
struct Calls {
    next: u64,
    numbers: BTreeSet<u64>,
}

/// A call that is under way until this is dropped.
#[derive(Debug)]
pub(super) struct Waiting {
    all: UnderWay,
    number: u64,
    until: Instant,
    is_answered: bool,
}

impl UnderWay {
    /// A call that waits until then for its answer.
    pub(super) fn begin(&self, until: Instant) -> Waiting {
        let mut calls = self.0.calls.lock();
        let number = calls.next;
        calls.next += 1;
        calls.numbers.insert(number);
        Waiting { all: self.clone(), number, until, is_answered: false }
    }

    /// Whether no call is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.0.calls.lock().numbers.is_empty()
    }

    /// Returns once the oldest call got no answer in its time.
    pub(super) async fn suspected(&self) {
        self.0.suspected.notified().await;
    }
}

impl Waiting {
    /// The server answered, or the connection to it ended.
    pub(super) fn end(mut self) {
        self.is_answered = true;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let is_oldest = {
            let mut calls = self.all.0.calls.lock();
            let is_oldest = calls.numbers.first() == Some(&self.number);
            calls.numbers.remove(&self.number);
            is_oldest
        };
        // A call that was stopped earlier, as its run was, says nothing of the server.
        if is_oldest && !self.is_answered && Instant::now() >= self.until {
            self.all.0.suspected.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_the_oldest_call_shows_that_a_server_may_hang_and_only_once_its_time_is_up() {
        let all = UnderWay::default();
        let is_suspected = || all.suspected().now_or_never().is_some();
        let (long, short) = (Duration::from_secs(60), Duration::from_secs(1));
        let (old, young) = (all.begin(Instant::now() + long), all.begin(Instant::now() + short));
        advance(2 * short).await;
        drop(young);
        assert!(!is_suspected(), "the server may be at work on the older call");
        advance(long).await;
        drop(old);
        assert!(is_suspected() && all.is_empty());
        let (stopped, answered) = (all.begin(Instant::now() + short), all.begin(Instant::now()));
        drop(stopped);
        answered.end();
        assert!(!is_suspected());
    }
}
