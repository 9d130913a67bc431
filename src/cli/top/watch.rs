//! What was seen of a replica in the last minute, and what follows from it. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use super::metrics::{Counted, Figures};

/// How far back errors count as recent.
const RECENT: Duration = Duration::from_mins(1);

/// Over which time a rate is taken. Steps are charged when they end, so that a shorter time shows jumps.
const RATE_OVER: Duration = Duration::from_secs(10);

/// What was seen of a replica, the newest last.
#[derive(Debug, Default)]
pub(super) struct Watch(VecDeque<(Duration, Figures)>);

/// How much is counted in a second.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Rates {
    pub(super) input: f64,
    pub(super) output: f64,
    pub(super) cost: f64,
}

impl Watch {
    /// Notes what was seen at a time, which is counted from any beginning.
    pub(super) fn saw(&mut self, at: Duration, figures: Figures) {
        let is_older =
            |last: &Figures| last.counted.all().iter().zip(figures.counted.all()).any(|(old, new)| *old > new);
        // Nothing that is counted becomes less: the process is another one.
        if self.newest().is_some_and(is_older) {
            self.0.clear();
        }
        self.0.push_back((at, figures));
        while self.0.front().is_some_and(|(then, _)| at.saturating_sub(*then) > RECENT) {
            self.0.pop_front();
        }
    }

    /// What was seen last.
    pub(super) fn newest(&self) -> Option<&Figures> {
        self.0.back().map(|(_, figures)| figures)
    }

    /// How much is counted in a second; `None` until it was looked at twice.
    pub(super) fn rates(&self) -> Option<Rates> {
        let (now, newest) = self.0.back()?;
        let (then, oldest) = self.0.iter().find(|(then, _)| now.saturating_sub(*then) <= RATE_OVER)?;
        let seconds = now.saturating_sub(*then).as_secs_f64();
        let added = newest.counted.combined(&oldest.counted, |new, old| (new - old) / seconds);
        (seconds > 0.0).then_some(Rates { input: added.input, output: added.output, cost: added.cost })
    }

    /// What was counted in the last minute, as far as it was seen.
    pub(super) fn recent(&self) -> Counted {
        match (self.0.back(), self.0.front()) {
            (Some((_, newest)), Some((_, oldest))) => newest.counted.combined(&oldest.counted, |new, old| new - old),
            (_, None) | (None, _) => Counted::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(output: f64, failed: f64) -> Figures {
        Figures { counted: Counted { output, failed, ..Counted::default() }, ..Figures::default() }
    }

    #[test]
    fn rates_are_of_seconds_and_errors_of_the_last_minute() {
        let mut watch = Watch::default();
        assert_eq!((watch.rates(), watch.recent()), (None, Counted::default()));
        for second in 0_u32..=90 {
            watch.saw(Duration::from_secs(second.into()), figures(f64::from(second.pow(2)), f64::from(second)));
        }
        let rate = watch.rates().unwrap().output;
        assert!((rate - (8_100.0 - 6_400.0) / 10.0).abs() < 1e-9, "{rate}");
        assert_eq!(watch.recent(), Counted { output: 8_100.0 - 900.0, failed: 60.0, ..Counted::default() });
    }

    #[test]
    fn a_replica_that_started_anew_is_counted_from_its_start() {
        let mut watch = Watch::default();
        watch.saw(Duration::from_secs(1), figures(1_000.0, 5.0));
        watch.saw(Duration::from_secs(2), figures(10.0, 0.0));
        assert_eq!((watch.rates(), watch.recent()), (None, Counted::default()));
        watch.saw(Duration::from_secs(3), figures(30.0, 1.0));
        assert_eq!(watch.rates(), Some(Rates { output: 20.0, ..Rates::default() }));
        assert_eq!(watch.recent(), Counted { output: 20.0, failed: 1.0, ..Counted::default() });
    }
}
