//! How long a run has been under way, by the times of its records.
//!
//! A host's clock is only compared with itself: each driver of a run counts from its own first record on. The time
//! between the last record of one driver and the first record of the next one is the difference of their clocks, but
//! at least zero. It is at most the time that the interrupted call may have taken plus the time of a takeover, so
//! longer downtime does not count.

use crate::types::run::LEASE_TTL;

/// The time of a lease, plus the time in which another replica notices that it has expired, plus a margin.
const LONGEST_TAKEOVER_MS: u64 = LEASE_TTL.as_secs() * 1_000 + 5_000;

/// The time spent up to the last record.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Elapsed {
    ms: u64,
    /// The time of the last record, by the clock of the replica that wrote it.
    last_ms: u64,
}

impl Elapsed {
    /// What was spent when the last thing happened.
    pub(super) fn ms(self) -> u64 {
        self.ms
    }

    /// What will be spent at this time, if the one who wrote the last record asks.
    pub(super) fn until(self, at_ms: u64) -> u64 {
        self.ms.saturating_add(at_ms.saturating_sub(self.last_ms))
    }

    /// Something happened.
    pub(super) fn pass(&mut self, at_ms: u64) {
        *self = Self { ms: self.until(at_ms), last_ms: at_ms };
    }

    /// The run begins, or is resumed after a wait that does not count.
    pub(super) fn restart(&mut self, at_ms: u64) {
        self.last_ms = at_ms;
    }

    /// Another driver resumes the run. The interrupted call may have taken `silence_ms` since the last record.
    pub(super) fn taken_over(&mut self, at_ms: u64, silence_ms: u64) {
        let gap = at_ms.saturating_sub(self.last_ms).min(LONGEST_TAKEOVER_MS.saturating_add(silence_ms));
        *self = Self { ms: self.ms.saturating_add(gap), last_ms: at_ms };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_clock_elsewhere_costs_at_most_a_takeover() {
        let hour = 3_600_000;
        for (silence, resumed, gap) in
            [(0, 6_000, 4_000), (0, hour, 15_000), (0, 10, 0), (120_000, hour, 135_000), (120_000, 6_000, 4_000)]
        {
            let mut spent = Elapsed::default();
            spent.restart(1_000);
            spent.pass(2_000);
            spent.taken_over(resumed, silence);
            assert_eq!(spent.ms(), 1_000 + gap);
            spent.pass(resumed + 500);
            assert_eq!(spent.ms(), 1_500 + gap, "from then on the new clock counts");
        }
    }

    #[test]
    fn waiting_and_a_clock_that_steps_back_cost_no_time() {
        let mut spent = Elapsed::default();
        spent.restart(1_000);
        spent.pass(3_000);
        spent.restart(900_000);
        spent.pass(899_000);
        spent.pass(899_500);
        assert_eq!((spent.ms(), spent.until(900_000)), (2_500, 3_000));
    }
}
