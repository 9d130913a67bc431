//! Schedules: requests that the server makes itself, at certain times.
//!
//! A tenant's schedules lie in one partition, a document each. Every replica looks for those that are due, and the one that
//! gets a schedule's lease begins its run under a key that names schedule and time. So a replica that dies in between, or is only
//! slow, leaves nothing to be done twice: the replica that comes after it finds the same run.

mod change;
mod decide;
mod due;
mod error;
mod fire;
mod reader;
mod sweep;
mod timetable;

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};

pub use self::change::Scheduler;
pub use self::error::ScheduleError;
pub use self::reader::{BadRequest, RequestReader, RequestedBy};
pub use self::timetable::Timetable;
use crate::agent::admission::Admission;
use crate::agent::generation::Generations;
use crate::agent::ledger::document::decode;
use crate::agent::ledger::{Ledger, keys};
use crate::agent::ownership::seldom::Seldom;
use crate::store::{Document, Order, Scan, Store, Unavailable};
use crate::telemetry::metrics::ScheduleMetrics;
use crate::types::schedule::Schedule;
use crate::types::{ScheduleId, Tenant};

/// Most schedules of a tenant.
pub const MOST_SCHEDULES: usize = 100;
/// How many firings a process acts on at a time.
const TOGETHER: usize = 32;

/// The schedules of all tenants.
#[derive(Debug)]
pub struct Schedules {
    ledger: Ledger,
    generations: Arc<Generations>,
    admission: Arc<Admission>,
    /// What reads their requests; without it there are no schedules.
    reader: OnceLock<Arc<dyn RequestReader>>,
    /// Those that this process acts on now.
    firing: Mutex<HashSet<(Tenant, ScheduleId)>>,
    room: Arc<Semaphore>,
    /// Told when this process has changed when a schedule fires.
    changed: Notify,
    metrics: ScheduleMetrics,
    cannot_look: Seldom,
}

impl Schedules {
    pub(super) fn new(admission: &Arc<Admission>, metrics: ScheduleMetrics) -> Self {
        Self {
            ledger: admission.ledger.clone(),
            generations: admission.generations.clone(),
            admission: admission.clone(),
            reader: OnceLock::new(),
            firing: Mutex::default(),
            room: Arc::new(Semaphore::new(TOGETHER)),
            changed: Notify::new(),
            metrics,
            cannot_look: Seldom::default(),
        }
    }

    /// Has the requests of schedules read by this from now on. Only the first call counts.
    pub fn read_with(&self, reader: Arc<dyn RequestReader>) {
        drop(self.reader.set(reader));
    }

    /// A schedule of a tenant.
    pub async fn get(&self, tenant: &Tenant, id: &ScheduleId) -> Result<Schedule, ScheduleError> {
        Ok(self.read(tenant, id).await?.1)
    }

    /// The schedules of a tenant, by their ids.
    pub async fn list(&self, tenant: &Tenant) -> Result<Vec<Schedule>, Unavailable> {
        let scan =
            Scan { prefix: keys::SCHEDULES.to_owned(), after: None, limit: MOST_SCHEDULES, order: Order::Ascending };
        let found = self.store().scan(&keys::schedules_partition(tenant), scan).await?;
        found.into_iter().map(|(_, document)| decode(&document.value)).collect()
    }

    fn store(&self) -> &dyn Store {
        &**self.ledger.store()
    }

    /// A schedule, and the version of its document.
    async fn read(&self, tenant: &Tenant, id: &ScheduleId) -> Result<(u64, Schedule), ScheduleError> {
        self.find(tenant, id).await?.ok_or_else(|| ScheduleError::NotFound(id.to_string()))
    }

    async fn find(&self, tenant: &Tenant, id: &ScheduleId) -> Result<Option<(u64, Schedule)>, Unavailable> {
        let found = self.store().get(&keys::schedules_partition(tenant), &keys::schedule(id)).await?;
        found.map(|Document { version, value }| Ok((version, decode(&value)?))).transpose()
    }
}
