//! The limits of each key, as configured.

use std::collections::HashMap;

use crate::agent::ledger::keys;
use crate::config::{KeyConfig, QuotaConfig, ShareConfig};
use crate::store::Partition;
use crate::types::Tenant;

/// What the runs of each key may take together, by the key's name.
#[derive(Debug, Clone, Default)]
pub struct Quotas {
    of_keys: HashMap<String, (Tenant, QuotaConfig)>,
    /// What each user of a key may take, where that is not everything.
    per_user: HashMap<String, ShareConfig>,
}

impl Quotas {
    /// Those of these keys.
    #[must_use]
    pub fn new(keys: &[KeyConfig]) -> Self {
        let limited = keys.iter().filter(|key| key.quota != QuotaConfig::default());
        let of_keys = limited.map(|key| (key.name.clone(), (key.tenant.clone(), key.quota))).collect();
        let limited = keys.iter().filter(|key| key.per_user != ShareConfig::default());
        Self { of_keys, per_user: limited.map(|key| (key.name.clone(), key.per_user)).collect() }
    }

    /// What the runs of this key may take; `None` for one without quotas.
    pub(super) fn of(&self, key_name: &str) -> Option<QuotaConfig> {
        self.of_keys.get(key_name).map(|(_, quota)| *quota)
    }

    /// What the runs of each user of this key may take.
    pub(super) fn per_user(&self, key_name: Option<&str>) -> ShareConfig {
        key_name.and_then(|name| self.per_user.get(name)).copied().unwrap_or_default()
    }

    /// The partitions of keys that may have only so many runs at once, and their tenants.
    pub(super) fn with_slots(&self) -> impl Iterator<Item = (Partition, &Tenant)> {
        let limited = self.of_keys.iter().filter(|(_, (_, quota))| quota.max_concurrent_runs.is_some());
        limited.map(|(name, (tenant, _))| (keys::budget_partition(tenant, name), tenant))
    }
}
