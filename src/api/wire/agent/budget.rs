//! Budgets, as runs and their steps show them.

use std::fmt;

use serde::Serialize;
use utoipa::ToSchema;

use crate::types::shortfall::BudgetKind;
use crate::types::{BudgetOwner, BudgetStatus, Micros, Outcome, Shortfall};

/// Where a run's budgets stand.
#[derive(Debug, Serialize, ToSchema)]
pub struct Budget {
    /// The limit of tokens; null without one.
    pub token_limit: Option<u64>,
    /// Input and output so far.
    pub tokens_used: u64,
    /// What is left; null without a limit.
    pub tokens_remaining: Option<u64>,
    /// The limit of cost, in US dollars; null without one.
    pub cost_limit_usd: Option<f64>,
    /// Cost so far.
    pub cost_used_usd: f64,
    /// What is left of it; null without a limit.
    pub cost_remaining_usd: Option<f64>,
    /// What model calls that were cut off may have taken beyond that. Only the budgets of the key are charged
    /// for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unconfirmed: Option<Unconfirmed>,
    /// The budget that has no room for another model call, if that is why the run stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shortfall: Option<ShortfallObject>,
}

/// What model calls that were cut off may have taken.
#[derive(Debug, Serialize, ToSchema)]
pub struct Unconfirmed {
    /// At most so many tokens.
    pub tokens: u64,
    /// At most that many US dollars.
    pub cost_usd: f64,
}

/// A budget that has no room for a model call. Amounts are tokens or US dollars.
#[derive(Debug, Serialize, ToSchema)]
pub struct ShortfallObject {
    /// Whose budget it is: `run`, `session` or `key`.
    #[schema(example = "key")]
    pub scope: &'static str,
    /// What it counts: `tokens` or `cost`.
    #[schema(example = "tokens")]
    pub kind: &'static str,
    /// The whole budget.
    #[schema(value_type = f64)]
    pub limit: Amount,
    /// What is used of it.
    #[schema(value_type = f64)]
    pub used: Amount,
    /// What live runs have set aside.
    #[schema(value_type = f64)]
    pub set_aside: Amount,
    /// How much the model call lacks.
    #[schema(value_type = f64)]
    pub missing: Amount,
    /// In how many seconds there may be room; null if waiting does not help.
    pub retry_after_s: Option<u64>,
}

/// An amount of what a budget counts.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Amount {
    /// Tokens.
    Tokens(u64),
    /// US dollars.
    Usd(f64),
}

/// As in JSON.
impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tokens(tokens) => tokens.fmt(f),
            Self::Usd(dollars) => dollars.fmt(f),
        }
    }
}

impl Amount {
    /// The amount as a budget of this kind counts it.
    pub fn of(kind: BudgetKind, amount: u64) -> Self {
        match kind {
            BudgetKind::Tokens => Self::Tokens(amount),
            BudgetKind::Cost => Self::Usd(Micros(amount).as_usd()),
        }
    }
}

impl Budget {
    /// Where the budgets of a run stand that ended or waits.
    pub fn at_the_end(outcome: &Outcome) -> Self {
        Self { shortfall: outcome.short.as_ref().map(ShortfallObject::from), ..Self::from(&outcome.budget) }
    }
}

impl From<&Shortfall> for ShortfallObject {
    fn from(short: &Shortfall) -> Self {
        let amount = |amount| Amount::of(short.kind, amount);
        Self {
            scope: match short.owner {
                BudgetOwner::Run => "run",
                BudgetOwner::Session => "session",
                BudgetOwner::Tree => "tree",
                BudgetOwner::Key => "key",
            },
            kind: short.kind.as_str(),
            limit: amount(short.limit),
            used: amount(short.used()),
            set_aside: amount(short.set_aside),
            missing: amount(short.missing()),
            retry_after_s: short.retry_after_s(),
        }
    }
}

impl From<&BudgetStatus> for Budget {
    fn from(status: &BudgetStatus) -> Self {
        let BudgetStatus { tokens, cost, used, unconfirmed } = *status;
        Self {
            token_limit: tokens,
            tokens_used: used.tokens,
            tokens_remaining: tokens.map(|limit| limit.saturating_sub(used.tokens)),
            cost_limit_usd: cost.map(Micros::as_usd),
            cost_used_usd: used.cost.as_usd(),
            cost_remaining_usd: cost.map(|limit| limit.saturating_sub(used.cost).as_usd()),
            unconfirmed: (!unconfirmed.is_nothing())
                .then(|| Unconfirmed { tokens: unconfirmed.tokens, cost_usd: unconfirmed.cost.as_usd() }),
            shortfall: None,
        }
    }
}
