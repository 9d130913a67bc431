//! How long a server is left alone after it failed: longer and longer, and for long if it crashes again and again. Decides
//! purely.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// The pause after a failure, which doubles with each that follows.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// A server that lived so long is well: its next failure is the first again.
const WELL_AFTER: Duration = Duration::from_secs(60);
/// So many crashes within [`WINDOW`] disable a server.
pub(super) const MOST_CRASHES: usize = 5;
/// The time in which crashes are counted.
pub(super) const WINDOW: Duration = Duration::from_secs(60);
/// How long a server stays disabled that crashed so often, unless the configuration is read again.
pub(super) const DISABLED_FOR: Duration = Duration::from_secs(600);

/// How a server, or a connection to it, failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// Nothing of it ran: it cannot be reached, or its program cannot be started.
    Unreached,
    /// It began, and did not list its tools.
    NotStarted,
    /// It ended by itself.
    Ended,
    /// It lived and answered nothing.
    Hung,
}

impl Failure {
    /// The failure as metrics name it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Unreached => "unreached",
            Self::NotStarted => "not_started",
            Self::Ended => "ended",
            Self::Hung => "hung",
        }
    }

    /// Whether starting it again and again would use up the machine.
    fn is_crash(self) -> bool {
        match self {
            Self::Unreached => false,
            Self::NotStarted | Self::Ended | Self::Hung => true,
        }
    }
}

/// How long a server is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rest {
    /// How long; nothing after the first death of a server that was well.
    pub(super) pause: Duration,
    /// Whether it crashed too often.
    pub(super) is_disabled: bool,
}

/// What counts of the failures of a server.
#[derive(Debug, Default)]
pub(super) struct Restarts {
    failures: u32,
    crashes: VecDeque<Instant>,
}

impl Restarts {
    /// How long the server is left alone that failed so after it had lived so long.
    pub(super) fn after(&mut self, failure: Failure, lived: Duration, now: Instant) -> Rest {
        if lived >= WELL_AFTER && matches!(failure, Failure::Ended | Failure::Hung) {
            self.failures = 0;
        }
        if failure.is_crash() {
            self.crashes.push_back(now);
            self.crashes.retain(|crash| now.duration_since(*crash) < WINDOW);
        }
        if self.crashes.len() >= MOST_CRASHES {
            *self = Self::default();
            return Rest { pause: DISABLED_FOR, is_disabled: true };
        }
        // A server that was there is started again at once: a call that comes meanwhile finds it.
        let was_there = matches!(failure, Failure::Ended | Failure::Hung);
        let pause = pause_after(if was_there { self.failures } else { self.failures.saturating_add(1) });
        self.failures = self.failures.saturating_add(1);
        Rest { pause, is_disabled: false }
    }
}

fn pause_after(failures: u32) -> Duration {
    match failures {
        0 => Duration::ZERO,
        more => FIRST_PAUSE.saturating_mul(1 << (more - 1).min(10)).min(LONGEST_PAUSE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOT_LONG: Duration = Duration::from_secs(1);

    /// The pauses after failures that follow each other at once, in milliseconds.
    fn pauses(failures: &[(Failure, Duration)]) -> Vec<u128> {
        let (mut restarts, mut now) = (Restarts::default(), Instant::now());
        let pauses = failures.iter().map(|(failure, lived)| {
            now += *lived;
            let rest = restarts.after(*failure, *lived, now);
            now += rest.pause;
            rest.pause.as_millis()
        });
        pauses.collect()
    }

    #[test]
    fn pauses_double_up_to_a_minute_and_the_first_death_has_none() {
        let unreached = pauses(&[(Failure::Unreached, Duration::ZERO); 12]);
        assert_eq!((&unreached[..3], unreached[11]), (&[500, 1_000, 2_000][..], 60_000));
        assert_eq!(pauses(&[(Failure::Ended, NOT_LONG); 3]), [0, 500, 1_000]);
        assert_eq!(pauses(&[(Failure::Ended, NOT_LONG), (Failure::Hung, WELL_AFTER)]), [0, 0], "it was well meanwhile");
    }

    #[test]
    fn five_crashes_within_a_minute_disable_a_server_and_then_it_is_tried_anew() {
        let mut restarts = Restarts::default();
        let disabled = |restarts: &mut Restarts, failure, at| restarts.after(failure, NOT_LONG, at).is_disabled;
        let begun = Instant::now();
        let seconds = |seconds| begun + Duration::from_secs(seconds);
        let crashes = [Failure::Ended, Failure::Hung, Failure::NotStarted, Failure::Ended];
        for (n, crash) in crashes.into_iter().enumerate() {
            assert!(!disabled(&mut restarts, crash, seconds(n as u64)));
        }
        assert!(!disabled(&mut restarts, Failure::Unreached, seconds(10)), "nothing ran");
        assert!(!disabled(&mut restarts, Failure::Ended, seconds(60)), "the first was a minute ago");
        let rest = restarts.after(Failure::Ended, NOT_LONG, seconds(60));
        assert_eq!(rest, Rest { pause: DISABLED_FOR, is_disabled: true });
        assert!(!disabled(&mut restarts, Failure::Ended, seconds(61)));
    }
}
