//! `[keys.NAME] token_budget`, `cost_budget_usd` and `max_concurrent_runs`: limits that the runs of a key share; and those that the runs
//! of an agent share, or of each user of a key.

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

/// What the runs of an agent, or of one user of a key, share.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ShareConfig {
    /// Most runs at once; `None` without end.
    pub max_concurrent_runs: Option<u32>,
    /// Most requests a minute that begin runs; `None` without end.
    pub requests_per_minute: Option<u32>,
}

impl ShareConfig {
    /// Reads what the runs of an agent share, as far as it does not inherit that.
    pub(super) fn of_agent(limits: &mut Section<'_>, parent: Option<&Self>) -> Self {
        let parent = parent.copied().unwrap_or_default();
        let most = limits.optional(
            "max_concurrent_runs",
            "Most runs of the agent at the same time, over all replicas together, for each tenant. A run that waits for its client \
             does not count. Other agents that inherit it have as many each.",
        );
        let rate = limits.optional(
            "requests_per_minute",
            "Most requests a minute that begin a run of the agent, over all replicas together, for each tenant.",
        );
        Self {
            max_concurrent_runs: limits.or_inherited("max_concurrent_runs", most, parent.max_concurrent_runs),
            requests_per_minute: limits.or_inherited("requests_per_minute", rate, parent.requests_per_minute),
        }
    }

    /// Reads what the runs of each user of a key share.
    pub(super) fn of_user(user: &mut Section<'_>) -> Self {
        Self {
            max_concurrent_runs: user.optional(
                "max_concurrent_runs",
                "Most runs with this key at the same time whose requests name the same `user`, over all replicas together. Those that \
                 name none share a limit too.",
            ),
            requests_per_minute: user.optional(
                "requests_per_minute",
                "Most requests a minute with this key that begin a run and name the same `user`, over all replicas together.",
            ),
        }
    }
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
