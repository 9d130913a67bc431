//! Acts on a schedule whose time has come, or whose run a caller asks for.

use std::sync::Arc;
use std::time::Duration;

use crate::agent::error::{ClaimError, StartError, StorageError};
use crate::agent::ledger::keys;
use crate::agent::schedules::change::{fresh_entry, invalid};
use crate::agent::schedules::decide::decide;
use crate::agent::schedules::due::DueSchedule;
use crate::agent::schedules::{ScheduleError, Scheduler, Schedules, Timetable};
use crate::agent::{Generation, NewRun, RequestKey, RequestKeyKind, Started};
use crate::config::Scope;
use crate::failpoint;
use crate::store::Unavailable;
use crate::store::retry::RetryConflicts;
use crate::types::schedule::{Firing, FiringResult, Schedule};
use crate::types::{ScheduleId, Tenant};

/// For how long a replica that acts on a schedule keeps others from it. Whoever comes after it finds what it has done.
const LEASE: Duration = Duration::from_secs(10);
/// The note by which a run leads to its schedule.
const NOTE: &str = "schedule_id";
/// Most notes of a run.
const MOST_NOTES: usize = 16;

/// Why a firing has no result.
#[derive(Debug, thiserror::Error)]
enum NotNow {
    /// What is in its way passes.
    #[error("{0}")]
    Passing(String),
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
}

impl Schedules {
    /// Acts on a schedule that is due, unless another replica does. Whether its entry has been dealt with.
    pub(super) async fn fire(&self, due: &DueSchedule) -> Result<bool, Unavailable> {
        let (partition, lease) = (keys::schedules_partition(&due.tenant), keys::schedule_lease(&due.id));
        let Some(fence) = self.store().acquire(&partition, &lease, LEASE).await? else { return Ok(false) };
        failpoint::hit("schedule.leased");
        let fired = self.fire_alone(due).await;
        self.store().release(&partition, &lease, fence).await?;
        match fired {
            Ok(()) => Ok(true),
            Err(NotNow::Schedule(ScheduleError::Store(error))) => Err(error),
            Err(why) => {
                tracing::debug!(schedule = %due.id, %why, "a schedule cannot fire now; trying again");
                Ok(false)
            }
        }
    }

    async fn fire_alone(&self, due: &DueSchedule) -> Result<(), NotNow> {
        let found = self.find(&due.tenant, &due.id).await.map_err(ScheduleError::from)?;
        let Some((_, schedule)) = found.filter(|(_, found)| found.next_ms == Some(due.at_ms)) else { return Ok(()) };
        // A clock that was behind has set a time anew that has come: what became of it stays.
        if let Some(known) = schedule.firings.iter().find(|firing| firing.due_ms == Some(due.at_ms)) {
            return Ok(self.note(due, known.result.clone()).await?);
        }
        let key = key_of(due);
        // A replica that died after it began the run left this to be noted.
        let begun = self.admission.begun_under(&due.tenant, &key).await.map_err(ScheduleError::from)?;
        let result = if let Some((run, session)) = begun {
            FiringResult::Started { run, session }
        } else {
            let is_live = self.is_live(&due.tenant, &schedule).await.map_err(ScheduleError::from)?;
            match decide(&schedule.settings, due.at_ms, self.store().now_ms(), is_live) {
                Ok(()) => self.begin(due, &schedule, &key).await?,
                Err(why) => FiringResult::Skipped(why),
            }
        };
        failpoint::hit("schedule.begun");
        self.note(due, result).await?;
        failpoint::hit("schedule.noted");
        Ok(())
    }

    /// Begins the run of a firing, once however often this is called for it.
    async fn begin(&self, due: &DueSchedule, schedule: &Schedule, key: &RequestKey) -> Result<FiringResult, NotNow> {
        let generation = self.generations.current();
        let new = match self.request_of(&due.tenant, schedule, &generation) {
            Ok(new) => new,
            Err(ScheduleError::Store(error)) => return Err(ScheduleError::Store(error).into()),
            Err(error) => return Ok(FiringResult::Refused(error.to_string())),
        };
        match self.admission.start(new, Some(key)).await {
            Ok(started) => Ok(begun(&started)),
            Err(error) if passes(&error) => Err(NotNow::Passing(error.to_string())),
            Err(error) => Ok(FiringResult::Refused(error.to_string())),
        }
    }

    /// Stores what became of a firing, and when the schedule fires next.
    async fn note(&self, due: &DueSchedule, result: FiringResult) -> Result<(), ScheduleError> {
        let mut retry = RetryConflicts::new();
        while retry.next().await {
            // A schedule that was deleted meanwhile has nothing to note.
            let Some((version, before)) = self.find(&due.tenant, &due.id).await? else { return Ok(()) };
            let is_noted = before.firings.iter().any(|firing| firing.due_ms == Some(due.at_ms));
            let is_next = before.next_ms == Some(due.at_ms);
            // A replica whose clock is behind may have set this time anew: it has come, but the schedule must go on.
            if is_noted && !is_next {
                return Ok(());
            }
            let mut after = before.clone();
            let at_ms = self.store().now_ms();
            if !is_noted {
                after.remember(Firing { due_ms: Some(due.at_ms), at_ms, result: result.clone() });
            }
            // One that was changed meanwhile fires next as it was changed.
            if is_next {
                (after.next_ms, after.entry) = (next(&after, at_ms.max(due.at_ms)), fresh_entry());
            }
            if self.replace(&due.tenant, (version, &before), &after).await? {
                if !is_noted {
                    tracing::info!(tenant = %due.tenant, schedule = %due.id, due_ms = due.at_ms, ?result, "a schedule fired");
                    self.metrics.fired(result.as_str());
                }
                return Ok(());
            }
        }
        Err(ScheduleError::Busy(due.id.clone()))
    }

    /// Begins a run of a schedule now, whatever its settings say of when; with a key, once. Both are done even if the caller
    /// is gone.
    pub async fn run_now(
        self: &Arc<Self>,
        by: Scheduler<'_>,
        schedule: &Schedule,
        key: Option<&RequestKey>,
    ) -> Result<Started, ScheduleError> {
        let new = noted(self.read_request(by, &schedule.settings.request)?, schedule);
        let (schedules, tenant, id, key) = (self.clone(), by.tenant.clone(), schedule.id.clone(), key.cloned());
        let running = Box::pin(async move {
            let started = schedules.admission.start(new, key.as_ref()).await;
            let started = started.map_err(|error| ScheduleError::Start(Box::new(error)))?;
            failpoint::hit("schedule.asked");
            if let Err(error) = schedules.note_asked(&tenant, &id, begun(&started)).await {
                tracing::warn!(schedule = %id, run = %started.head.id, %error, "the schedule could not note the run");
            }
            Ok(started)
        });
        self.admission.lifecycle.run_detached(running).await
    }

    /// Remembers a firing that a caller asked for.
    async fn note_asked(&self, tenant: &Tenant, id: &ScheduleId, result: FiringResult) -> Result<(), ScheduleError> {
        let mut retry = RetryConflicts::new();
        while retry.next().await {
            let Some((version, before)) = self.find(tenant, id).await? else { return Ok(()) };
            if before.firings.iter().any(|firing| firing.result == result) {
                return Ok(());
            }
            let mut after = before.clone();
            after.remember(Firing { due_ms: None, at_ms: self.store().now_ms(), result: result.clone() });
            if self.replace(tenant, (version, &before), &after).await? {
                self.metrics.fired(result.as_str());
                return Ok(());
            }
        }
        Err(ScheduleError::Busy(id.clone()))
    }

    /// The request that a schedule makes, if its key may still make it.
    fn request_of(
        &self,
        tenant: &Tenant,
        schedule: &Schedule,
        generation: &Arc<Generation>,
    ) -> Result<NewRun, ScheduleError> {
        let key_name = schedule.key_name.as_deref();
        let agents = allowed_agents(generation, tenant, key_name).map_err(|what| invalid("request", what))?;
        let by = Scheduler { tenant, key_name, agents: agents.as_deref(), generation };
        Ok(noted(self.read_request(by, &schedule.settings.request)?, schedule))
    }

    /// Whether the run that a schedule began last has not ended.
    async fn is_live(&self, tenant: &Tenant, schedule: &Schedule) -> Result<bool, Unavailable> {
        let Some((run, session)) = schedule.last_run() else { return Ok(false) };
        self.ledger.is_live(tenant, session, run).await
    }
}

/// The agents that the key of a schedule may use now, or why it may begin nothing.
fn allowed_agents(
    generation: &Generation,
    tenant: &Tenant,
    key_name: Option<&str>,
) -> Result<Option<Vec<String>>, String> {
    let Some(name) = key_name else {
        let is_open = generation.keys.is_empty();
        return is_open
            .then_some(None)
            .ok_or_else(|| "the schedule was made without a key, and the server asks for keys now".to_owned());
    };
    let key = generation.keys.values().find(|key| key.name == name && key.tenant == *tenant);
    let key = key.ok_or_else(|| format!("the key {name:?}, which made the schedule, is gone"))?;
    if !key.scopes.contains(Scope::Schedules) {
        return Err(format!("the key {name:?}, which made the schedule, lacks the scope `{}` now", Scope::Schedules));
    }
    Ok(key.agents.clone())
}

/// The run that a request asks for, with a note of its schedule if there is room for one.
fn noted(mut new: NewRun, schedule: &Schedule) -> NewRun {
    if new.metadata.len() < MOST_NOTES {
        new.metadata.entry(NOTE.to_owned()).or_insert_with(|| schedule.id.to_string());
    }
    new
}

/// Under which a run of this firing begins, once.
fn key_of(due: &DueSchedule) -> RequestKey {
    let name = format!("schedule/{}/{}", due.id, due.at_ms);
    RequestKey { fingerprint: name.clone(), name, kind: RequestKeyKind::Key }
}

fn begun(started: &Started) -> FiringResult {
    let session = started.session.as_ref().map(|session| session.id.clone());
    FiringResult::Started { run: started.head.id.clone(), session }
}

/// When a schedule fires next after this time.
fn next(schedule: &Schedule, after_ms: u64) -> Option<u64> {
    let settings = &schedule.settings;
    Timetable::parse(&settings.cron, &settings.time_zone).ok()?.next_after(after_ms)
}

/// Whether what is in a run's way passes by itself, so that the firing is tried again.
fn passes(error: &StartError) -> bool {
    matches!(
        error,
        StartError::Store(_)
            | StartError::Draining
            | StartError::OutOfMemory
            | StartError::VersionConflict(_)
            | StartError::TooManyServers(_)
            | StartError::Claim(ClaimError::Busy | ClaimError::Store(_))
            | StartError::Storage(StorageError::Store(_))
    ) || matches!(error, StartError::BudgetExceeded { short, .. } if short.may_pass())
}
