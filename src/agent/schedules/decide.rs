//! What becomes of a firing.

use crate::types::schedule::{OnMissed, OnOverlap, ScheduleSettings, SkipReason};

/// A firing that is later than this was missed: a server was there only then.
pub const LATE_MS: u64 = 60_000;

/// Whether a firing happens, and if not, why.
pub fn decide(settings: &ScheduleSettings, due_ms: u64, now_ms: u64, is_live: bool) -> Result<(), SkipReason> {
    if settings.on_missed == OnMissed::Skip && now_ms.saturating_sub(due_ms) > LATE_MS {
        return Err(SkipReason::Missed);
    }
    if settings.on_overlap == OnOverlap::Skip && is_live {
        return Err(SkipReason::Overlap);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_firing_happens_unless_the_schedule_says_otherwise() {
        let settings = |on_missed, on_overlap| ScheduleSettings {
            cron: "* * * * *".to_owned(),
            time_zone: "UTC".to_owned(),
            request: "{}".to_owned(),
            on_missed,
            on_overlap,
            enabled: true,
        };
        for (on_missed, on_overlap, late_ms, is_live, decided) in [
            (OnMissed::Once, OnOverlap::Skip, 0, false, Ok(())),
            (OnMissed::Once, OnOverlap::Skip, LATE_MS * 60, false, Ok(())),
            (OnMissed::Skip, OnOverlap::Skip, LATE_MS, false, Ok(())),
            (OnMissed::Skip, OnOverlap::Allow, LATE_MS + 1, false, Err(SkipReason::Missed)),
            (OnMissed::Once, OnOverlap::Skip, 0, true, Err(SkipReason::Overlap)),
            (OnMissed::Once, OnOverlap::Allow, 0, true, Ok(())),
        ] {
            assert_eq!(decide(&settings(on_missed, on_overlap), 1_000, 1_000 + late_ms, is_live), decided);
        }
    }
}
