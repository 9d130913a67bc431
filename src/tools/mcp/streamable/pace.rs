//! How soon a stream of events is opened again that the server ended.
//!
//! The SDK opens such a stream again at once, or as soon as the server wants. A server that ends each stream as it is opened would
//! be asked without end, so streams that brought nothing are opened again after longer and longer pauses.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// So many streams in a row may bring nothing before the next one waits.
const FREE: u32 = 2;
/// The first pause, which doubles with each stream that brings nothing.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Most streams that are opened in a second, also where each brought something.
const MOST_IN_A_SECOND: u32 = 20;

/// The pace at which one connection opens streams.
#[derive(Debug, Default)]
pub(super) struct Pace(Mutex<Opened>);

#[derive(Debug, Default)]
struct Opened {
    /// How many in a row brought nothing.
    fruitless: u32,
    /// The second that is counted, and how many were opened in it.
    since: Option<Instant>,
    count: u32,
}

impl Pace {
    /// How long to wait before the next stream is asked for.
    pub(super) fn before_next(&self, now: Instant) -> Duration {
        let mut opened = self.0.lock();
        let pause = match opened.fruitless.checked_sub(FREE) {
            None => Duration::ZERO,
            Some(more) => FIRST_PAUSE.saturating_mul(1 << more.min(10)).min(LONGEST_PAUSE),
        };
        let second = Duration::from_secs(1);
        match opened.since.filter(|since| now.duration_since(*since) < second) {
            None => (opened.since, opened.count) = (Some(now), 1),
            Some(_) => opened.count += 1,
        }
        if opened.count > MOST_IN_A_SECOND { pause.max(second) } else { pause }
    }

    /// A stream was opened. It counts as one that brings nothing until it does. One that the server refuses, or a server
    /// that cannot be reached, does not count: the SDK tries again at a pace of its own, and soon gives the server up.
    pub(super) fn opened(&self) {
        let mut opened = self.0.lock();
        opened.fruitless = opened.fruitless.saturating_add(1);
    }

    /// A stream brought something.
    pub(super) fn brought(&self) {
        self.0.lock().fruitless = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_that_bring_nothing_are_opened_more_and_more_seldom() {
        let (pace, now) = (Pace::default(), Instant::now());
        let pauses = (0..12).map(|_| {
            let pause = pace.before_next(now).as_millis();
            pace.opened();
            pause
        });
        let pauses: Vec<u128> = pauses.collect();
        assert_eq!((&pauses[..5], pauses[11]), (&[0, 0, 500, 1_000, 2_000][..], 60_000));
        pace.brought();
        assert_eq!(pace.before_next(now + Duration::from_secs(1)), Duration::ZERO);
    }

    #[test]
    fn a_server_that_cannot_be_reached_is_asked_at_the_pace_of_the_sdk() {
        let (pace, now) = (Pace::default(), Instant::now());
        assert!((0..10).all(|_| pace.before_next(now).is_zero()));
    }

    #[test]
    fn streams_that_bring_something_each_are_not_opened_without_end_either() {
        let (pace, now) = (Pace::default(), Instant::now());
        let waits = (0..100).filter(|_| {
            pace.brought();
            !pace.before_next(now).is_zero()
        });
        assert_eq!(waits.count(), 80);
    }
}
