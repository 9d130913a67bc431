//! The tenants whose runs this process counts.

use std::sync::Arc;

use crate::agent::ledger::keys;
use crate::agent::usage::count::Tally;
use crate::agent::usage::rows::RowWriter;
use crate::types::Tenant;
use crate::types::maps::HashMap;

/// Tenants whose rows are kept at hand.
const TENANTS: usize = 1_024;
/// Rows of all tenants that are kept at hand, about 20 MB.
const ALL_ROWS: usize = 65_536;

/// The tenants whose runs this process counts. Beyond the bounds, those are forgotten that were counted longest ago: their
/// rows stay in the store, and are read when they are needed again.
#[derive(Debug, Default)]
pub(super) struct Tallies {
    tenants: HashMap<Tenant, (Arc<Tally>, u64)>,
    /// How often a tenant was asked for.
    asked: u64,
    /// Whether a tenant was ever forgotten.
    has_forgotten: bool,
}

impl Tallies {
    /// What this process has counted for a tenant.
    pub(super) fn of(&mut self, tenant: &Tenant, writer: &RowWriter) -> Arc<Tally> {
        self.asked += 1;
        if self.tenants.len() >= TENANTS && !self.tenants.contains_key(tenant) {
            self.forget_one(tenant);
        }
        while writer.rows_at_hand() >= ALL_ROWS && self.forget_one(tenant) {}
        let has_all = !self.has_forgotten;
        let fresh = || (Arc::new(Tally::new(keys::tenant_partition(tenant), writer, has_all)), 0);
        let (tally, at) = self.tenants.entry(tenant.clone()).or_insert_with(fresh);
        *at = self.asked;
        tally.clone()
    }

    /// Forgets the tenant that was asked for longest ago, but not `but` or one without a run to count; whether there is
    /// one.
    fn forget_one(&mut self, but: &Tenant) -> bool {
        let idle = self.tenants.iter().filter(|(tenant, (tally, _))| *tenant != but && Arc::strong_count(tally) == 1);
        let Some(oldest) = idle.min_by_key(|(_, (_, at))| *at).map(|(tenant, _)| tenant.clone()) else { return false };
        self.tenants.remove(&oldest);
        self.has_forgotten = true;
        true
    }
}
