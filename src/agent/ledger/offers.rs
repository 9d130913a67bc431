//! The definitions of tools that runs are offered, as stored: one document for all runs with the same definitions.
//!
//! A document is named by the hash of its content. So it is never changed; only its TTL grows. It is stored before
//! the first run that names it.

use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::agent::ledger::Ledger;
use crate::agent::ledger::document::encode;
use crate::agent::ledger::{keys, stored};
use crate::store::{CommitError, Tx, Unavailable, Write};
use crate::types::maps::HashMap;
use crate::types::offer::OfferHash;
use crate::types::{RunSpec, Tenant};

/// How often this process puts the same document. It is little beside how long that is kept.
const KEEP_EVERY: Duration = Duration::from_secs(3600);
/// Most documents of which this process knows that it has put them.
const MOST_KNOWN: usize = 10_000;

/// Keeps and finds the definitions of tools.
#[derive(Debug)]
pub struct Offers {
    ledger: Ledger,
    /// When this process last put what.
    kept: Mutex<HashMap<(Tenant, OfferHash), Instant>>,
}

impl Offers {
    /// What lies in this ledger.
    pub fn new(ledger: Ledger) -> Self {
        Self { ledger, kept: Mutex::default() }
    }

    /// Makes sure that what a run is offered, written so, outlives the run. Asks the store only if this process
    /// has not done so for a while.
    pub async fn keep(&self, spec: &RunSpec, written: &Bytes) -> Result<(), CommitError> {
        let named = (spec.tenant.clone(), spec.offer.clone());
        if (spec.tools.is_empty() && spec.search.is_none()) || self.is_kept(&named) {
            return Ok(());
        }
        let ttl = Some(self.ledger.retention().offer_ttl());
        self.count(spec, written.len() as u64, ttl).await?;
        let put = Write::Put { key: keys::offer(), value: written.clone(), ttl };
        self.ledger.commit(Tx::new(keys::offer_partition(&spec.tenant, &spec.offer)).write(put)).await?;
        let mut kept = self.kept.lock();
        if kept.len() >= MOST_KNOWN {
            kept.retain(|_, since| since.elapsed() < KEEP_EVERY);
        }
        if kept.len() < MOST_KNOWN {
            kept.insert(named, Instant::now());
        }
        Ok(())
    }

    /// What a run is offered, as it is written; `None` if the store lost it.
    pub async fn find(&self, spec: &RunSpec) -> Result<Option<Bytes>, Unavailable> {
        let partition = keys::offer_partition(&spec.tenant, &spec.offer);
        let document = self.ledger.store().get(&partition, &keys::offer()).await?;
        Ok(document.map(|document| document.value))
    }

    /// Counts what is about to be put as stored by the tenant, unless it is counted already.
    async fn count(&self, spec: &RunSpec, bytes: u64, ttl: Option<Duration>) -> Result<(), CommitError> {
        let (index, key) = (keys::tenant_partition(&spec.tenant), keys::offer_entry(&spec.offer));
        let is_counted = self.ledger.store().get(&index, &key).await?.is_some();
        let tx = Tx::new(index).write(Write::Put { key, value: encode(&bytes), ttl });
        let limit = self.ledger.retention().tenant_bytes;
        self.ledger.commit(if is_counted { tx } else { tx.write(stored::count(bytes, limit)) }).await
    }

    fn is_kept(&self, named: &(Tenant, OfferHash)) -> bool {
        self.kept.lock().get(named).is_some_and(|since| since.elapsed() < KEEP_EVERY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::ledger::retention::Retention;
    use crate::agent::machine::tests::spec;
    use crate::store::memory::MemoryStore;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    /// The documents of a store that are put by one process, a run, and what it is offered.
    fn offers() -> (Offers, RunSpec, Bytes) {
        let retention = Retention {
            run: DAY,
            wait: DAY,
            session: DAY,
            history_bytes: 0,
            ended_bytes: None,
            inbox_bytes: 0,
            tenant_bytes: 1 << 30,
            usage: Duration::from_secs(86_400),
            usage_rows: 1_000,
            run_bytes: 1 << 30,
        };
        let written = Bytes::from("[]");
        let spec = RunSpec { offer: OfferHash::of(&written), ..spec() };
        (Offers::new(Ledger::new(std::sync::Arc::new(MemoryStore::default()), retention)), spec, written)
    }

    async fn version(offers: &Offers, spec: &RunSpec) -> u64 {
        let place = keys::offer_partition(&spec.tenant, &spec.offer);
        let document = offers.ledger.store().get(&place, &keys::offer()).await.unwrap();
        document.map_or(0, |document| document.version)
    }

    #[tokio::test(start_paused = true)]
    async fn definitions_are_put_once_an_hour_and_outlive_the_last_run_that_is_offered_them() {
        let (offers, spec, written) = offers();
        for _ in 0..3 {
            offers.keep(&spec, &written).await.unwrap();
        }
        assert_eq!(version(&offers, &spec).await, 1);
        tokio::time::advance(KEEP_EVERY).await;
        offers.keep(&spec, &written).await.unwrap();
        assert_eq!(version(&offers, &spec).await, 2);
        tokio::time::advance(30 * DAY).await;
        assert_eq!(offers.find(&spec).await.unwrap(), Some(written.clone()));
        offers.keep(&spec, &written).await.unwrap();
        tokio::time::advance(30 * DAY).await;
        assert_eq!(offers.find(&spec).await.unwrap(), Some(written));
        tokio::time::advance(3 * DAY).await;
        assert_eq!(offers.find(&spec).await.unwrap(), None);
    }

    #[tokio::test]
    async fn each_tenant_has_its_own_and_a_run_without_tools_has_none() {
        let (offers, spec, written) = offers();
        offers.keep(&RunSpec { tools: Vec::new(), ..spec.clone() }, &written).await.unwrap();
        assert_eq!(version(&offers, &spec).await, 0);
        offers.keep(&spec, &written).await.unwrap();
        let other = RunSpec { tenant: Tenant::parse("other").unwrap(), ..spec };
        assert_eq!(version(&offers, &other).await, 0);
        offers.keep(&other, &written).await.unwrap();
        assert_eq!(version(&offers, &other).await, 1);
    }
}
