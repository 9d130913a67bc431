//! How many bytes of request bodies are in memory at the same time.
//!
//! The first bytes of every body come from a part of the memory that large bodies cannot use up, so small requests
//! are taken while large ones wait. A large body gets room for all of it or none, so that two half-read ones never
//! wait for each other. A body that waits is not read, and takes no memory.
//!
//! What is made of a large body, such as its messages and what the store is given of them, takes several times its
//! length, if only for a moment. So of the large ones that have arrived only a few are worked on at the same time.
//!
//! A request that waits, such as for a budget, may wait for minutes. It is counted apart, in a small part of the memory,
//! and is not worked on meanwhile; what does not fit there does not wait.

use std::sync::Arc;
use std::time::Duration;

use axum::RequestExt;
use axum::extract::Request;
use http::header;
use http_body_util::{BodyExt, LengthLimitError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::agent::RequestMemory;
use crate::api::error::ApiError;
use crate::api::wire::error::ErrorCode;

/// What counts as the first bytes of a body. Not a setting: nearly all requests are shorter.
const FIRST: u64 = 64 << 10;
/// What the first bytes take at most while they are added piece by piece.
const FIRST_CAPACITY: u64 = 2 * FIRST;
/// Of the memory for bodies, large ones of so much in all are worked on at the same time: one in so many parts; or one
/// body, if it has more. Not a setting: more at once would not be done sooner.
const WORK_PART: u64 = 4;
/// Of the memory for bodies, requests that wait take one in so many parts. Not a setting: a refused one can be repeated.
const WAITING_PART: u64 = 8;
/// What a request that waits takes at least, beside its body.
const WAITING_LEAST: u64 = 16 << 10;
/// How long a body may wait for room. Not a setting: a client that hears of it soon can try another replica.
const ROOM_TIMEOUT: Duration = Duration::from_secs(5);
/// What is counted: semaphores count up to `u32`, which is too little for bytes.
const UNIT: u64 = 1 << 10;

/// The memory that all bodies share.
#[derive(Debug)]
pub struct Bodies {
    first: Pool,
    rest: Pool,
    /// Large bodies that are worked on.
    work: Pool,
    /// Requests that wait.
    waiting: Pool,
    /// Longest body.
    max_body: u64,
}

#[derive(Debug)]
struct Pool {
    free: Arc<Semaphore>,
    units: u32,
}

/// Room for one body, free again once it is dropped.
#[derive(Debug, Default)]
pub struct Room {
    first: Option<OwnedSemaphorePermit>,
    rest: Option<OwnedSemaphorePermit>,
    work: Option<OwnedSemaphorePermit>,
    /// Where the body is counted once its request waits, and with how much.
    waiting: Option<(Arc<Semaphore>, u32)>,
}

/// Without a bound.
impl Default for Bodies {
    fn default() -> Self {
        Self::new(u64::MAX, u64::MAX)
    }
}

/// Reads a body, as far as it may be long, as soon as there is room for it.
pub(super) async fn read(request: Request) -> Result<(Vec<u8>, Room), ApiError> {
    let bodies = request.extensions().get::<Arc<Bodies>>().cloned().unwrap_or_default();
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let mut room = bodies.first(length).await?;
    let mut body = request.with_limited_body().into_body();
    let mut read = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| unreadable(&error))?.into_data() else { continue };
        if (read.len() + data.len()) as u64 > FIRST
            && let Err(refusal) = bodies.rest(&mut room, length).await
        {
            drop((room, read, data));
            // A client that is still sending when its connection is closed may never see the answer.
            while let Some(Ok(_)) = body.frame().await {}
            return Err(refusal);
        }
        if room.rest.is_some() && read.capacity() as u64 <= FIRST_CAPACITY {
            // There is room for all of it. Grown piece by piece, it would take up to three times its length meanwhile.
            let length = length.unwrap_or_default().min(bodies.max_body);
            read.reserve_exact(usize::try_from(length).unwrap_or_default().saturating_sub(read.len()));
        }
        read.extend_from_slice(&data);
    }
    // What is added piece by piece may take twice its length.
    read.shrink_to_fit();
    room.shrink(read.len() as u64);
    bodies.work(&mut room, read.len() as u64).await?;
    room.waiting = Some(bodies.waiting(read.len() as u64));
    Ok((read, room))
}

fn unreadable(error: &axum::Error) -> ApiError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.is::<LengthLimitError>() {
            return ApiError::new(ErrorCode::PayloadTooLarge, "the body is too large");
        }
        cause = error.source();
    }
    ApiError::new(ErrorCode::InvalidJson, "the body could not be read")
}

impl Bodies {
    /// Memory for `bytes` of bodies of up to `max_body` bytes; room for one of them at least.
    #[must_use]
    pub fn new(bytes: u64, max_body: u64) -> Self {
        let first = (bytes / 4).max(FIRST);
        let waiting = bytes / WAITING_PART;
        let rest = Pool::new(bytes.saturating_sub(first).saturating_sub(waiting).max(max_body));
        let (work, waiting) = (Pool::new(bytes / WORK_PART), Pool::new(waiting));
        Self { first: Pool::new(first), rest, work, waiting, max_body }
    }

    /// Room for the first bytes of a body that has `length` of them; `None` if that is not known.
    async fn first(&self, length: Option<u64>) -> Result<Room, ApiError> {
        let first = self.first.take(length.unwrap_or(FIRST).min(FIRST)).await?;
        Ok(Room { first: Some(first), ..Room::default() })
    }

    /// Room for what follows the first bytes.
    async fn rest(&self, room: &mut Room, length: Option<u64>) -> Result<(), ApiError> {
        if room.rest.is_none() {
            room.rest = Some(self.rest.take(length.unwrap_or(self.max_body).saturating_sub(FIRST)).await?);
        }
        Ok(())
    }

    /// Waits until a body of `length` bytes may be worked on.
    async fn work(&self, room: &mut Room, length: u64) -> Result<(), ApiError> {
        if length > FIRST {
            room.work = Some(self.work.take(length).await?);
        }
        Ok(())
    }

    /// Where a body of `length` bytes is counted once its request waits, and with how much.
    fn waiting(&self, length: u64) -> (Arc<Semaphore>, u32) {
        (self.waiting.free.clone(), units(length.max(WAITING_LEAST)).min(self.waiting.units))
    }
}

impl Room {
    /// The same for as long as the request is there that was made of the body.
    pub fn into_memory(self) -> RequestMemory {
        let body = [self.first, self.rest].into_iter().flatten().collect();
        self.waiting.map_or_else(RequestMemory::default, |waiting| RequestMemory::new(body, self.work, waiting))
    }

    /// Gives back what a body of `length` bytes does not need.
    fn shrink(&mut self, length: u64) {
        for (permit, length) in [(&mut self.first, length.min(FIRST)), (&mut self.rest, length.saturating_sub(FIRST))] {
            if let Some(permit) = permit {
                let surplus = permit.num_permits().saturating_sub(units(length) as usize);
                drop(permit.split(surplus));
            }
        }
    }
}

impl Pool {
    fn new(bytes: u64) -> Self {
        let units = units(bytes);
        Self { free: Arc::new(Semaphore::new(units as usize)), units }
    }

    async fn take(&self, bytes: u64) -> Result<OwnedSemaphorePermit, ApiError> {
        let units = units(bytes).min(self.units);
        let waiting = tokio::time::timeout(ROOM_TIMEOUT, self.free.clone().acquire_many_owned(units));
        let taken = waiting.await.ok().and_then(Result::ok);
        taken.ok_or_else(|| {
            let message = "the server is reading as many large requests as it has memory for; try again in a moment";
            ApiError::new(ErrorCode::Overloaded, message).retry_after(1)
        })
    }
}

fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[tokio::test(start_paused = true)]
    async fn large_bodies_wait_and_small_ones_do_not() {
        let bodies = Bodies::new(16 * MIB, 10 * MIB);
        let mut large = bodies.first(Some(10 * MIB)).await.unwrap();
        bodies.rest(&mut large, Some(10 * MIB)).await.unwrap();
        let mut other = bodies.first(Some(10 * MIB)).await.unwrap();
        let begun = tokio::time::Instant::now();
        let refused = bodies.rest(&mut other, None).await.unwrap_err();
        assert_eq!((refused.object().code, begun.elapsed().as_secs()), ("overloaded", ROOM_TIMEOUT.as_secs()));
        let small = bodies.first(Some(2_000)).await.unwrap();
        assert_eq!(begun.elapsed().as_secs(), ROOM_TIMEOUT.as_secs(), "it did not wait");
        drop((large, small));
        bodies.rest(&mut other, None).await.unwrap();
        other.shrink(FIRST + 1);
        bodies.rest(&mut bodies.first(None).await.unwrap(), Some(10 * MIB)).await.unwrap();
        drop(other);
        assert_eq!(bodies.rest.free.available_permits(), bodies.rest.units as usize);
        assert_eq!(bodies.first.free.available_permits(), bodies.first.units as usize);
    }

    #[tokio::test(start_paused = true)]
    async fn large_bodies_that_have_arrived_are_worked_on_a_few_at_a_time() {
        let bodies = Bodies::new(64 * MIB, 10 * MIB);
        let work = async |length| {
            let mut room = Room::default();
            bodies.work(&mut room, length).await.map(|()| room)
        };
        let (one, two) = (work(10 * MIB).await.unwrap(), work(6 * MIB).await.unwrap());
        let begun = tokio::time::Instant::now();
        assert_eq!(work(10 * MIB).await.unwrap_err().object().code, "overloaded");
        assert_eq!(begun.elapsed().as_secs(), ROOM_TIMEOUT.as_secs());
        work(FIRST).await.unwrap();
        drop((one, two));
        work(100 * MIB).await.unwrap();
        assert_eq!(begun.elapsed().as_secs(), ROOM_TIMEOUT.as_secs(), "they did not wait");
    }

    #[tokio::test]
    async fn requests_that_wait_leave_room_for_others() {
        let bodies = Bodies::new(64 * MIB, 10 * MIB);
        let wait = |length| {
            let (pool, units) = bodies.waiting(length);
            pool.try_acquire_many_owned(units)
        };
        let one = wait(100 * MIB).expect("the largest one may wait");
        assert!(wait(1).is_err());
        drop(one);
        let small: Vec<_> = std::iter::from_fn(|| wait(1).ok()).collect();
        assert_eq!(small.len() as u64, 8 * MIB / WAITING_LEAST);
        let all = [&bodies.first, &bodies.rest, &bodies.waiting].map(|pool| u64::from(pool.units) * UNIT);
        assert_eq!(all.iter().sum::<u64>(), 64 * MIB);
    }

    #[tokio::test(start_paused = true)]
    async fn the_largest_body_always_fits() {
        let bodies = Bodies::new(1, 10 * MIB);
        let mut room = bodies.first(None).await.unwrap();
        bodies.rest(&mut room, Some(10 * MIB)).await.unwrap();
    }
}
