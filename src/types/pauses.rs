//! Pauses between attempts, spread at random, so that tasks that failed together do not retry together.

use std::time::Duration;

/// Pauses that grow from attempt to attempt.
#[derive(Debug, Clone)]
pub struct Pauses {
    next: Duration,
    longest: Duration,
}

impl Pauses {
    /// From `first`, each twice as long as the one before, up to `longest`.
    #[must_use]
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { next: first, longest }
    }

    /// The next delay: the current step, jittered to 50–100 %.
    pub fn draw(&mut self) -> Duration {
        let pause = self.next;
        self.next = (2 * pause).min(self.longest);
        spread(pause)
    }
}

/// Half of `pause` to all of it.
#[must_use]
pub fn spread(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + random() / 2.0)
}

/// From 0 to 1. Where the system has no randomness to give it is always 1.
#[must_use]
pub fn random() -> f64 {
    f64::from(getrandom::u32().unwrap_or(u32::MAX)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_end_and_vary() {
        let mut pauses = Pauses::new(Duration::from_millis(10), Duration::from_millis(35));
        let lengths: Vec<_> = (0..4).map(|_| pauses.draw().as_millis()).collect();
        for (length, most) in lengths.iter().zip([10, 20, 35, 35]) {
            assert!((most / 2..=most).contains(length), "{lengths:?}");
        }
    }

    #[test]
    fn randomness_spreads() {
        let drawn: Vec<f64> = (0..100).map(|_| random()).collect();
        assert!(drawn.iter().all(|drawn| (0.0..=1.0).contains(drawn)));
        assert!(drawn.iter().any(|drawn| *drawn < 0.4) && drawn.iter().any(|drawn| *drawn > 0.6));
    }
}
