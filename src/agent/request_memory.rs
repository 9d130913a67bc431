//! The memory that is counted for one request until its run has begun.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::agent::run_memory::MemoryShare;

/// What is counted for a request's data, for as long as they exist.
///
/// A request that waits for others is counted in a pool of its own, so that any number of such requests leave room for
/// those that do not wait.
#[derive(Debug, Default)]
pub struct RequestMemory {
    share: Option<Mutex<Share>>,
    /// What its run will take, from the run's preparation until the run is launched.
    run: Mutex<Option<MemoryShare>>,
}

#[derive(Debug)]
struct Share {
    body: Vec<OwnedSemaphorePermit>,
    work: Option<OwnedSemaphorePermit>,
    /// Where the request is counted once it waits, and with how much; `None` if it is.
    waiting: Option<(Vec<Arc<Semaphore>>, u32)>,
}

impl RequestMemory {
    /// The permits of a body, the permit to work on a large one, and where and with how much the request is counted
    /// once it waits.
    #[must_use]
    pub fn new(
        body: Vec<OwnedSemaphorePermit>,
        work: Option<OwnedSemaphorePermit>,
        waiting: (Vec<Arc<Semaphore>>, u32),
    ) -> Self {
        let share = Some(Mutex::new(Share { body, work, waiting: Some(waiting) }));
        Self { share, run: Mutex::default() }
    }

    /// Counts what the request's run will take.
    pub(super) fn hold_run(&self, share: MemoryShare) {
        *self.run.lock() = Some(share);
    }

    /// What the request's run will take, if that is counted.
    pub(super) fn take_run(&self) -> Option<MemoryShare> {
        self.run.lock().take()
    }

    /// Lets the request wait for this, while others are worked on; `None` at once if too many requests wait already.
    pub(super) async fn wait<T>(&self, event: impl Future<Output = T>) -> Option<T> {
        drop(self.take_run());
        let Some(share) = &self.share else { return Some(event.await) };
        let work = {
            let mut share = share.lock();
            if !share.may_wait() {
                return None;
            }
            share.leave_work()
        };
        let output = event.await;
        if let Some((pool, units)) = work {
            // It is never closed.
            let work = pool.acquire_many_owned(units).await.ok();
            share.lock().work = work;
        }
        Some(output)
    }
}

impl Share {
    /// Counts the request among those that wait; `false` if too many do.
    fn may_wait(&mut self) -> bool {
        if let Some((places, units)) = &self.waiting {
            let taking = places.iter().map(|place| place.clone().try_acquire_many_owned(*units));
            let Ok(waiting) = taking.collect() else { return false };
            (self.body, self.waiting) = (waiting, None);
        }
        true
    }

    /// Lets others be worked on; returns where the request was, and with how much.
    fn leave_work(&mut self) -> Option<(Arc<Semaphore>, u32)> {
        let work = self.work.take()?;
        Some((work.semaphore().clone(), u32::try_from(work.num_permits()).unwrap_or(u32::MAX)))
    }
}
