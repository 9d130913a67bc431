//! The rows of usage: what they are counted by, and their sums. Pure.

use std::fmt;
use std::ops::AddAssign;
use std::str::FromStr;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::agent::ledger::head::Head;
use crate::types::json::is_default;
use crate::types::{Micros, Usage};

/// Stands for the values beyond those that are told apart.
pub const OTHER: &str = "(other)";

/// A day of UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Day(Date);

impl Day {
    /// The day in which a moment lies, in Unix milliseconds.
    pub fn of(at_ms: u64) -> Self {
        let at = i64::try_from(at_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
        Self(at.unwrap_or(Timestamp::MAX).to_zoned(TimeZone::UTC).date())
    }

    /// The day so many days before.
    #[must_use]
    pub fn before(self, days: u32) -> Self {
        Self(self.0.saturating_sub(jiff::Span::new().days(days)))
    }

    /// How many days lie from this one to the other, both counted; 0 if the other is earlier.
    pub fn days_to(self, other: Self) -> u32 {
        let days = other.0.duration_since(self.0).as_hours() / 24;
        u32::try_from(days + 1).unwrap_or(0)
    }
}

/// `2026-11-23`.
impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Day {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let date: Date = text.parse().map_err(|_| ())?;
        // The parser takes more ways to write a date than one.
        if text.len() == 10 && date.to_string() == text { Ok(Self(date)) } else { Err(()) }
    }
}

/// What a run is counted by, beside its tenant and day.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Dimensions {
    /// The name of the key that began the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The agent.
    pub agent: String,
    /// The upstream and its model.
    pub model: String,
    /// The end user, as the request that began the run named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

impl Dimensions {
    /// What the run with this head is counted by.
    pub fn of_run(head: &Head) -> Self {
        Self {
            key: head.key_name.clone(),
            agent: head.agent.clone(),
            model: head.called_model.clone(),
            user: head.user.clone(),
        }
    }

    /// The same of another model.
    #[must_use]
    pub fn of_model(&self, model: &str) -> Self {
        Self { model: model.to_owned(), ..self.clone() }
    }

    /// The same, whose user is not told apart from others.
    #[must_use]
    pub fn of_other_user(&self) -> Self {
        Self { user: Some(OTHER.to_owned()), ..self.clone() }
    }

    /// All of a key and an agent that is told apart no further.
    #[must_use]
    pub fn of_other_model(&self) -> Self {
        Self { model: OTHER.to_owned(), ..self.of_other_user() }
    }
}

/// Sums over runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Runs that ended or began to wait, each counted once.
    pub runs: u64,
    /// Input tokens, cached ones included.
    pub prompt_tokens: u64,
    /// Output tokens, reasoning included.
    pub completion_tokens: u64,
    /// The part of the input that the upstream had cached.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cached_tokens: u64,
    /// The part of the input that the upstream wrote to its cache.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cache_write_tokens: u64,
    /// The part of the output that was reasoning.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reasoning_tokens: u64,
    /// Their cost.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cost: Micros,
}

impl Totals {
    /// One run.
    pub fn of_run(usage: &Usage, cost: Micros) -> Self {
        Self {
            runs: 1,
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: usage.completion_tokens,
            cached_tokens: usage.cached_tokens,
            cache_write_tokens: usage.cache_write_tokens,
            reasoning_tokens: usage.reasoning_tokens,
            cost,
        }
    }

    /// Whether it is nothing.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// What is left of `self` without what is `counted` already.
    #[must_use]
    pub fn without(&self, counted: &Self) -> Self {
        Self {
            runs: self.runs.saturating_sub(counted.runs),
            prompt_tokens: self.prompt_tokens.saturating_sub(counted.prompt_tokens),
            completion_tokens: self.completion_tokens.saturating_sub(counted.completion_tokens),
            cached_tokens: self.cached_tokens.saturating_sub(counted.cached_tokens),
            cache_write_tokens: self.cache_write_tokens.saturating_sub(counted.cache_write_tokens),
            reasoning_tokens: self.reasoning_tokens.saturating_sub(counted.reasoning_tokens),
            cost: self.cost.saturating_sub(counted.cost),
        }
    }
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.runs = self.runs.saturating_add(other.runs);
        self.prompt_tokens = self.prompt_tokens.saturating_add(other.prompt_tokens);
        self.completion_tokens = self.completion_tokens.saturating_add(other.completion_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(other.cached_tokens);
        self.cache_write_tokens = self.cache_write_tokens.saturating_add(other.cache_write_tokens);
        self.reasoning_tokens = self.reasoning_tokens.saturating_add(other.reasoning_tokens);
        self.cost += other.cost;
    }
}

/// What is counted of a run, as it is stored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker {
    /// Of its own model.
    #[serde(flatten)]
    pub own: Totals,
    /// Of the models that it fell back to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub of_fallbacks: Vec<(String, Totals)>,
}

/// A row as it is stored: what one process counted on a day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredRow {
    /// What is counted by.
    #[serde(flatten)]
    pub dimensions: Dimensions,
    /// The sums.
    #[serde(flatten)]
    pub totals: Totals,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_written_in_one_way() {
        let day: Day = "2026-11-23".parse().unwrap();
        assert_eq!((day.to_string(), day.before(23).to_string()), ("2026-11-23".into(), "2026-10-31".into()));
        assert_eq!(Day::of(1_795_391_999_999).to_string(), "2026-11-22");
        assert_eq!(Day::of(1_795_392_000_000).to_string(), "2026-11-23");
        assert_eq!((day.before(2).days_to(day), day.days_to(day), day.days_to(day.before(1))), (3, 1, 0));
        for wrong in ["", "2026-11-31", "20261123", "2026-11-23T00:00", "2026-11-23T00:00:00Z", "-2026-11-3", "today"] {
            assert!(wrong.parse::<Day>().is_err(), "{wrong}");
        }
        assert_eq!(Day::of(u64::MAX).to_string(), "9999-12-30", "no clock makes it panic");
    }
}
