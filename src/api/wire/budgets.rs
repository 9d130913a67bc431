//! Budgets that several runs share, as `/v1/budget` shows them.

use serde::Serialize;
use utoipa::ToSchema;

use crate::agent::limits::shared::BudgetState;
use crate::api::wire::agent::budget::Amount;
use crate::config::Period;

/// Where a budget stands that several runs share. Amounts are tokens or US dollars.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SharedBudget)]
pub struct BudgetStateObject {
    /// Whose budget it is: `key` or `session`.
    #[schema(example = "key")]
    pub scope: &'static str,
    /// What it counts: `tokens` or `cost`.
    #[schema(example = "tokens")]
    pub kind: &'static str,
    /// The whole budget.
    #[schema(value_type = f64)]
    pub limit: Amount,
    /// What runs used of it.
    #[schema(value_type = f64)]
    pub used: Amount,
    /// What live runs have reserved for their model calls under way; what they do not use of it comes back.
    #[schema(value_type = f64)]
    pub reserved: Amount,
    /// What is neither used nor reserved.
    #[schema(value_type = f64)]
    pub remaining: Amount,
    /// How long it lasts, in UTC: `day` or `month`; null for ever.
    pub period: Option<&'static str>,
    /// In how many seconds it begins anew; null for never.
    pub resets_in_s: Option<u64>,
}

impl From<&BudgetState> for BudgetStateObject {
    fn from(state: &BudgetState) -> Self {
        let amount = |amount| Amount::of(state.kind, amount);
        Self {
            scope: state.owner.as_str(),
            kind: state.kind.as_str(),
            limit: amount(state.limit),
            used: amount(state.used),
            reserved: amount(state.reserved),
            remaining: amount(state.remaining()),
            period: state.period.map(|period| match period {
                Period::Day => "day",
                Period::Month => "month",
            }),
            resets_in_s: state.renews_in_s,
        }
    }
}
