//! How often something may happen: the generic cell rate algorithm, which keeps one moment for each
//! bucket and needs nobody to fill it.
//!
//! That moment is when the bucket will be whole again; a token is there while it lies less than a
//! burst ahead. See Brandur Leach, "Rate Limiting, Cells, and GCRA".

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Key, Partition};

/// How fast a bucket fills and how much it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// How many may be taken at once from a whole bucket; at least 1.
    pub burst: u32,
    /// How long one takes to come back.
    pub every: Duration,
}

/// What asking a bucket came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Whether one was taken.
    pub allowed: bool,
    /// How many more could be taken now.
    pub remaining: u32,
    /// Until the bucket is whole again; for a refusal, until one can be taken.
    pub reset: Duration,
}

impl Rate {
    /// Takes one from a bucket that is whole in `debt` from now, if there is one, which makes the debt
    /// what is returned.
    pub(super) fn take(self, debt: Duration) -> (Duration, Taken) {
        let after = debt.saturating_add(self.every);
        if after <= self.most() { (after, self.taken(after)) } else { (debt, self.refused(debt)) }
    }

    /// What a whole bucket is worth.
    pub(super) fn most(self) -> Duration {
        self.every.saturating_mul(self.burst.max(1))
    }

    /// One was taken, after which the bucket will be whole in `after` from now.
    pub(super) fn taken(self, after: Duration) -> Taken {
        let room = self.most().saturating_sub(after);
        let tokens = room.as_nanos().checked_div(self.every.as_nanos()).unwrap_or(u128::MAX);
        let remaining = u32::try_from(tokens).unwrap_or(u32::MAX).min(self.burst);
        Taken { allowed: true, remaining, reset: after }
    }

    /// None could be taken from a bucket that will be whole in `debt` from now.
    pub(super) fn refused(self, debt: Duration) -> Taken {
        let reset = debt.saturating_add(self.every).saturating_sub(self.most());
        Taken { allowed: false, remaining: 0, reset }
    }
}

/// The buckets of a store that lives in one process.
#[derive(Debug, Default)]
pub(super) struct Buckets(Mutex<Whole>);

#[derive(Debug, Default)]
struct Whole {
    at: HashMap<(Partition, Key), Instant>,
    /// How many buckets there may be before whole ones are forgotten.
    sweep_at: usize,
}

impl Buckets {
    /// Takes one from a bucket, if there is one.
    pub(super) fn take(&self, partition: &Partition, bucket: &Key, rate: Rate) -> Taken {
        let now = Instant::now();
        let mut whole = self.0.lock();
        if whole.at.len() >= whole.sweep_at {
            whole.at.retain(|_, at| *at > now);
            whole.sweep_at = 2 * whole.at.len().max(512);
        }
        let at = whole.at.entry((partition.clone(), bucket.clone())).or_insert(now);
        let (debt, taken) = rate.take(at.saturating_duration_since(now));
        // A bucket that would be whole later than any clock can tell stays as it was.
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
    async fn whole_buckets_are_forgotten() {
        let (buckets, place) = (Buckets::default(), Partition::new("p"));
        for number in 0..2_000 {
            assert!(buckets.take(&place, &Key::from(number.to_string()), RATE).allowed);
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        assert!(buckets.0.lock().at.len() <= 1024);
    }
}
