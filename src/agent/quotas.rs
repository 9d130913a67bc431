//! The limits of each key, as configured.

use std::collections::HashMap;

use crate::agent::ledger::keys;
use crate::config::{KeyConfig, QuotaConfig};
use crate::store::Partition;
use crate::types::Tenant;

/// What the runs of each key may take together, by the key's name.
#[derive(Debug, Clone, Default)]
pub struct Quotas(HashMap<String, (Tenant, QuotaConfig)>);

impl Quotas {
    /// Those of these keys.
    #[must_use]
    pub fn new(keys: &[KeyConfig]) -> Self {
        let limited = keys.iter().filter(|key| key.quota != QuotaConfig::default());
        Self(limited.map(|key| (key.name.clone(), (key.tenant.clone(), key.quota))).collect())
    }

    /// What the runs of this key may take; `None` for one without quotas.
    pub(super) fn of(&self, key_name: &str) -> Option<QuotaConfig> {
        self.0.get(key_name).map(|(_, quota)| *quota)
    }

    /// The partitions of keys that may have only so many runs at once, and their tenants.
    pub(super) fn with_slots(&self) -> impl Iterator<Item = (Partition, &Tenant)> {
        let limited = self.0.iter().filter(|(_, (_, quota))| quota.max_concurrent_runs.is_some());
        limited.map(|(name, (tenant, _))| (keys::budget_partition(tenant, name), tenant))
    }
}
