//! `[agents.NAME.limits]`: the bounds of an agent's runs.

use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

use super::quantity::seconds;
use super::quota::ShareConfig;
use super::reader::Section;
use super::value::{FromToml, Misread, whole};
use crate::types::Micros;

/// The most model calls that an agent may give its runs by number.
pub const MAX_ITERATIONS_CEILING: u32 = 200;

/// The most model calls that any run makes: those of one whose other limits bound them. A run has ids for 65,535 calls of tools, and
/// a turn makes 64 of them at most.
const MOST_ITERATIONS: u32 = 1_000;

/// How that is written.
const UNLIMITED: &str = "unlimited";

/// The ceiling of an agent's runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitsConfig {
    /// Most model calls.
    pub max_iterations: u32,
    /// Most calls of server-side tools; `None` for any number.
    pub max_tool_calls: Option<u32>,
    /// From start to end of a run.
    pub timeout: Duration,
    /// For each tool call.
    pub tool_timeout: Duration,
    /// Most input and output tokens of a run.
    pub token_budget: Option<u64>,
    /// Most money of a run.
    pub cost_budget: Option<Micros>,
    /// What they share.
    pub shared: ShareConfig,
}

impl LimitsConfig {
    pub(super) fn read(section: &mut Section<'_>, parent: Option<&Self>) -> Self {
        let Iterations(max_iterations) = section.key(
            "max_iterations",
            "Most model calls in a run. `\"unlimited\"` leaves it to the run's other limits, of which one must be set beside it: `timeout`, \
             `token_budget` or `cost_budget_usd`. 1,000 is the most that any run makes.",
            Iterations(parent.map_or(20, |parent| parent.max_iterations)),
        );
        let max_tool_calls = section.optional(
            "max_tool_calls",
            "Most calls of server-side tools in a run. Those beyond it are not made, and `on_limit` says what follows. If absent, \
             there may be any number.",
        );
        let timeout = section.key(
            "timeout",
            "Most time for a run, not counting the time that it waits for its client. After a crash, at most 15 s of \
             downtime count.",
            parent.map_or(seconds(300), |parent| parent.timeout),
        );
        let tool_timeout = section.key(
            "tool_timeout",
            "Most time for one tool call.",
            parent.map_or(seconds(120), |parent| parent.tool_timeout),
        );
        let token_budget =
            section.optional("token_budget", "Most input and output tokens of a run, over all of its model calls.");
        let cost_budget = section.optional("cost_budget_usd", "Most that a run may cost.");
        let inherited = parent.and_then(|parent| parent.cost_budget).map(Budget);
        let cost_budget = section.or_inherited("cost_budget_usd", cost_budget, inherited);
        let limits = Self {
            max_iterations,
            max_tool_calls: section.or_inherited(
                "max_tool_calls",
                max_tool_calls,
                parent.and_then(|parent| parent.max_tool_calls),
            ),
            timeout,
            tool_timeout,
            token_budget: section.or_inherited(
                "token_budget",
                token_budget,
                parent.and_then(|parent| parent.token_budget),
            ),
            cost_budget: cost_budget.map(|Budget(money)| money),
            shared: ShareConfig::of_agent(section, parent.map(|parent| &parent.shared)),
        };
        limits.refuse_unbounded(section);
        limits
    }

    /// Refuses to leave the number of model calls to other limits where nothing says how far these go.
    fn refuse_unbounded(&self, section: &Section<'_>) {
        let is_unlimited = self.max_iterations == MOST_ITERATIONS && section.is_written("max_iterations");
        let is_bounded = self.token_budget.is_some() || self.cost_budget.is_some() || section.is_written("timeout");
        if is_unlimited && !is_bounded {
            let what =
                "`\"unlimited\"` needs another limit beside it: set `timeout`, `token_budget` or `cost_budget_usd`";
            section.refuse("max_iterations", what);
        }
    }
}

/// How many model calls a run may make.
struct Iterations(u32);

impl FromToml for Iterations {
    fn form() -> String {
        format!("integer up to {MAX_ITERATIONS_CEILING}, or {UNLIMITED:?}")
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        match value.get_ref() {
            DeValue::String(word) if word == UNLIMITED => Ok(Self(MOST_ITERATIONS)),
            DeValue::Integer(_) => whole(value, MAX_ITERATIONS_CEILING).map(Self),
            DeValue::String(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_)
            | DeValue::Table(_) => {
                let what = format!("must be an integer from 1 to {MAX_ITERATIONS_CEILING}, or {UNLIMITED:?}");
                Err(Misread::new(value, what))
            }
        }
    }

    fn show(&self) -> String {
        if self.0 == MOST_ITERATIONS { format!("{UNLIMITED:?}") } else { self.0.show() }
    }
}

/// Money above zero: a budget of nothing would refuse every run.
struct Budget(Micros);

impl FromToml for Budget {
    fn form() -> String {
        Micros::form()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        match Micros::read(value)? {
            Micros(0) => Err(Misread::new(value, "must be above 0; leave it out for no limit")),
            money => Ok(Self(money)),
        }
    }

    fn show(&self) -> String {
        self.0.show()
    }
}
