//! A budget that has no room for a model call, and what that means.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::types::usage::Micros;

/// When to try again where only live runs are in the way: most of what they have set aside comes back soon.
const LIVE_RUNS_RETRY_S: u64 = 5;

/// Whose budget it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BudgetOwner {
    /// The run's own.
    Run,
    /// That of all runs of the session.
    Session,
    /// That of a run and of all runs below it.
    Tree,
    /// That of all runs with the key.
    Key,
}

impl BudgetOwner {
    /// Its name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Session => "session",
            Self::Tree => "tree",
            Self::Key => "key",
        }
    }
}

impl fmt::Display for BudgetOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which budget is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BudgetKind {
    /// Tokens; amounts are tokens.
    Tokens,
    /// Money; amounts are micro-dollars.
    Cost,
}

impl BudgetKind {
    /// Its name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::Cost => "cost",
        }
    }
}

/// A budget that has no room for a model call. Amounts are tokens or micro-dollars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortfall {
    /// Whose it is.
    pub owner: BudgetOwner,
    /// What it counts.
    pub kind: BudgetKind,
    /// The whole budget.
    pub limit: u64,
    /// What is used, or set aside for calls under way.
    pub taken: u64,
    /// The part of `taken` that is set aside for calls of other runs.
    pub set_aside: u64,
    /// What the call needs at least.
    pub needed: u64,
    /// In how many seconds the budget begins anew.
    pub renews_in_s: Option<u64>,
}

impl Shortfall {
    /// What is neither used nor set aside.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.limit.saturating_sub(self.taken)
    }

    /// What is used.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.taken.saturating_sub(self.set_aside)
    }

    /// Whether nothing but what is set aside for others is in the way, most of which comes back soon, if it has not come
    /// back already.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        self.limit.saturating_sub(self.used()) >= self.needed
    }

    /// In how many seconds there is room, because the budget begins anew.
    #[must_use]
    pub fn room_in_s(&self) -> Option<u64> {
        self.renews_in_s.filter(|_| self.needed <= self.limit)
    }

    /// In how many seconds to try again, if waiting helps.
    #[must_use]
    pub fn retry_after_s(&self) -> Option<u64> {
        if self.may_pass() { Some(LIVE_RUNS_RETRY_S) } else { self.room_in_s() }
    }

    /// How much a model call lacks.
    #[must_use]
    pub fn missing(&self) -> u64 {
        self.needed.saturating_sub(self.left())
    }

    /// Which budget it is.
    #[must_use]
    pub fn budget(&self) -> String {
        let kind = match self.kind {
            BudgetKind::Tokens => "token",
            BudgetKind::Cost => "cost",
        };
        format!("{kind} budget of the {}", self.owner)
    }

    /// What is used of the budget, set aside, needed and missing, and when the budget begins anew.
    #[must_use]
    pub fn state(&self) -> String {
        let (used, limit) = (self.amount(self.used()), self.amount(self.limit));
        let unit = if self.kind == BudgetKind::Tokens { " tokens" } else { "" };
        let also = |amount, what| if amount > 0 { format!(", {} {what}", self.amount(amount)) } else { String::new() };
        let set_aside = also(self.set_aside, "set aside by live runs");
        let (needed, missing) = (also(self.needed, "needed"), also(self.missing(), "missing"));
        let renewal = self.room_in_s().map(|seconds| format!("; it begins anew in {seconds} s")).unwrap_or_default();
        format!("{used} of {limit}{unit} used{set_aside}{needed}{missing}{renewal}")
    }

    fn amount(&self, amount: u64) -> String {
        match self.kind {
            BudgetKind::Tokens => amount.to_string(),
            BudgetKind::Cost => format!("${}", Micros(amount).as_usd()),
        }
    }
}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (budget, state) = (self.budget(), self.state());
        if self.used() >= self.limit {
            write!(f, "the {budget} is used up: {state}")
        } else {
            write!(f, "the {budget} has no room for this request: {state}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortfall_says_whose_budget_it_is_and_how_much_is_missing() {
        let short = Shortfall {
            owner: BudgetOwner::Key,
            kind: BudgetKind::Tokens,
            limit: 900,
            taken: 845,
            set_aside: 300,
            needed: 256,
            renews_in_s: None,
        };
        let said = "the token budget of the key has no room for this request: 545 of 900 tokens used, 300 set aside by \
                    live runs, 256 needed, 201 missing";
        assert_eq!((short.to_string().as_str(), short.may_pass()), (said, true));
        let full = Shortfall { taken: 900, set_aside: 0, ..short };
        assert_eq!(
            full.to_string(),
            "the token budget of the key is used up: 900 of 900 tokens used, 256 needed, 256 missing"
        );
        assert!(!full.may_pass());
        assert!(
            !Shortfall { needed: 356, ..short }.may_pass(),
            "545 of 900 are used: there will never be room for 356"
        );
        let daily = Shortfall {
            owner: BudgetOwner::Session,
            kind: BudgetKind::Cost,
            limit: 500_000,
            taken: 400_000,
            set_aside: 0,
            needed: 250_000,
            renews_in_s: Some(60),
        };
        let said = "the cost budget of the session has no room for this request: $0.4 of $0.5 used, $0.25 needed, $0.15 missing; it \
                    begins anew in 60 s";
        assert_eq!((daily.to_string().as_str(), daily.may_pass()), (said, false));
        assert_eq!(Shortfall { needed: 600_000, ..daily }.room_in_s(), None, "it would not fit then either");
    }
}
