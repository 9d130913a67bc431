//! Schedules as resources.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::api::wire::body::{missing, parse};
use crate::api::wire::error::WireError;
use crate::api::wire::vocabulary::{OnMissedText, OnOverlapText};
use crate::types::ScheduleId;
use crate::types::schedule::{Firing, FiringResult, OnMissed, OnOverlap, Schedule, ScheduleSettings, SkipReason};

/// A schedule that is to be made. An unknown field is an error.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSchedule<'a> {
    /// Its id; one is made without it. With the same id and settings, the request may be sent again.
    #[schema(example = "morning-report", pattern = "^[A-Za-z0-9_.:-]{1,128}$")]
    id: Option<String>,
    /// When it fires: minute, hour, day of the month, month and day of the week.
    #[schema(required, example = "0 7 * * 1-5")]
    cron: Option<String>,
    /// By which clock: a name of the IANA database; `UTC` without it.
    #[schema(example = "Europe/Oslo")]
    time_zone: Option<String>,
    /// The request that it makes: a body of `POST /v1/agent/completions`.
    #[serde(borrow)]
    #[schema(value_type = Object, required)]
    request: Option<&'a RawValue>,
    /// What becomes of a firing whose time passed while no server could act on it; `once` without it.
    #[schema(value_type = Option<OnMissedText>)]
    on_missed: Option<OnMissed>,
    /// What becomes of a firing while the run of an earlier one is live; `skip` without it.
    #[schema(value_type = Option<OnOverlapText>)]
    on_overlap: Option<OnOverlap>,
    /// Whether it fires; true without it.
    enabled: Option<bool>,
}

/// What is to change of a schedule; the rest stays. An unknown field is an error.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PatchSchedule<'a> {
    /// When it fires.
    #[schema(example = "0 8 * * 1-5")]
    cron: Option<String>,
    /// By which clock.
    #[schema(example = "Europe/Oslo")]
    time_zone: Option<String>,
    /// The request that it makes.
    #[serde(borrow)]
    #[schema(value_type = Option<Object>)]
    request: Option<&'a RawValue>,
    /// What becomes of a firing whose time passed while no server could act on it.
    #[schema(value_type = Option<OnMissedText>)]
    on_missed: Option<OnMissed>,
    /// What becomes of a firing while the run of an earlier one is live.
    #[schema(value_type = Option<OnOverlapText>)]
    on_overlap: Option<OnOverlap>,
    /// Whether it fires.
    enabled: Option<bool>,
}

/// A schedule.
#[derive(Debug, Serialize, ToSchema)]
pub struct ScheduleObject {
    /// Its id.
    #[schema(example = "morning-report")]
    pub id: String,
    /// `schedule`.
    object: &'static str,
    /// Grows with every change of its settings; what `if-match` names.
    version: u64,
    /// When it fires.
    cron: String,
    /// By which clock.
    time_zone: String,
    /// The request that it makes.
    #[schema(value_type = Object)]
    request: Box<RawValue>,
    /// What becomes of a firing whose time passed while no server could act on it.
    #[schema(value_type = OnMissedText)]
    on_missed: OnMissed,
    /// What becomes of a firing while the run of an earlier one is live.
    #[schema(value_type = OnOverlapText)]
    on_overlap: OnOverlap,
    /// Whether it fires.
    enabled: bool,
    /// The name of the key in whose name it asks: the one that changed it last.
    key: Option<String>,
    /// When it fires next, Unix milliseconds; null while it is off.
    next_ms: Option<u64>,
    /// When it was made, Unix milliseconds.
    created_ms: u64,
    /// When its settings were changed, Unix milliseconds.
    updated_ms: u64,
    /// Its last 20 firings, the newest first.
    firings: Vec<FiringObject>,
}

/// What became of a firing.
#[derive(Debug, Serialize, ToSchema)]
pub struct FiringObject {
    /// The time that came, Unix milliseconds; null if a caller asked for it.
    due_ms: Option<u64>,
    /// When it was acted on, Unix milliseconds.
    at_ms: u64,
    /// `started`, `skipped` or `refused`.
    result: &'static str,
    /// The run that began.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<String>,
    /// Why none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// That a schedule is gone.
#[derive(Debug, Serialize, ToSchema)]
pub struct ScheduleDeletion {
    /// The schedule.
    pub id: String,
    /// `schedule`.
    pub object: &'static str,
    /// `true`.
    pub deleted: bool,
}

impl From<Schedule> for ScheduleObject {
    fn from(schedule: Schedule) -> Self {
        let Schedule { id, settings, version, key_name, created_ms, updated_ms, next_ms, entry: _, firings } = schedule;
        let ScheduleSettings { cron, time_zone, request, on_missed, on_overlap, enabled } = settings;
        Self {
            id: id.to_string(),
            object: "schedule",
            version,
            cron,
            time_zone,
            request: RawValue::from_string(request).unwrap_or_default(),
            on_missed,
            on_overlap,
            enabled,
            key: key_name,
            next_ms,
            created_ms,
            updated_ms,
            firings: firings.iter().rev().map(FiringObject::from).collect(),
        }
    }
}

impl From<&Firing> for FiringObject {
    fn from(Firing { due_ms, at_ms, result }: &Firing) -> Self {
        let (run_id, reason) = match result {
            FiringResult::Started { run, .. } => (Some(run.to_string()), None),
            FiringResult::Skipped(why) => (None, Some(SkipReason::as_str(*why).to_owned())),
            FiringResult::Refused(why) => (None, Some(why.clone())),
        };
        Self { due_ms: *due_ms, at_ms: *at_ms, result: result.as_str(), run_id, reason }
    }
}

/// Reads the body of `POST /v1/schedules`.
pub fn read_create(body: &str) -> Result<(ScheduleId, ScheduleSettings), WireError> {
    let CreateSchedule { id, cron, time_zone, request, on_missed, on_overlap, enabled } = parse(body)?;
    let id = match id {
        Some(id) => ScheduleId::parse(&id).ok_or_else(|| WireError::invalid("id", BAD_ID))?,
        None => ScheduleId::mint(),
    };
    let settings = ScheduleSettings {
        cron: cron.ok_or_else(|| missing("cron"))?,
        time_zone: time_zone.unwrap_or_else(|| "UTC".to_owned()),
        request: request.ok_or_else(|| missing("request"))?.get().to_owned(),
        on_missed: on_missed.unwrap_or_default(),
        on_overlap: on_overlap.unwrap_or_default(),
        enabled: enabled.unwrap_or(true),
    };
    Ok((id, settings))
}

/// Reads the body of `PATCH /v1/schedules/{schedule}`, which is a change of settings.
pub fn read_patch(body: &str) -> Result<impl Fn(&mut ScheduleSettings) + use<>, WireError> {
    let PatchSchedule { cron, time_zone, request, on_missed, on_overlap, enabled } = parse(body)?;
    let request = request.map(|request| request.get().to_owned());
    Ok(move |settings: &mut ScheduleSettings| {
        replace(&mut settings.cron, cron.as_ref());
        replace(&mut settings.time_zone, time_zone.as_ref());
        replace(&mut settings.request, request.as_ref());
        replace(&mut settings.on_missed, on_missed.as_ref());
        replace(&mut settings.on_overlap, on_overlap.as_ref());
        replace(&mut settings.enabled, enabled.as_ref());
    })
}

const BAD_ID: &str = "an id of a schedule has 1 to 128 characters of A-Z a-z 0-9 . _ : -";

fn replace<T: Clone>(setting: &mut T, by: Option<&T>) {
    if let Some(by) = by {
        setting.clone_from(by);
    }
}
