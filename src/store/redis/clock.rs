//! The clock of the Redis servers, as far as this process knows it.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use redis::{FromRedisValue, Value};

use crate::types::clock::now_ms;

/// A greater difference between the clocks is worth a warning.
const NOTICED_MS: u64 = 5_000;

/// By how much the clock of the servers is ahead of this process's. What several replicas must agree on goes by the
/// servers' clock. It is learnt from each new connection and from each lease that is granted, so it costs no question of
/// its own, and is right again soon after a clock was set.
#[derive(Debug, Default)]
pub(super) struct ServerClock {
    ahead_ms: AtomicI64,
}

impl ServerClock {
    /// Notes what a server has just answered to `TIME`; nothing if it did not answer with a time.
    pub(super) fn note_answer(&self, answer: &Value) {
        if let Ok((seconds, microseconds)) = <(u64, u64)>::from_redis_value_ref(answer) {
            self.note(seconds.saturating_mul(1_000).saturating_add(microseconds / 1_000));
        }
    }

    /// Notes that the servers' clock stands at this time, and says so if this machine's is far off.
    pub(super) fn note(&self, server_ms: u64) {
        if let Some(ahead_ms) = self.learn(server_ms) {
            tracing::warn!(ahead_ms, "Redis' clock and this machine's differ: let both follow a time server");
        }
    }

    /// Learns where the servers' clock stands. Returns the difference if it is great and was another before.
    fn learn(&self, server_ms: u64) -> Option<i64> {
        let signed = |ms| i64::try_from(ms).unwrap_or(i64::MAX);
        let ahead = signed(server_ms).saturating_sub(signed(now_ms()));
        let before = self.ahead_ms.swap(ahead, Relaxed);
        (ahead.unsigned_abs() > NOTICED_MS && ahead.abs_diff(before) > NOTICED_MS).then_some(ahead)
    }

    /// Unix milliseconds by the servers' clock.
    pub(super) fn now_ms(&self) -> u64 {
        now_ms().saturating_add_signed(self.ahead_ms.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::clock;

    #[test]
    fn the_servers_clock_goes_on_from_what_was_noted_and_a_great_difference_is_told_once() {
        let clock = ServerClock::default();
        assert!(clock.now_ms().abs_diff(now_ms()) < 1_000);
        let day = 24 * 3_600_000;
        let ahead = clock.learn(now_ms() + day).unwrap();
        assert!(ahead.abs_diff(day.cast_signed()) < 1_000, "{ahead}");
        assert!(clock.now_ms().abs_diff(now_ms() + day) < 1_000);
        assert_eq!(clock.learn(now_ms() + day + 1_000), None, "it is known");
        assert_eq!(clock.learn(now_ms()), None, "it is mended");
        clock::shift(-day.cast_signed());
        assert!(clock.learn(now_ms() + day).is_some(), "this machine's clock was set");
        clock::shift(0);
    }

    #[test]
    fn an_answer_counts_to_the_millisecond() {
        let clock = ServerClock::default();
        let ahead_ms = 7_200_000 + 900;
        let server_ms = now_ms() + ahead_ms;
        let text = |number: u64| Value::BulkString(number.to_string().into_bytes());
        clock.note_answer(&Value::Array(vec![text(server_ms / 1_000), text(server_ms % 1_000 * 1_000)]));
        let learnt = clock.ahead_ms.load(Relaxed).unsigned_abs();
        assert!(learnt.abs_diff(ahead_ms) < 300, "{learnt}");
    }
}
