//! The leases of a backend that lives in one process.

use std::time::Duration;

use tokio::time::Instant;

use super::{Fence, Key, Partition};
use crate::types::clock::now_ms;
use crate::types::maps::HashMap;

/// The leases that were granted, with their ends. A holder is known by its fence.
#[derive(Debug, Default)]
pub(super) struct Leases {
    /// A partition has one lease, or a few dozen where runs of one session are under way at once.
    held: HashMap<Partition, Vec<(Key, Grant)>>,
    /// The greatest fence given out. All leases share one sequence of fences, so that a released lease can be
    /// forgotten.
    last: u64,
}

/// The two clocks of an acquisition.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    /// Decides when leases expire.
    pub(super) instant: Instant,
    /// Microseconds since the Unix epoch, from which fences are taken.
    pub(super) micros: u64,
}

impl Now {
    /// Reads both clocks.
    pub(super) fn read() -> Self {
        Self { instant: Instant::now(), micros: now_ms().saturating_mul(1000) }
    }
}

#[derive(Debug)]
struct Grant {
    fence: Fence,
    /// `None` if the end lies beyond the range of the clock.
    until: Option<Instant>,
}

impl Leases {
    /// No leases, and only fences greater than `last`.
    pub(super) fn after(last: u64) -> Self {
        Self { held: HashMap::default(), last }
    }

    /// The fence that an acquisition would get now. It is the time, so that fences grow even if the last one was
    /// forgotten; if the clock stands behind the last fence, it is the number after that.
    pub(super) fn next_fence(&self, now: Now) -> u64 {
        now.micros.max(self.last.saturating_add(1))
    }

    /// Grants a lease that is free or has expired.
    pub(super) fn acquire(&mut self, partition: &Partition, lease: &Key, ttl: Duration, now: Now) -> Option<Fence> {
        if let Some(held) = self.find(partition, lease)
            && held.until.is_none_or(|until| now.instant < until)
        {
            return None;
        }
        let fence = Fence { token: self.next_fence(now), nonce: 0 };
        self.last = fence.token;
        let held = Grant { fence, until: now.instant.checked_add(ttl) };
        if let Some(expired) = self.find_mut(partition, lease) {
            *expired = held;
        } else {
            let leases = self.held.entry(partition.clone()).or_default();
            leases.reserve_exact(1);
            leases.push((lease.clone(), held));
        }
        Some(fence)
    }

    /// Makes a lease end `ttl` from now, even if it has expired; `false` if the lease has another holder or none.
    pub(super) fn renew(&mut self, partition: &Partition, lease: &Key, fence: Fence, ttl: Duration, now: Now) -> bool {
        match self.find_mut(partition, lease) {
            Some(held) if held.fence == fence => {
                held.until = now.instant.checked_add(ttl);
                true
            }
            Some(_) | None => false,
        }
    }

    /// Forgets a lease if it is this holder's.
    pub(super) fn release(&mut self, partition: &Partition, lease: &Key, fence: Fence) {
        if self.holds(partition, lease, fence)
            && let Some(leases) = self.held.get_mut(partition)
        {
            leases.retain(|(key, _)| key != lease);
            if leases.is_empty() {
                self.held.remove(partition);
            }
        }
    }

    /// Whether a lease is this holder's; it may have expired.
    pub(super) fn holds(&self, partition: &Partition, lease: &Key, fence: Fence) -> bool {
        self.find(partition, lease).is_some_and(|held| held.fence == fence)
    }

    fn find(&self, partition: &Partition, lease: &Key) -> Option<&Grant> {
        self.held.get(partition)?.iter().find_map(|(key, grant)| (key == lease).then_some(grant))
    }

    fn find_mut(&mut self, partition: &Partition, lease: &Key) -> Option<&mut Grant> {
        self.held.get_mut(partition)?.iter_mut().find_map(|(key, grant)| (key == lease).then_some(grant))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    fn fence(token: u64) -> Fence {
        Fence { token, nonce: 0 }
    }

    fn later(now: Now, by: Duration) -> Now {
        Now { instant: now.instant + by, ..now }
    }

    #[test]
    fn fences_grow_when_the_clock_stands_behind() {
        let far = u64::MAX / 2;
        let (mut leases, now) = (Leases::after(far), Now::read());
        let (partition, lease) = (Partition::new("p"), Key::from("driver"));
        assert_eq!(leases.acquire(&partition, &lease, TTL, now), Some(fence(far + 1)));
        assert_eq!(leases.acquire(&partition, &lease, TTL, later(now, TTL)), Some(fence(far + 2)));
        leases.release(&partition, &lease, fence(far + 2));
        assert_eq!(leases.acquire(&partition, &lease, TTL, now), Some(fence(far + 3)));
    }

    #[test]
    fn lease_expires_at_its_time_and_not_before() {
        let (mut leases, now) = (Leases::default(), Now::read());
        let (partition, lease) = (Partition::new("p"), Key::from("driver"));
        let fence = leases.acquire(&partition, &lease, TTL, now).unwrap();
        assert!(leases.renew(&partition, &lease, fence, 2 * TTL, later(now, TTL)));
        let just_before = later(now, 2 * TTL + Duration::from_nanos(9_999_999_999));
        assert_eq!(leases.acquire(&partition, &lease, TTL, just_before), None);
        assert!(leases.acquire(&partition, &lease, TTL, later(now, 3 * TTL)).is_some());
        assert!(!leases.renew(&partition, &lease, fence, TTL, later(now, 3 * TTL)));
    }

    #[test]
    fn nothing_is_left_of_released_leases() {
        let (mut leases, now) = (Leases::default(), Now::read());
        let (partition, lease) = (Partition::new("p"), Key::from("driver"));
        let fence = leases.acquire(&partition, &lease, Duration::MAX, now).unwrap();
        assert_eq!(leases.acquire(&partition, &lease, TTL, later(now, TTL)), None);
        leases.release(&partition, &lease, Fence { token: fence.token - 1, ..fence });
        assert!(leases.holds(&partition, &lease, fence));
        leases.release(&partition, &lease, fence);
        assert!(leases.held.is_empty());
    }
}
