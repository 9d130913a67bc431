//! How long things are kept.

use std::time::Duration;

/// How long things are kept, and how much of them at hand.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// An ended run, after its end.
    pub run: Duration,
    /// A session, after its last change.
    pub session: Duration,
    /// Most bytes of sessions' messages that are kept in memory.
    pub history_bytes: u64,
}
