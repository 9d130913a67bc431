//! Whether the threads that serve requests still do so: one that answers probes beside them would not notice.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

/// How often the heart beats.
const BEAT: Duration = Duration::from_secs(1);
/// After which silence the threads are taken to hang. Not a setting: those of a server that is merely busy are silent for
/// a second or two, and one that hangs should be restarted soon.
const STALLED_AFTER: Duration = Duration::from_secs(20);

/// When a runtime was last seen alive.
#[derive(Debug)]
pub(super) struct Heartbeat {
    begun: Instant,
    /// The last beat, in milliseconds after that.
    last_ms: AtomicU64,
}

impl Heartbeat {
    pub(super) fn new() -> Self {
        Self { begun: Instant::now(), last_ms: AtomicU64::new(0) }
    }

    /// Beats as long as the runtime lives that polls this.
    pub(super) async fn beat(&self) -> Infallible {
        loop {
            self.last_ms.store(self.ms_at(Instant::now()), Relaxed);
            tokio::time::sleep(BEAT).await;
        }
    }

    /// Whether the runtime has been silent for too long.
    pub(super) fn has_stopped(&self) -> bool {
        self.has_stopped_at(Instant::now())
    }

    fn has_stopped_at(&self, now: Instant) -> bool {
        Duration::from_millis(self.ms_at(now).saturating_sub(self.last_ms.load(Relaxed))) > STALLED_AFTER
    }

    fn ms_at(&self, now: Instant) -> u64 {
        u64::try_from(now.duration_since(self.begun).as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_runtime_that_was_silent_for_long_has_stopped() {
        let heartbeat = Heartbeat::new();
        let later = |after: Duration| heartbeat.begun + after;
        assert!(!heartbeat.has_stopped_at(later(STALLED_AFTER)));
        assert!(heartbeat.has_stopped_at(later(STALLED_AFTER + BEAT)));
        let beats = tokio::time::timeout(Duration::ZERO, heartbeat.beat());
        assert!(beats.await.is_err() && !heartbeat.has_stopped());
    }
}
