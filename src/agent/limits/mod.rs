//! The limits that all replicas share: budgets and slots of a key, runs of an agent and of a user, and requests a minute.

pub mod charge;
pub(super) mod holds;
pub mod left;
pub(super) mod places;
pub mod quota;
pub mod rate;
pub mod shared;
pub(super) mod shares;
mod slot;
pub(super) mod slots;
pub mod tree;

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::agent::follow::active::Active;
use crate::agent::ledger::Ledger;
use crate::agent::limits::rate::{RateKey, Rates};
use crate::store::RateDecision;
use crate::types::Tenant;

/// The shared limits, counted in the store.
#[derive(Debug)]
pub struct Limits {
    ledger: Ledger,
    rates: Rates,
    /// The runs that this process drives: their slots are theirs.
    active: Arc<Active>,
    /// The tenants whose runs were counted by agent or by user since their slots were looked at and there were none.
    sharing: Mutex<HashSet<Tenant>>,
}

impl Limits {
    /// Limits that this ledger's store counts.
    pub(super) fn new(ledger: Ledger, active: Arc<Active>) -> Self {
        Self { rates: Rates::new(ledger.store().clone()), ledger, active, sharing: Mutex::default() }
    }

    /// Counts a request of a caller who may send so many a minute, all at once or one by one. `None` if the store does
    /// not answer in time: then this process's own count decides. Reads must not fail because of a limit, and a request
    /// that changes something fails by itself if the store does not answer.
    pub async fn count_request(&self, rate_key: RateKey<'_>, per_minute: NonZeroU32) -> Option<RateDecision> {
        self.rates.count(rate_key, per_minute).await
    }
}
