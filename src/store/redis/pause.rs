//! Pauses between attempts, spread so that many replicas do not knock at once.

use std::time::Duration;

/// Pauses that grow from attempt to attempt.
#[derive(Debug)]
pub(super) struct Pauses {
    next: Duration,
    longest: Duration,
}

impl Pauses {
    /// From `first`, each twice as long as the one before, up to `longest`.
    pub(super) const fn new(first: Duration, longest: Duration) -> Self {
        Self { next: first, longest }
    }

    /// How long to pause now.
    pub(super) fn next(&mut self) -> Duration {
        let pause = self.next;
        self.next = (2 * pause).min(self.longest);
        spread(pause)
    }
}

/// Half of `pause` to all of it.
pub(super) fn spread(pause: Duration) -> Duration {
    // Without randomness the pause is merely the same for all.
    let part = getrandom::u32().unwrap_or(u32::MAX);
    pause / 2 + pause.mul_f64(0.5 * f64::from(part) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_end_and_vary() {
        let mut pauses = Pauses::new(Duration::from_millis(10), Duration::from_millis(35));
        let lengths: Vec<_> = (0..4).map(|_| pauses.next().as_millis()).collect();
        for (length, most) in lengths.iter().zip([10, 20, 35, 35]) {
            assert!((most / 2..=most).contains(length), "{lengths:?}");
        }
    }
}
