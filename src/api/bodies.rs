//! How many bytes of request bodies are in memory at the same time.
//!
//! The first bytes of every body come from a part of the memory that large bodies cannot use up, so small requests
//! are taken while large ones wait. Room for all of them is taken once one byte has arrived, and what a large body has
//! beyond them gets room for all of it or none, so that two half-read bodies never wait for each other. A body that waits
//! is not read further.
//!
//! Of each part one caller gets half at most. So a caller that sends many bodies and ends none of them delays its own
//! requests alone.
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
use crate::api::auth::CallerId;
use crate::api::error::ApiError;
use crate::api::pool::{Full, Pool, Taken, units};
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

/// The memory that all bodies share.
#[derive(Debug)]
pub struct Bodies {
    first: Pool,
    rest: Pool,
    /// Large bodies that are worked on, all callers together: how many a caller has here at the same time is bounded by
    /// the room that they have.
    work: Arc<Semaphore>,
    /// What there is of it.
    work_units: u32,
    /// Requests that wait.
    waiting: Pool,
    /// Longest body.
    max_body: u64,
}

/// Room for one body, free again once it is dropped.
#[derive(Debug, Default)]
pub struct Room {
    first: Option<Taken>,
    rest: Option<Taken>,
    work: Option<OwnedSemaphorePermit>,
    /// Where the body is counted once its request waits, and with how much.
    waiting: Option<(Vec<Arc<Semaphore>>, u32)>,
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
    let caller = request.extensions().get::<CallerId>().cloned().unwrap_or_default();
    let mut room = Room::default();
    let mut body = request.with_limited_body().into_body();
    let mut read = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| unreadable(&error))?.into_data() else { continue };
        let arrived = (read.len() + data.len()) as u64;
        if arrived == 0 {
            continue;
        }
        if let Err(refusal) = bodies.make_room(&mut room, &caller, arrived, length).await {
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
    room.waiting = Some(bodies.waiting.places(&caller, (read.len() as u64).max(WAITING_LEAST)));
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
        let rest = Pool::new(bytes.saturating_sub(first).saturating_sub(waiting).max(max_body), max_body);
        let (first, waiting) = (Pool::new(first, FIRST), Pool::new(waiting, 0));
        let work_units = units(bytes / WORK_PART);
        let work = Arc::new(Semaphore::new(work_units as usize));
        Self { first, rest, work, work_units, waiting, max_body }
    }

    /// Makes room for a body of which so many bytes have arrived; `length` is how many there will be, as far as that is
    /// known.
    async fn make_room(
        &self,
        room: &mut Room,
        caller: &CallerId,
        arrived: u64,
        length: Option<u64>,
    ) -> Result<(), ApiError> {
        if room.first.is_none() {
            let of_first = length.unwrap_or(FIRST).min(FIRST);
            room.first = Some(self.first.take(caller, of_first, ROOM_TIMEOUT).await.map_err(no_room)?);
        }
        if arrived > FIRST && room.rest.is_none() {
            let rest = length.unwrap_or(self.max_body).saturating_sub(FIRST);
            room.rest = Some(self.rest.take(caller, rest, ROOM_TIMEOUT).await.map_err(no_room)?);
        }
        Ok(())
    }

    /// Waits until a body of `length` bytes may be worked on.
    async fn work(&self, room: &mut Room, length: u64) -> Result<(), ApiError> {
        if length > FIRST {
            let units = units(length).min(self.work_units);
            let waiting = tokio::time::timeout(ROOM_TIMEOUT, self.work.clone().acquire_many_owned(units));
            room.work = Some(waiting.await.ok().and_then(Result::ok).ok_or_else(|| no_room(Full::Pool))?);
        }
        Ok(())
    }
}

fn no_room(full: Full) -> ApiError {
    let message = match full {
        Full::Share => {
            "your key or address is sending as many large requests as it may at the same time; try again in a moment"
        }
        Full::Pool => "the server is reading as many large requests as it has memory for; try again in a moment",
    };
    ApiError::new(ErrorCode::Overloaded, message).retry_after(1)
}

impl Room {
    /// The same for as long as the request is there that was made of the body.
    pub fn into_memory(self) -> RequestMemory {
        let body = [self.first, self.rest].into_iter().flatten().flat_map(Taken::into_permits).collect();
        self.waiting.map_or_else(RequestMemory::default, |waiting| RequestMemory::new(body, self.work, waiting))
    }

    /// Gives back what a body of `length` bytes does not need.
    fn shrink(&mut self, length: u64) {
        for (taken, length) in [(&mut self.first, length.min(FIRST)), (&mut self.rest, length.saturating_sub(FIRST))] {
            if let Some(taken) = taken {
                taken.shrink(length);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, Bytes};
    use tokio_stream::StreamExt;

    use super::*;
    use crate::api::pool::UNIT;

    const MIB: u64 = 1 << 20;

    fn one() -> CallerId {
        CallerId::Key("one".to_owned())
    }

    /// Room for a body of this caller, of which so much has arrived.
    async fn room(bodies: &Bodies, caller: &CallerId, arrived: u64, length: Option<u64>) -> Result<Room, ApiError> {
        let mut room = Room::default();
        bodies.make_room(&mut room, caller, arrived, length).await.map(|()| room)
    }

    fn free(bodies: &Bodies) -> [usize; 3] {
        [&bodies.first, &bodies.rest, &bodies.waiting].map(Pool::free)
    }

    #[tokio::test(start_paused = true)]
    async fn large_bodies_wait_and_small_ones_do_not() {
        let bodies = Bodies::new(16 * MIB, 10 * MIB);
        let before = free(&bodies);
        let large = room(&bodies, &one(), FIRST + 1, Some(10 * MIB)).await.unwrap();
        let mut other = room(&bodies, &one(), FIRST, Some(10 * MIB)).await.unwrap();
        let begun = tokio::time::Instant::now();
        let refused = bodies.make_room(&mut other, &one(), FIRST + 1, None).await.unwrap_err();
        assert_eq!((refused.object().code, begun.elapsed().as_secs()), ("overloaded", ROOM_TIMEOUT.as_secs()));
        let small = room(&bodies, &one(), 2_000, None).await.unwrap();
        assert_eq!(begun.elapsed().as_secs(), ROOM_TIMEOUT.as_secs(), "it did not wait");
        drop((large, small));
        bodies.make_room(&mut other, &one(), FIRST + 1, None).await.unwrap();
        other.shrink(FIRST + 1);
        room(&bodies, &one(), FIRST + 1, Some(10 * MIB)).await.unwrap();
        drop(other);
        assert_eq!(free(&bodies), before);
    }

    #[tokio::test(start_paused = true)]
    async fn room_for_the_first_bytes_is_taken_at_once() {
        let bodies = Bodies::new(16 * MIB, 10 * MIB);
        for (length, expected) in [(Some(1), 1), (Some(1_025), 2), (Some(FIRST), 64), (Some(MIB), 64), (None, 64)] {
            let room = room(&bodies, &one(), 1, length).await.unwrap();
            assert_eq!(room.first.as_ref().unwrap().units(), expected, "{length:?}");
            assert!(room.rest.is_none());
        }
    }

    /// A request of a caller with a body that comes in two halves, the second one `later`.
    fn in_halves(bodies: &Arc<Bodies>, length: usize, later: Duration) -> Request {
        let half = move || Ok::<_, std::io::Error>(Bytes::from(vec![b' '; length / 2]));
        let second = futures_util::stream::once(async move {
            tokio::time::sleep(later).await;
            half()
        });
        let body = Body::from_stream(tokio_stream::once(half()).chain(second));
        let request = Request::post("/").header(header::CONTENT_LENGTH, length);
        request.extension(bodies.clone()).extension(one()).body(body).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn half_sent_bodies_of_one_caller_take_turns() {
        let bodies = Arc::new(Bodies::new(16 * MIB, 10 * MIB));
        let before = free(&bodies);
        // Their first halves alone are more than the caller's share.
        let requests = (0..200).map(|_| in_halves(&bodies, 60 << 10, Duration::from_millis(100)));
        let answers = requests.map(async |request| read(request).await.map(drop));
        let refused = futures_util::future::join_all(answers).await.into_iter().filter(Result::is_err).count();
        assert_eq!((refused, free(&bodies)), (0, before));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_of_which_nothing_has_arrived_takes_no_room() {
        let bodies = Arc::new(Bodies::new(16 * MIB, 10 * MIB));
        let before = free(&bodies);
        let empty = tokio_stream::once(Ok::<_, std::io::Error>(Bytes::new())).chain(tokio_stream::pending());
        let request = Request::post("/").header(header::CONTENT_LENGTH, 60 << 10).extension(bodies.clone());
        let mut reading = std::pin::pin!(read(request.body(Body::from_stream(empty)).unwrap()));
        assert!(tokio::time::timeout(Duration::from_secs(1), &mut reading).await.is_err());
        assert_eq!(free(&bodies), before);
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
        let wait = |caller: &CallerId, length: u64| {
            let (places, units) = bodies.waiting.places(caller, length.max(WAITING_LEAST));
            places.into_iter().map(|place| place.try_acquire_many_owned(units)).collect::<Result<Vec<_>, _>>()
        };
        let largest = wait(&one(), 100 * MIB).expect("the largest one may wait");
        assert!(wait(&one(), 1).is_err());
        drop(largest);
        let two = CallerId::Key("two".to_owned());
        let small: Vec<_> = std::iter::from_fn(|| wait(&one(), 1).ok()).collect();
        let others: Vec<_> = std::iter::from_fn(|| wait(&two, 1).ok()).collect();
        assert_eq!([small.len() as u64, others.len() as u64], [4 * MIB / WAITING_LEAST; 2]);
        drop((small, others));
        assert_eq!(free(&bodies).iter().sum::<usize>() as u64 * UNIT, 64 * MIB);
    }

    #[tokio::test(start_paused = true)]
    async fn the_largest_body_always_fits() {
        let bodies = Bodies::new(1, 10 * MIB);
        room(&bodies, &one(), FIRST + 1, Some(10 * MIB)).await.unwrap();
    }
}
