//! Rate limits of requests. The store counts, so that all replicas together allow as many requests as one would.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::agent::ledger::keys;
use crate::agent::ownership::seldom::Seldom;
use crate::store::{Key, Rate, RateDecision, Store};
use crate::types::Tenant;

/// How long the store may take to answer. The request waits for it before anything else is done.
const STORE_TIMEOUT: Duration = Duration::from_millis(250);
/// For how long a store that did not answer is not asked again, so that requests do not wait for it.
const PAUSE: Duration = Duration::from_secs(1);

/// Whose requests are counted together.
#[derive(Debug, Clone, Copy)]
pub enum RateKey<'a> {
    /// All callers with one key.
    Key {
        /// The key's tenant.
        tenant: &'a Tenant,
        /// The key's name.
        name: &'a str,
    },
    /// All requests of a tenant that begin a run which is counted here: of one agent, or of one user.
    Share {
        /// The tenant.
        tenant: &'a Tenant,
        /// Where such runs are counted.
        share: &'a Key,
    },
    /// A caller without a key, by what its address is counted as.
    Address(IpAddr),
}

/// Counts requests in the store's token buckets.
#[derive(Debug)]
pub(in crate::agent) struct Rates {
    store: Arc<dyn Store>,
    pause_until: Mutex<Option<Instant>>,
    cannot_count: Seldom,
}

impl Rates {
    /// Counts a request against a limit of `per_minute`; the requests of a minute may come at once. `None` if the
    /// store does not answer in time. Then the count of this process decides: reads must not fail because of a
    /// limit, and requests that write will get the store's own error.
    pub(super) async fn count(&self, rate_key: RateKey<'_>, per_minute: NonZeroU32) -> Option<RateDecision> {
        let (partition, bucket) = match rate_key {
            RateKey::Key { tenant, name } => (keys::key_rate_partition(tenant, name), keys::requests()),
            RateKey::Share { tenant, share } => (keys::shares_partition(tenant), share.clone()),
            RateKey::Address(address) => (keys::address_rate_partition(address), keys::requests()),
        };
        let rate = Rate { burst: per_minute.get(), every: Duration::from_secs(60) / per_minute.get() };
        if self.is_paused() {
            return None;
        }
        match tokio::time::timeout(STORE_TIMEOUT, self.store.take(&partition, &bucket, rate)).await {
            Ok(Ok(taken)) => Some(taken),
            Ok(Err(error)) => {
                self.pause(&error);
                None
            }
            Err(elapsed) => {
                self.pause(&elapsed);
                None
            }
        }
    }
}

impl Rates {
    /// Over this store.
    pub(in crate::agent) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, pause_until: Mutex::default(), cannot_count: Seldom::default() }
    }

    fn is_paused(&self) -> bool {
        self.pause_until.lock().is_some_and(|until| Instant::now() < until)
    }

    fn pause(&self, error: &dyn std::fmt::Display) {
        *self.pause_until.lock() = Some(Instant::now() + PAUSE);
        if self.cannot_count.is_due() {
            tracing::warn!(%error, "the store cannot count requests; this replica applies rate limits by itself");
        }
    }
}
