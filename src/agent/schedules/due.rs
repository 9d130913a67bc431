//! Which schedules fire when: an index of all tenants, in order of time.
//!
//! As with the due index of runs, an entry is a hint. It is put before the schedule that it belongs to is stored, so no
//! schedule is without one; and it is compared with the schedule before anything is done.

use std::pin::pin;

use futures_util::TryStreamExt;

use crate::agent::error::unavailable;
use crate::agent::ledger::document::{decode, encode};
use crate::agent::ledger::keys;
use crate::store::pages::scan_pages;
use crate::store::{Key, Order, Scan, Store, Tx, Unavailable, Write};
use crate::types::{ScheduleId, Tenant};

/// Entries read at a time.
const PAGE: usize = 256;
/// Most entries that one look returns. The next one finds what is left.
const MOST: usize = 4_096;

/// That a schedule fires at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueSchedule {
    /// When, in Unix milliseconds.
    pub at_ms: u64,
    /// Whose schedule.
    pub tenant: Tenant,
    /// Which.
    pub id: ScheduleId,
    /// What no other entry of the schedule has: who removes the entry that they put does not remove another's.
    pub entry: u64,
}

/// What a look finds.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// What is due, the earliest first.
    pub due: Vec<DueSchedule>,
    /// When the first is due that is not due yet, if it was seen.
    pub next_ms: Option<u64>,
}

impl DueSchedule {
    /// Puts the entry.
    pub async fn put(&self, store: &dyn Store) -> Result<(), Unavailable> {
        let put = Write::Put { key: self.key(), value: encode(&self.tenant), ttl: None };
        store.commit(Tx::new(keys::due_schedules_partition()).write(put)).await.map_err(unavailable)
    }

    /// Removes the entry. One that does not exist is no error.
    pub async fn remove(&self, store: &dyn Store) -> Result<(), Unavailable> {
        let delete = Write::Delete { key: self.key() };
        store.commit(Tx::new(keys::due_schedules_partition()).write(delete)).await.map_err(unavailable)
    }

    fn key(&self) -> Key {
        keys::due_schedule(self.at_ms, &self.tenant, &self.id, self.entry)
    }

    /// `None` for what this version does not know: another replica's version does.
    fn parse(key: &str, value: &[u8]) -> Option<Self> {
        let mut parts = key.split('/');
        let (at, _, id, entry) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let entry = u64::from_str_radix(entry, 16).ok()?;
        Some(Self { at_ms: at.parse().ok()?, tenant: decode(value).ok()?, id: ScheduleId::parse(id)?, entry })
    }
}

/// What is due at `now_ms` or was due before. While nothing is, this reads one entry at most.
pub async fn until(store: &dyn Store, now_ms: u64) -> Result<Found, Unavailable> {
    let partition = keys::due_schedules_partition();
    let at = |key: &str| key.split('/').next().and_then(|at| at.parse::<u64>().ok());
    let scan = |limit| Scan { prefix: String::new(), after: None, limit, order: Order::Ascending };
    let first = store.scan(&partition, scan(1)).await?;
    let mut found = Found { due: Vec::new(), next_ms: first.first().and_then(|(key, _)| at(key)) };
    if found.next_ms.is_none_or(|next_ms| next_ms > now_ms) && first.first().is_none_or(|(key, _)| at(key).is_some()) {
        return Ok(found);
    }
    found.next_ms = None;
    let mut pages = pin!(scan_pages(store, &partition, scan(PAGE)));
    while let Some(page) = pages.try_next().await? {
        for (key, document) in page {
            if at(&key).is_some_and(|at| at > now_ms) {
                found.next_ms = at(&key);
                return Ok(found);
            }
            found.due.extend(DueSchedule::parse(&key, &document.value));
            if found.due.len() >= MOST {
                return Ok(found);
            }
        }
    }
    Ok(found)
}
