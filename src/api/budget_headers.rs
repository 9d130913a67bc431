//! What is left of the budgets of a run's key and session, as headers of responses about the run.
//!
//! The names of tokens are those of OpenAI; those of costs are made like them. Of several budgets of a kind the one with
//! the least left is told.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::agent::limits::shared::BudgetLeft;
use crate::api::wire::agent::budget::Amount;
use crate::types::shortfall::BudgetKind;

/// A kind of budget, and the headers that say of it how much there is, how much is left and when it begins anew.
const HEADERS: [(BudgetKind, [&str; 3]); 2] = [
    (BudgetKind::Tokens, ["x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"]),
    (BudgetKind::Cost, ["x-ratelimit-limit-cost", "x-ratelimit-remaining-cost", "x-ratelimit-reset-cost"]),
];
/// Names the budgets of which four fifths are used.
const WARNING: HeaderName = HeaderName::from_static("x-loopgate-budget-warning");

/// Says in a response's headers what is left of these budgets.
pub fn write_budgets(budgets: &[BudgetLeft], headers: &mut HeaderMap) {
    for (kind, [limit, remaining, reset]) in HEADERS {
        let of_kind = budgets.iter().filter(|budget| budget.kind == kind);
        let Some(least) = of_kind.min_by_key(|budget| budget.remaining) else { continue };
        insert(headers, limit, Amount::of(kind, least.limit).to_string());
        insert(headers, remaining, Amount::of(kind, least.remaining).to_string());
        if let Some(seconds) = least.renews_in_s {
            insert(headers, reset, format!("{seconds}s"));
        }
    }
    let warned = budgets.iter().filter(|budget| budget.is_mostly_used);
    let warned: Vec<_> = warned.map(|budget| format!("{} {}", budget.owner, budget.kind.as_str())).collect();
    if !warned.is_empty()
        && let Ok(value) = HeaderValue::try_from(warned.join(", "))
    {
        headers.insert(WARNING, value);
    }
}

fn insert(headers: &mut HeaderMap, name: &'static str, value: String) {
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(HeaderName::from_static(name), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::BudgetOwner;

    fn written(budgets: &[BudgetLeft]) -> Vec<(String, String)> {
        let mut headers = HeaderMap::new();
        write_budgets(budgets, &mut headers);
        let text = |value: &HeaderValue| value.to_str().unwrap().to_owned();
        let mut all: Vec<_> = headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        all.sort();
        all
    }

    #[test]
    fn of_each_kind_the_budget_with_the_least_left_is_told() {
        let of = |owner, kind, limit, remaining, renews_in_s| {
            let is_mostly_used = remaining * 5 <= limit;
            BudgetLeft { owner, kind, limit, remaining, renews_in_s, is_mostly_used }
        };
        let budgets = [
            of(BudgetOwner::Key, BudgetKind::Tokens, 100_000, 900, Some(7_200)),
            of(BudgetOwner::Session, BudgetKind::Tokens, 1_000, 950, None),
            of(BudgetOwner::Session, BudgetKind::Cost, 2_500_000, 1_250_000, None),
        ];
        let expected = [
            ("x-loopgate-budget-warning", "key tokens"),
            ("x-ratelimit-limit-cost", "2.5"),
            ("x-ratelimit-limit-tokens", "100000"),
            ("x-ratelimit-remaining-cost", "1.25"),
            ("x-ratelimit-remaining-tokens", "900"),
            ("x-ratelimit-reset-tokens", "7200s"),
        ];
        assert_eq!(written(&budgets), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(written(&[]), []);
    }
}
