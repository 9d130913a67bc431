//! Schedules: requests that the server makes itself, at certain times.

use serde::{Deserialize, Serialize};

use crate::types::{RunId, ScheduleId, SessionId};

/// Most firings that a schedule remembers.
pub const MOST_FIRINGS: usize = 20;

/// A schedule, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// Its name in paths.
    pub id: ScheduleId,
    /// What its owner says of it.
    pub settings: ScheduleSettings,
    /// Grows with every change of its settings.
    pub version: u64,
    /// The name of the key that changed it last, whose runs it begins; `None` for a server without keys.
    pub key_name: Option<String>,
    /// When it was made, Unix milliseconds.
    pub created_ms: u64,
    /// When its settings were changed, Unix milliseconds.
    pub updated_ms: u64,
    /// When it fires next, Unix milliseconds; `None` if it is off.
    pub next_ms: Option<u64>,
    /// Names the entry of that firing in the index of all schedules, which no other has.
    pub entry: u64,
    /// Its last firings, the newest last.
    pub firings: Vec<Firing>,
}

/// What the owner of a schedule says of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleSettings {
    /// When it fires: a cron expression of five fields.
    pub cron: String,
    /// By which clock, a name of the IANA database.
    pub time_zone: String,
    /// The body of the request, as JSON.
    pub request: String,
    /// What becomes of a firing whose time passed while no server could do it.
    pub on_missed: OnMissed,
    /// What becomes of a firing while the run of an earlier one is live.
    pub on_overlap: OnOverlap,
    /// Whether it fires.
    pub enabled: bool,
}

/// What becomes of a firing whose time passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnMissed {
    /// It happens late; of several that were missed, one happens.
    #[default]
    Once,
    /// It does not happen.
    Skip,
}

/// What becomes of a firing while the run of an earlier one is live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnOverlap {
    /// It does not happen.
    #[default]
    Skip,
    /// It happens: several runs of the schedule may be live.
    Allow,
}

/// That the time of a schedule came, or a caller asked for its run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Firing {
    /// The time that came, Unix milliseconds; `None` if a caller asked for it.
    pub due_ms: Option<u64>,
    /// When it was acted on, Unix milliseconds.
    pub at_ms: u64,
    /// What became of it.
    pub result: FiringResult,
}

/// What became of a firing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FiringResult {
    /// A run began.
    Started {
        /// The run.
        run: RunId,
        /// Its session.
        session: Option<SessionId>,
    },
    /// It was skipped, as the schedule says.
    Skipped(SkipReason),
    /// The request was refused.
    Refused(String),
}

/// Why a firing was skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// Its time passed while no server could act on it.
    Missed,
    /// The run of an earlier firing was live.
    Overlap,
}

impl FiringResult {
    /// In one word, for metrics and callers.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Started { .. } => "started",
            Self::Skipped(_) => "skipped",
            Self::Refused(_) => "refused",
        }
    }
}

impl SkipReason {
    /// In one sentence, for people.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missed => "its time passed while no server could act on it",
            Self::Overlap => "the run of an earlier firing was live",
        }
    }
}

impl Schedule {
    /// The run that it began last, and the run's session.
    #[must_use]
    pub fn last_run(&self) -> Option<(&RunId, Option<&SessionId>)> {
        self.firings.iter().rev().find_map(|firing| match &firing.result {
            FiringResult::Started { run, session } => Some((run, session.as_ref())),
            FiringResult::Skipped(_) | FiringResult::Refused(_) => None,
        })
    }

    /// Remembers a firing. The run that began last stays, however many firings were skipped since: it may be why they were.
    pub fn remember(&mut self, firing: Firing) {
        self.firings.push(firing);
        if self.firings.len() > MOST_FIRINGS {
            let began = |firing: &Firing| matches!(firing.result, FiringResult::Started { .. });
            let is_last_run = self.firings.iter().rposition(began) == Some(0);
            self.firings.remove(usize::from(is_last_run));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_run_that_began_last_is_known_however_many_firings_were_skipped_since() {
        let settings = ScheduleSettings {
            cron: "* * * * *".to_owned(),
            time_zone: "UTC".to_owned(),
            request: "{}".to_owned(),
            on_missed: OnMissed::Once,
            on_overlap: OnOverlap::Skip,
            enabled: true,
        };
        let mut schedule = Schedule {
            id: ScheduleId::parse("report").unwrap(),
            settings,
            version: 1,
            key_name: None,
            created_ms: 0,
            updated_ms: 0,
            next_ms: None,
            entry: 0,
            firings: Vec::new(),
        };
        let runs = [RunId::mint(), RunId::mint()];
        for run in &runs {
            let result = FiringResult::Started { run: run.clone(), session: None };
            schedule.remember(Firing { due_ms: Some(0), at_ms: 0, result });
            for due_ms in 0..3 * MOST_FIRINGS as u64 {
                let result = FiringResult::Skipped(SkipReason::Overlap);
                schedule.remember(Firing { due_ms: Some(due_ms), at_ms: due_ms, result });
                assert_eq!(schedule.last_run(), Some((run, None)));
                assert!(schedule.firings.len() <= MOST_FIRINGS);
                assert_eq!(schedule.firings.last().and_then(|firing| firing.due_ms), Some(due_ms));
            }
        }
        assert_eq!(schedule.firings.len(), MOST_FIRINGS);
    }
}
