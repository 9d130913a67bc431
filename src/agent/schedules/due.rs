//! Which schedules fire when: an index of all tenants, in order of time.
//!
//! As with the due index of runs, an entry is a hint. It is put before the schedule that it belongs to is stored, so no
//! schedule is without one; and it is compared with the schedule before anything is done.

use crate::agent::error::unavailable;
use crate::agent::ledger::document::{decode, encode};
use crate::agent::ledger::keys;
use crate::store::{Order, Scan, Store, Tx, Unavailable, Write};
use crate::types::{ScheduleId, Tenant};

/// Most entries that one look returns. The next one finds what is left.
const MOST: usize = 256;

/// That a schedule fires at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueSchedule {
    /// When, in Unix milliseconds.
    pub at_ms: u64,
    /// Whose schedule.
    pub tenant: Tenant,
    /// Which.
    pub id: ScheduleId,
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

    fn key(&self) -> crate::store::Key {
        keys::due_schedule(self.at_ms, &self.tenant, &self.id)
    }

    fn parse(key: &str, value: &[u8]) -> Option<Self> {
        let (at, id) = (key.split('/').next()?, key.rsplit('/').next()?);
        Some(Self { at_ms: at.parse().ok()?, tenant: decode(value).ok()?, id: ScheduleId::parse(id)? })
    }
}

/// What is due at `now_ms` or was due before. While nothing is, this reads one entry at most.
pub async fn until(store: &dyn Store, now_ms: u64) -> Result<Found, Unavailable> {
    let mut found = Found::default();
    for limit in [1, MOST] {
        let scan = Scan { prefix: String::new(), after: None, limit, order: Order::Ascending };
        found = Found::default();
        for (key, document) in store.scan(&keys::due_schedules_partition(), scan).await? {
            match DueSchedule::parse(&key, &document.value) {
                Some(due) if due.at_ms > now_ms => {
                    found.next_ms = Some(due.at_ms);
                    return Ok(found);
                }
                Some(due) => found.due.push(due),
                None => tracing::error!(%key, "an entry of the index of schedules is damaged"),
            }
        }
        if found.due.is_empty() {
            break;
        }
    }
    Ok(found)
}
