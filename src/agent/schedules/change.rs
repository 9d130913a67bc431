//! Makes, changes and deletes schedules.

use std::sync::Arc;

use crate::agent::error::unavailable;
use crate::agent::ledger::document::encode;
use crate::agent::ledger::keys;
use crate::agent::schedules::due::DueSchedule;
use crate::agent::schedules::timetable::BadTimetable;
use crate::agent::schedules::{MOST_SCHEDULES, RequestedBy, ScheduleError, Schedules, Timetable};
use crate::agent::{Generation, NewRun};
use crate::failpoint;
use crate::store::retry::RetryConflicts;
use crate::store::{Check, CommitError, Tx, Write};
use crate::types::schedule::{Schedule, ScheduleSettings};
use crate::types::{Expected, ScheduleId, Tenant};

/// Longest request of a schedule, in bytes of JSON.
const LONGEST_REQUEST: usize = 64 << 10;

/// Longest cron expression, in bytes.
const LONGEST_CRON: usize = 256;

/// Who makes or changes a schedule, which then asks in this name.
#[derive(Debug, Clone, Copy)]
pub struct Scheduler<'a> {
    /// Whose schedule it is.
    pub tenant: &'a Tenant,
    /// The name of the key; `None` for a server without keys.
    pub key_name: Option<&'a str>,
    /// The agents that the key may use; `None` for all.
    pub agents: Option<&'a [String]>,
    /// The configuration that the change is served by.
    pub generation: &'a Arc<Generation>,
}

impl Schedules {
    /// Makes a schedule. One that has this id and these settings already is returned as it is, so a request may be sent again.
    pub async fn create(
        &self,
        by: Scheduler<'_>,
        id: ScheduleId,
        settings: ScheduleSettings,
    ) -> Result<Schedule, ScheduleError> {
        let next_ms = self.check(by, &settings)?;
        let now_ms = self.store().now_ms();
        let schedule = Schedule {
            id: id.clone(),
            settings,
            version: 1,
            key_name: by.key_name.map(str::to_owned),
            created_ms: now_ms,
            updated_ms: now_ms,
            next_ms,
            entry: fresh_entry(),
            firings: Vec::new(),
        };
        self.announce(by.tenant, &schedule).await?;
        let most = i64::try_from(MOST_SCHEDULES).unwrap_or(i64::MAX);
        let count = Write::Add { counter: keys::schedules_count(), delta: 1, ceiling: Some(most) };
        let tx = Tx::new(keys::schedules_partition(by.tenant));
        let tx = tx.put_at(keys::schedule(&id), 0, encode(&schedule), None).write(count);
        let committed = self.store().commit(tx).await;
        if !matches!(committed, Ok(()) | Err(CommitError::Unavailable(_))) {
            self.withdraw(by.tenant, &schedule).await;
        }
        match committed {
            Ok(()) => {
                tracing::info!(tenant = %by.tenant, schedule = %id, key = by.key_name, "a schedule was made");
                Ok(schedule)
            }
            Err(CommitError::VersionConflict { .. }) => {
                let there = self.get(by.tenant, &id).await?;
                let is_same = there.settings == schedule.settings && there.key_name == schedule.key_name;
                if is_same { Ok(there) } else { Err(ScheduleError::Exists(id)) }
            }
            Err(CommitError::CeilingReached { .. }) => Err(ScheduleError::TooMany(most)),
            Err(error) => Err(unavailable(error).into()),
        }
    }

    /// Changes the settings of a schedule. From then on it asks in the name of who changed it.
    pub async fn change(
        &self,
        by: Scheduler<'_>,
        id: &ScheduleId,
        expected: Expected,
        change: impl Fn(&mut ScheduleSettings),
    ) -> Result<Schedule, ScheduleError> {
        let mut retry = RetryConflicts::new();
        while retry.next().await {
            let (version, before) = self.read(by.tenant, id).await?;
            check_version(&before, expected)?;
            let mut after = before.clone();
            change(&mut after.settings);
            after.key_name = by.key_name.map(str::to_owned);
            if after == before {
                return Ok(before);
            }
            (after.next_ms, after.entry) = (self.check(by, &after.settings)?, fresh_entry());
            (after.version, after.updated_ms) = (before.version + 1, self.store().now_ms());
            if self.replace(by.tenant, (version, &before), &after).await? {
                tracing::info!(tenant = %by.tenant, schedule = %id, key = by.key_name, "a schedule was changed");
                return Ok(after);
            }
        }
        Err(ScheduleError::Busy(id.clone()))
    }

    /// Deletes a schedule. Runs that it has begun go on.
    pub async fn delete(&self, tenant: &Tenant, id: &ScheduleId, expected: Expected) -> Result<(), ScheduleError> {
        let mut retry = RetryConflicts::new();
        while retry.next().await {
            let (version, schedule) = self.read(tenant, id).await?;
            check_version(&schedule, expected)?;
            let key = keys::schedule(id);
            let tx = Tx::new(keys::schedules_partition(tenant))
                .check(Check::Version { key: key.clone(), version })
                .write(Write::Delete { key })
                .write(Write::Add { counter: keys::schedules_count(), delta: -1, ceiling: None });
            match self.store().commit(tx).await {
                Ok(()) => {
                    tracing::info!(%tenant, schedule = %id, "a schedule was deleted");
                    self.withdraw(tenant, &schedule).await;
                    return Ok(());
                }
                Err(CommitError::VersionConflict { .. }) => {}
                Err(error) => return Err(unavailable(error).into()),
            }
        }
        Err(ScheduleError::Busy(id.clone()))
    }

    /// Stores a schedule in the place of what it was, of this version of its document; `false` if that changed meanwhile.
    pub(super) async fn replace(
        &self,
        tenant: &Tenant,
        (version, before): (u64, &Schedule),
        after: &Schedule,
    ) -> Result<bool, ScheduleError> {
        let moves = before.entry != after.entry;
        if moves {
            self.announce(tenant, after).await?;
            failpoint::hit("schedule.announced");
        }
        let tx = Tx::new(keys::schedules_partition(tenant));
        let tx = tx.put_at(keys::schedule(&after.id), version, encode(after), None);
        match self.store().commit(tx).await {
            Ok(()) if moves => {
                self.withdraw(tenant, before).await;
                Ok(true)
            }
            Ok(()) => Ok(true),
            Err(CommitError::VersionConflict { .. }) => {
                if moves {
                    self.withdraw(tenant, after).await;
                }
                Ok(false)
            }
            Err(error) => Err(unavailable(error).into()),
        }
    }

    /// The run that a schedule would begin, if it may be made.
    pub(super) fn read_request(&self, by: Scheduler<'_>, request: &str) -> Result<NewRun, ScheduleError> {
        let reader = self.reader.get().ok_or_else(|| invalid("request", "cannot be read by this program"))?;
        let by = RequestedBy {
            tenant: by.tenant.clone(),
            generation: by.generation.clone(),
            key_name: by.key_name.map(str::to_owned),
            allowed_agents: by.agents.map(<[String]>::to_vec),
        };
        reader.read(request, by).map_err(|bad| {
            let field = bad.param.map_or_else(|| "request".to_owned(), |param| format!("request.{param}"));
            ScheduleError::Invalid { field, what: bad.message }
        })
    }

    /// When a schedule of these settings fires next, if it is on and may be made.
    fn check(&self, by: Scheduler<'_>, settings: &ScheduleSettings) -> Result<Option<u64>, ScheduleError> {
        if settings.cron.len() > LONGEST_CRON {
            return Err(invalid("cron", format!("must not be longer than {LONGEST_CRON} bytes")));
        }
        let table = Timetable::parse(&settings.cron, &settings.time_zone).map_err(|bad| match bad {
            BadTimetable::Cron(what) => invalid("cron", what),
            BadTimetable::TimeZone(what) => invalid("time_zone", what),
        })?;
        if settings.request.len() > LONGEST_REQUEST {
            return Err(invalid("request", format!("must not be longer than {LONGEST_REQUEST} bytes")));
        }
        self.read_request(by, &settings.request)?;
        let next = table.next_after(self.store().now_ms()).ok_or_else(|| invalid("cron", "never comes"))?;
        Ok(settings.enabled.then_some(next))
    }

    /// Puts the entry of when a schedule fires next.
    async fn announce(&self, tenant: &Tenant, schedule: &Schedule) -> Result<(), ScheduleError> {
        match entry(tenant, schedule) {
            Some(entry) => {
                entry.put(self.store()).await?;
                self.changed.notify_one();
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Removes the entry of when a schedule was to fire. One that stays is removed when its time comes.
    pub(super) async fn withdraw(&self, tenant: &Tenant, schedule: &Schedule) {
        if let Some(entry) = entry(tenant, schedule)
            && let Err(error) = entry.remove(self.store()).await
        {
            tracing::debug!(schedule = %schedule.id, %error, "an entry of the index of schedules stays for now");
        }
    }
}

fn entry(tenant: &Tenant, schedule: &Schedule) -> Option<DueSchedule> {
    let Schedule { id, next_ms, entry, .. } = schedule;
    Some(DueSchedule { at_ms: (*next_ms)?, tenant: tenant.clone(), id: id.clone(), entry: *entry })
}

/// What no other entry of the index has.
pub(super) fn fresh_entry() -> u64 {
    uuid::Uuid::now_v7().as_u64_pair().1
}

fn check_version(schedule: &Schedule, expected: Expected) -> Result<(), ScheduleError> {
    let other = || ScheduleError::OtherVersion { id: schedule.id.clone(), version: schedule.version };
    expected.holds(Some(schedule.version)).then_some(()).ok_or_else(other)
}

pub(super) fn invalid(field: &str, what: impl Into<String>) -> ScheduleError {
    ScheduleError::Invalid { field: field.to_owned(), what: what.into() }
}
