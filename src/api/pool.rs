//! Memory that callers share.
//!
//! One caller gets half of a pool at most, however much it asks for. So it cannot take the memory from all others, be it
//! by sending slowly, by reading slowly or by asking for much at once.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::api::auth::CallerId;
use crate::types::maps::HashMap;

/// What is counted: semaphores count up to `u32`, which is too little for bytes.
pub const UNIT: u64 = 1 << 10;
/// One caller gets one in so many parts of a pool.
const SHARES: u32 = 2;
/// Callers whose shares are remembered before those are forgotten that hold nothing.
const REMEMBERED: usize = 32;

/// Memory of which callers take as much as they need for a while.
#[derive(Debug)]
pub struct Pool {
    free: Arc<Semaphore>,
    /// What one caller gets at most.
    share: u32,
    shares: Mutex<Shares>,
}

/// What is left of the share of each caller that holds something.
#[derive(Debug)]
struct Shares {
    by_caller: HashMap<CallerId, Weak<Semaphore>>,
    /// Of how many callers the next one makes it worth while to look for those that hold nothing.
    tidy_at: usize,
}

/// What was taken of a pool, given back once it is dropped.
#[derive(Debug)]
pub struct Taken {
    of_caller: OwnedSemaphorePermit,
    of_all: OwnedSemaphorePermit,
}

/// Who holds what is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// The caller itself has its whole share.
    Share,
    /// All callers together.
    Pool,
}

impl Pool {
    /// A pool of so many bytes, of which one caller gets half, but `least` in any case.
    pub fn new(bytes: u64, least: u64) -> Self {
        let units = units(bytes);
        let share = (units / SHARES).max(units_within(least, units));
        let shares = Shares { by_caller: HashMap::default(), tidy_at: REMEMBERED };
        Self { free: Arc::new(Semaphore::new(units as usize)), share, shares: Mutex::new(shares) }
    }

    /// Takes memory for so many bytes, or all that a caller gets if that is less, as soon as it is free; an error if it
    /// is not within `timeout`.
    pub async fn take(&self, caller: &CallerId, bytes: u64, timeout: Duration) -> Result<Taken, Full> {
        let units = units_within(bytes, self.share);
        let mut missing = Full::Share;
        let taking = async {
            // A caller that waits for its own share holds nothing that other callers wait for.
            let of_caller = self.share_of(caller).acquire_many_owned(units).await.ok()?;
            missing = Full::Pool;
            let of_all = self.free.clone().acquire_many_owned(units).await.ok()?;
            Some(Taken { of_caller, of_all })
        };
        let taken = tokio::time::timeout(timeout, taking).await.ok().flatten();
        taken.ok_or(missing)
    }

    /// Where a caller's memory for so many bytes can be taken later, and how much that is.
    pub fn places(&self, caller: &CallerId, bytes: u64) -> (Vec<Arc<Semaphore>>, u32) {
        (vec![self.share_of(caller), self.free.clone()], units_within(bytes, self.share))
    }

    /// How many units no caller holds.
    #[cfg(test)]
    pub fn free(&self) -> usize {
        self.free.available_permits()
    }

    fn share_of(&self, caller: &CallerId) -> Arc<Semaphore> {
        let mut shares = self.shares.lock();
        if let Some(share) = shares.by_caller.get(caller).and_then(Weak::upgrade) {
            return share;
        }
        if shares.by_caller.len() >= shares.tidy_at {
            shares.by_caller.retain(|_, share| share.strong_count() > 0);
            shares.tidy_at = REMEMBERED.max(2 * shares.by_caller.len());
        }
        let share = Arc::new(Semaphore::new(self.share as usize));
        shares.by_caller.insert(caller.clone(), Arc::downgrade(&share));
        share
    }
}

impl Taken {
    /// How many units these are.
    #[cfg(test)]
    pub fn units(&self) -> u32 {
        u32::try_from(self.of_all.num_permits()).unwrap_or(u32::MAX)
    }

    /// Gives back what is not needed for so many bytes.
    pub fn shrink(&mut self, bytes: u64) {
        for permit in [&mut self.of_caller, &mut self.of_all] {
            let surplus = permit.num_permits().saturating_sub(units(bytes) as usize);
            drop(permit.split(surplus));
        }
    }

    /// What gives the memory back once it is dropped.
    pub fn into_permits(self) -> [OwnedSemaphorePermit; 2] {
        [self.of_caller, self.of_all]
    }
}

/// Units of so many bytes.
pub fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

fn units_within(bytes: u64, most: u32) -> u32 {
    units(bytes).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(5);

    fn caller(name: &str) -> CallerId {
        CallerId::Key(name.to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_leaves_half_to_others() {
        let pool = Pool::new(100 * UNIT, 10 * UNIT);
        let held = pool.take(&caller("one"), 1_000 * UNIT, TIMEOUT).await.unwrap();
        assert_eq!(held.units(), 50);
        assert_eq!(pool.take(&caller("one"), 1, TIMEOUT).await.unwrap_err(), Full::Share);
        let mut other = pool.take(&caller("two"), 50 * UNIT, Duration::ZERO).await.unwrap();
        assert_eq!(pool.take(&caller("three"), 1, TIMEOUT).await.unwrap_err(), Full::Pool);
        other.shrink(20 * UNIT);
        let more = pool.take(&caller("two"), 30 * UNIT, Duration::ZERO).await.unwrap();
        assert_eq!((other.units(), more.units(), pool.free()), (20, 30, 0));
        drop((held, other, more));
        assert_eq!(pool.free(), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn what_one_needs_in_any_case_may_be_more_than_half() {
        let pool = Pool::new(100 * UNIT, 80 * UNIT);
        assert_eq!(pool.take(&caller("one"), 80 * UNIT, TIMEOUT).await.unwrap().units(), 80);
    }

    #[tokio::test]
    async fn callers_that_hold_nothing_are_forgotten() {
        let pool = Pool::new(100 * UNIT, UNIT);
        let held = pool.take(&caller("one"), UNIT, TIMEOUT).await.unwrap();
        for number in 0..1_000 {
            pool.take(&caller(&number.to_string()), UNIT, TIMEOUT).await.unwrap();
        }
        assert!(pool.shares.lock().by_caller.len() <= 2 * REMEMBERED);
        assert_eq!(pool.take(&caller("one"), 50 * UNIT, Duration::ZERO).await.unwrap_err(), Full::Share);
        drop(held);
    }
}
