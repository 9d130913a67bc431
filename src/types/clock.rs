//! The wall clock, read in one place.
//!
//! Durations are measured with [`tokio::time::Instant`], so that tests can pause them; the wall clock
//! is only for what people and other machines read later.

use std::time::{SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Milliseconds since the Unix epoch; 0 for a clock set before it.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
    #[cfg(test)]
    let now = now.saturating_add_signed(SHIFT.get());
    now
}

#[cfg(test)]
thread_local! {
    static SHIFT: std::cell::Cell<i64> = const { std::cell::Cell::new(0) };
}

/// Sets the wall clock that this thread sees so many milliseconds ahead of the true one.
#[cfg(test)]
pub(crate) fn shift(ms: i64) {
    SHIFT.set(ms);
}

/// A clock that reads the wall clock once and then counts evenly, also if the wall clock is changed meanwhile.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    began_ms: u64,
    began: Instant,
}

impl Clock {
    /// Sets one by the wall clock.
    #[must_use]
    pub fn start() -> Self {
        Self { began_ms: now_ms(), began: Instant::now() }
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        let passed = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.began_ms.saturating_add(passed)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_clock_goes_on_evenly_from_the_wall_clock() {
        let before = now_ms();
        let clock = Clock::start();
        let began = clock.now_ms();
        assert!((before..=now_ms()).contains(&began));
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(clock.now_ms(), began + 3_600_000);
    }
}
