//! Rate limits by the generic cell rate algorithm, which stores one moment for each bucket and needs no task that
//! refills it.
//!
//! The moment is when the bucket will be full again. A token can be taken while that moment is less than a burst
//! away. See Brandur Leach, "Rate Limiting, Cells, and GCRA".

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Key, Partition};

/// How fast a bucket fills and how much it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// How many tokens a full bucket holds; at least 1.
    pub burst: u32,
    /// How long one token takes to come back.
    pub every: Duration,
}

/// Whether a token was taken, and what is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateDecision {
    /// Whether a token was taken.
    pub allowed: bool,
    /// How many more tokens could be taken now.
    pub remaining: u32,
    /// How long until the bucket is full again; after a refusal, how long until a token can be taken.
    pub reset: Duration,
}

impl Rate {
    /// Takes a token, if there is one, from a bucket that will be full in `debt` from now. Also returns the new debt.
    pub(super) fn take(self, debt: Duration) -> (Duration, RateDecision) {
        let after = debt.saturating_add(self.every);
        if after <= self.most() { (after, self.taken(after)) } else { (debt, self.refused(debt)) }
    }

    /// How long an empty bucket takes to fill.
    pub(super) fn most(self) -> Duration {
        self.every.saturating_mul(self.burst.max(1))
    }

    /// The decision that a token was taken, after which the bucket will be full in `after` from now.
    pub(super) fn taken(self, after: Duration) -> RateDecision {
        let room = self.most().saturating_sub(after);
        let tokens = room.as_nanos().checked_div(self.every.as_nanos()).unwrap_or(u128::MAX);
        let remaining = u32::try_from(tokens).unwrap_or(u32::MAX).min(self.burst);
        RateDecision { allowed: true, remaining, reset: after }
    }

    /// The decision that no token can be taken from a bucket that will be full in `debt` from now.
    pub(super) fn refused(self, debt: Duration) -> RateDecision {
        let reset = debt.saturating_add(self.every).saturating_sub(self.most());
        RateDecision { allowed: false, remaining: 0, reset }
    }
}

/// The buckets of a store that lives in one process.
#[derive(Debug, Default)]
pub(super) struct Buckets(Mutex<Levels>);

#[derive(Debug, Default)]
struct Levels {
    /// When each bucket will be full again.
    full_at: HashMap<(Partition, Key), Instant>,
    /// From this many buckets on, full ones are removed.
    sweep_at: usize,
}

impl Buckets {
    /// Takes a token from a bucket, if there is one.
    pub(super) fn take(&self, partition: &Partition, bucket: &Key, rate: Rate) -> RateDecision {
        let now = Instant::now();
        let mut levels = self.0.lock();
        if levels.full_at.len() >= levels.sweep_at {
            levels.full_at.retain(|_, at| *at > now);
            levels.sweep_at = 2 * levels.full_at.len().max(512);
        }
        let at = levels.full_at.entry((partition.clone(), bucket.clone())).or_insert(now);
        let (debt, taken) = rate.take(at.saturating_duration_since(now));
        // A bucket that would be full only beyond the range of the clock stays as it was.
        *at = now.checked_add(debt).unwrap_or(*at);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { burst: 3, every: Duration::from_secs(10) };

    #[test]
    fn burst_is_followed_by_one_at_a_time() {
        let (mut debt, mut seen) = (Duration::ZERO, Vec::new());
        for _ in 0..4 {
            let (after, taken) = RATE.take(debt);
            (debt, seen) = (after, [seen, vec![(taken.allowed, taken.remaining, taken.reset.as_secs())]].concat());
        }
        assert_eq!(seen, [(true, 2, 10), (true, 1, 20), (true, 0, 30), (false, 0, 10)]);
        let (debt, taken) = RATE.take(debt.saturating_sub(Duration::from_secs(10)));
        assert_eq!((debt.as_secs(), taken.allowed, taken.remaining), (30, true, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn full_buckets_are_removed() {
        let (buckets, partition) = (Buckets::default(), Partition::new("p"));
        for number in 0..2_000 {
            assert!(buckets.take(&partition, &Key::from(number.to_string()), RATE).allowed);
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        assert!(buckets.0.lock().full_at.len() <= 1024);
    }
}
