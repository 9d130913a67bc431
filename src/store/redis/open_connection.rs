//! A connection that is open now.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redis::aio::MultiplexedConnection;
use tokio::time::Instant;

/// A connection that is open, or was open when this was copied. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct OpenConnection {
    /// Its number: greater than that of every connection that this process opened before.
    pub(super) number: u64,
    /// The client library's connection.
    pub(super) multiplexed: MultiplexedConnection,
    last_answer: Arc<LastAnswer>,
}

/// When a connection last received an answer.
#[derive(Debug)]
struct LastAnswer {
    opened: Instant,
    /// In milliseconds since the connection was opened.
    at: AtomicU64,
}

impl OpenConnection {
    /// A connection that was opened just now.
    pub(super) fn new(number: u64, multiplexed: MultiplexedConnection) -> Self {
        let last_answer = LastAnswer { opened: Instant::now(), at: AtomicU64::new(0) };
        Self { number, multiplexed, last_answer: Arc::new(last_answer) }
    }

    /// Notes that an answer arrived.
    pub(super) fn note_answer(&self) {
        self.last_answer.at.store(self.age(Instant::now()), Ordering::Relaxed);
    }

    /// Whether any answer arrived since `then`. If one did, the server is slow rather than unreachable.
    pub(super) fn answered_since(&self, then: Instant) -> bool {
        self.last_answer.at.load(Ordering::Relaxed) > self.age(then)
    }

    fn age(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.last_answer.opened).as_millis()).unwrap_or(u64::MAX)
    }
}
