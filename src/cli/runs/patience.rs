//! How long a run is followed over connections that break. Pure.

use std::time::Duration;

use tokio::time::Instant;

/// How long a server is looked for that was there before. Not a setting: a restart takes less, and the command can be given
/// again.
const MOST_ABSENT: Duration = Duration::from_secs(60);
/// Most streams in a row that end at once, without an event. A server that shuts down sends such ones until a balancer knows of
/// it, which with the pauses between them takes less; whatever sends more of them does not lead to the run.
const MOST_FRUITLESS: u32 = 32;
/// A stream on which something came after so long is one of a run in which nothing happens: a server says each 15 s that it is
/// there.
const LASTED: Duration = Duration::from_secs(10);
/// The first pause between two attempts; each is twice as long as the one before.
const PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// What came of a stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Came {
    /// Events that were not seen before.
    pub(super) progressed: bool,
    /// How long after its beginning the last bytes came.
    pub(super) heard: Duration,
}

/// Decides whether to try again, and when.
#[derive(Debug)]
pub(super) struct Patience {
    was_there: bool,
    absent_since: Instant,
    /// Streams in a row of which nothing came.
    fruitless: u32,
    /// None was made yet, or something came of the attempt before.
    fresh: bool,
    next_pause: Duration,
}

impl Patience {
    pub(super) fn new(now: Instant) -> Self {
        Self { was_there: false, absent_since: now, fruitless: 0, fresh: true, next_pause: PAUSE }
    }

    /// A stream began and ended early. Returns whether to try again.
    pub(super) fn stream_broke(&mut self, came: Came, now: Instant) -> bool {
        (self.was_there, self.absent_since) = (true, now);
        if came.progressed || came.heard >= LASTED {
            (self.fruitless, self.fresh, self.next_pause) = (0, true, PAUSE);
        } else {
            self.fruitless += 1;
        }
        self.fruitless < MOST_FRUITLESS
    }

    /// There was no stream, for a reason that may pass. Returns whether to try again.
    pub(super) fn outlasts_failure(&self, now: Instant) -> bool {
        self.was_there && now.duration_since(self.absent_since) < MOST_ABSENT
    }

    /// Whether the next attempt is the first one after something came.
    pub(super) fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// How long to wait before the next attempt.
    pub(super) fn pause(&mut self) -> Duration {
        let pause = self.next_pause;
        (self.fresh, self.next_pause) = (false, (pause * 2).min(LONGEST_PAUSE));
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Came = Came { progressed: false, heard: Duration::ZERO };
    const EVENTS: Came = Came { progressed: true, heard: Duration::ZERO };
    const QUIET: Came = Came { progressed: false, heard: Duration::from_secs(300) };

    #[test]
    fn a_server_that_a_quiet_stream_came_from_is_looked_for_for_a_minute() {
        let begun = Instant::now();
        let mut patience = Patience::new(begun);
        assert!(!patience.outlasts_failure(begun), "a server that was never there is not looked for");
        let broke = begun + Duration::from_secs(305);
        assert!(patience.stream_broke(QUIET, broke));
        assert!(patience.outlasts_failure(broke + Duration::from_secs(59)));
        assert!(!patience.outlasts_failure(broke + Duration::from_secs(60)));
    }

    #[test]
    fn streams_of_which_nothing_comes_are_not_asked_for_for_ever() {
        let now = Instant::now();
        let mut patience = Patience::new(now);
        let attempts = |patience: &mut Patience| {
            let mut pauses = Duration::ZERO;
            let attempts = 1
                + (0..1_000)
                    .take_while(|_| {
                        let again = patience.stream_broke(NOTHING, now);
                        pauses += if again { patience.pause() } else { Duration::ZERO };
                        again
                    })
                    .count();
            (attempts, pauses)
        };
        let (made, pauses) = attempts(&mut patience);
        assert_eq!(made, 32);
        assert!((50..70).contains(&pauses.as_secs()), "{pauses:?}");
        for fruitful in [EVENTS, QUIET] {
            assert!(patience.stream_broke(fruitful, now) && patience.is_fresh());
            assert_eq!(attempts(&mut patience).0, 32);
        }
    }
}
