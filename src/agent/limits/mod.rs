//! What callers may take together, on all replicas: budgets and slots of a key, requests a minute.

pub mod charge;
pub mod quota;
pub mod rate;
pub(super) mod slots;

use std::sync::Arc;

use crate::agent::follow::active::Active;
use crate::agent::ledger::Ledger;
use crate::agent::limits::rate::Rates;

/// What callers may take together, counted in the store.
#[derive(Debug)]
pub struct Limits {
    ledger: Ledger,
    rates: Rates,
    /// The runs that this process drives: their slots are theirs.
    active: Arc<Active>,
}

impl Limits {
    /// Limits that this ledger's store counts.
    pub(super) fn new(ledger: Ledger, active: Arc<Active>) -> Self {
        Self { rates: Rates::new(ledger.store().clone()), ledger, active }
    }
}
