//! `[keys.NAME] token_budget`, `cost_budget_usd` and `max_concurrent_runs`: limits that the runs of a key share.

use super::reader::Section;
use super::value::{FromToml, Word};
use crate::types::Micros;

/// What the runs of a key may take together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QuotaConfig {
    /// Most input and output tokens together; `None` without end.
    pub token_budget: Option<Allotment<u64>>,
    /// Most money; `None` without end.
    pub cost_budget: Option<Allotment<Micros>>,
    /// Most runs at once; `None` without end.
    pub max_concurrent_runs: Option<u32>,
}

/// An amount for each period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allotment<T> {
    /// The amount.
    pub limit: T,
    /// How long it lasts; `None` for ever.
    pub per: Option<Period>,
}

/// A period of UTC's calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Period {
    /// From midnight to midnight.
    Day,
    /// From the first of a month to the next.
    Month,
}

impl Word for Period {
    const WORDS: &'static [(&'static str, Self)] = &[("day", Self::Day), ("month", Self::Month)];
}

impl QuotaConfig {
    pub(super) fn read(key: &mut Section<'_>) -> Self {
        Self {
            token_budget: key.optional_section("token_budget", |budget| {
                allotment(budget, "Most input and output tokens of all runs with this key together.")
            }),
            cost_budget: key.optional_section("cost_budget_usd", |budget| {
                allotment(budget, "Most that all runs with this key may cost together.")
            }),
            max_concurrent_runs: key.optional(
                "max_concurrent_runs",
                "Most runs with this key at the same time, over all replicas together. A run that waits for its client does \
                 not count.",
            ),
        }
    }
}

fn allotment<T: FromToml>(budget: &mut Section<'_>, help: &'static str) -> Option<Allotment<T>> {
    let limit = budget.required("limit", help);
    let per =
        budget.optional("per", "How often the count starts again from zero, by the calendar of UTC; if absent, never.");
    limit.map(|limit| Allotment { limit, per })
}
