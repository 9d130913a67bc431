//! `/v1/schedules`: requests that the server makes itself, at certain times.

use axum::extract::State;
use axum::response::{IntoResponse, Response};

use crate::agent::NewRun;
use crate::agent::error::LookupError;
use crate::agent::schedules::{BadRequest, RequestReader, RequestedBy, ScheduleError, Scheduler};
use crate::api::auth::Caller;
use crate::api::completions::accepted;
use crate::api::error::ApiError;
use crate::api::expected::{Precondition, Tagged};
use crate::api::extract::{JsonText, Texts};
use crate::api::identity::{RequestIdentity, mark_replayed};
use crate::api::params::{IdempotencyKey, PreconditionHeaders, SchedulePath};
use crate::api::state::Api;
use crate::api::wire::agent::options::EventsMode;
use crate::api::wire::asked::RequestContext;
use crate::api::wire::body::clip;
use crate::api::wire::error::{ErrorCode, WireError};
use crate::api::wire::openai_chat::request::read_request;
use crate::api::wire::run::{List, RunObject};
use crate::api::wire::schedule::{
    CreateSchedule, PatchSchedule, ScheduleDeletion, ScheduleObject, read_create, read_patch,
};
use crate::types::ScheduleId;
use crate::types::run::{OnConflict, OnDisconnect};
use crate::types::schedule::Schedule;

/// Lists the schedules of the tenant by their ids. A key that may use some agents only sees its own.
#[utoipa::path(
    get, path = "/v1/schedules", tag = "schedules", operation_id = "listSchedules",
    responses((status = 200, description = "All of them", body = List<ScheduleObject>)),
)]
pub async fn list(State(api): State<Api>, caller: Caller) -> Result<Response, ApiError> {
    let found = api.agent.schedules().list(&caller.tenant).await.map_err(LookupError::from)?;
    let seen = found.into_iter().filter(|schedule| may_see(&caller, schedule)).map(ScheduleObject::from).collect();
    Ok(axum::Json(List::new(seen, false, |schedule: &ScheduleObject| schedule.id.clone())).into_response())
}

/// Makes a schedule, which asks in the name of the key that makes it.
#[utoipa::path(
    post, path = "/v1/schedules", tag = "schedules", operation_id = "createSchedule",
    request_body = CreateSchedule<'_>,
    responses((status = 200, description = "The schedule", body = ScheduleObject)),
)]
pub async fn create(State(api): State<Api>, caller: Caller, body: JsonText) -> Result<Response, ApiError> {
    let (id, settings) = read_create(body.as_str()?)?;
    let made = api.agent.schedules().create(scheduler(&caller), id, settings).await?;
    Ok(shown(made))
}

/// Reads a schedule.
#[utoipa::path(
    get, path = "/v1/schedules/{schedule}", tag = "schedules", operation_id = "getSchedule",
    params(SchedulePath),
    responses((status = 200, description = "The schedule; `etag` has its version", body = ScheduleObject)),
)]
pub async fn get(State(api): State<Api>, caller: Caller, Texts(id): Texts<String>) -> Result<Response, ApiError> {
    Ok(shown(find(&api, &caller, &id).await?))
}

/// Changes some settings of a schedule. From then on it asks in the name of the key that changes it.
#[utoipa::path(
    patch, path = "/v1/schedules/{schedule}", tag = "schedules", operation_id = "patchSchedule",
    params(SchedulePath, PreconditionHeaders),
    request_body = PatchSchedule<'_>,
    responses((status = 200, description = "The schedule", body = ScheduleObject)),
)]
pub async fn patch(
    State(api): State<Api>,
    caller: Caller,
    Texts(id): Texts<String>,
    Precondition(expected): Precondition,
    body: JsonText,
) -> Result<Response, ApiError> {
    let (change, id) = (read_patch(body.as_str()?)?, find(&api, &caller, &id).await?.id);
    let changed = api.agent.schedules().change(scheduler(&caller), &id, expected, change).await?;
    Ok(shown(changed))
}

/// Deletes a schedule. Runs that it has begun go on.
#[utoipa::path(
    delete, path = "/v1/schedules/{schedule}", tag = "schedules", operation_id = "deleteSchedule",
    params(SchedulePath, PreconditionHeaders),
    responses((status = 200, description = "It is gone", body = ScheduleDeletion)),
)]
pub async fn delete(
    State(api): State<Api>,
    caller: Caller,
    Texts(id): Texts<String>,
    Precondition(expected): Precondition,
) -> Result<Response, ApiError> {
    let id = find(&api, &caller, &id).await?.id;
    api.agent.schedules().delete(&caller.tenant, &id, expected).await?;
    Ok(axum::Json(ScheduleDeletion { id: id.to_string(), object: "schedule", deleted: true }).into_response())
}

/// Begins the run of a schedule now, in the name of the key that asks. When it fires next stays as it is.
#[utoipa::path(
    post, path = "/v1/schedules/{schedule}/run", tag = "schedules", operation_id = "runSchedule",
    params(SchedulePath, IdempotencyKey),
    responses((status = 202, description = "The run", body = RunObject<'_>)),
)]
pub async fn run(
    State(api): State<Api>,
    caller: Caller,
    Texts(id): Texts<String>,
    identity: RequestIdentity,
) -> Result<Response, ApiError> {
    let schedule = find(&api, &caller, &id).await?;
    let key = identity.chosen_key(&format!("schedules/{}/run", schedule.id), &caller, "{}")?;
    let started = api.agent.schedules().run_now(scheduler(&caller), &schedule, key.as_ref()).await?;
    let mut response = accepted(&started.head, started.replayed);
    if started.replayed {
        mark_replayed(response.headers_mut());
    }
    Ok(response)
}

/// Reads the requests of schedules as the endpoint for completions reads its own.
#[derive(Debug)]
pub struct ScheduledRequests;

impl RequestReader for ScheduledRequests {
    fn read(&self, body: &str, by: RequestedBy) -> Result<NewRun, BadRequest> {
        let RequestedBy { tenant, generation, key_name, allowed_agents } = by;
        let context = RequestContext {
            tenant,
            generation,
            key_name,
            allowed_agents,
            trace: None,
            request_id: None,
            session_header: None,
            default_events: EventsMode::None,
            default_on_disconnect: OnDisconnect::Continue,
        };
        let (mut new, shape) = read_request(body, context).map_err(bad)?;
        if shape.dry_run {
            return Err(bad(WireError::invalid("agent.dry_run", "a schedule begins runs")));
        }
        if new.run.is_some() || !new.answered.is_empty() || !new.decisions.is_empty() {
            return Err(bad(WireError::invalid("messages", "a schedule begins runs; it cannot answer one that waits")));
        }
        if matches!(new.on_conflict, OnConflict::Interrupt | OnConflict::Enqueue) {
            let message = "no run makes way for one of a schedule: `reject` and `concurrent` are what it may be";
            return Err(bad(WireError::invalid("agent.on_conflict", message)));
        }
        if new.servers.is_some() {
            let message = "a schedule names no MCP server: what such a server is shown would be kept for all who may read \
                           schedules; declare the server in the configuration";
            return Err(bad(WireError::invalid("tools", message)));
        }
        // Nobody reads it.
        new.options.on_disconnect = OnDisconnect::Continue;
        (new.waits_for_the_end, new.unattended) = (false, true);
        Ok(new)
    }
}

fn bad(WireError { param, message, .. }: WireError) -> BadRequest {
    BadRequest { param, message }
}

/// A schedule that the caller may see.
async fn find(api: &Api, caller: &Caller, id: &str) -> Result<Schedule, ApiError> {
    let missing = || ScheduleError::NotFound(clip(id).to_owned());
    let id = ScheduleId::parse(id).ok_or_else(missing)?;
    let found = api.agent.schedules().get(&caller.tenant, &id).await?;
    if may_see(caller, &found) { Ok(found) } else { Err(missing().into()) }
}

/// Whether a schedule is there for a caller: the request of another key may be one for an agent that this key may not use.
fn may_see(caller: &Caller, schedule: &Schedule) -> bool {
    caller.agents.is_none() || schedule.key_name == caller.key_name
}

fn scheduler(caller: &Caller) -> Scheduler<'_> {
    Scheduler {
        tenant: &caller.tenant,
        key_name: caller.key_name.as_deref(),
        agents: caller.agents.as_deref(),
        generation: &caller.generation,
    }
}

fn shown(schedule: Schedule) -> Response {
    Tagged(schedule.version, ScheduleObject::from(schedule)).into_response()
}

impl From<ScheduleError> for ApiError {
    fn from(error: ScheduleError) -> Self {
        let message = error.to_string();
        match error {
            ScheduleError::NotFound(_) => Self::new(ErrorCode::ScheduleNotFound, message),
            ScheduleError::Exists(_) => Self::new(ErrorCode::ScheduleExists, message).permanent(),
            ScheduleError::OtherVersion { .. } => Self::new(ErrorCode::VersionConflict, message).permanent(),
            ScheduleError::TooMany(_) => Self::new(ErrorCode::StorageFull, message).permanent(),
            ScheduleError::Invalid { field, .. } => Self::invalid(field, message),
            ScheduleError::Start(error) => (*error).into(),
            ScheduleError::Busy(_) => Self::new(ErrorCode::VersionConflict, message).retry_after(1),
            ScheduleError::Store(error) => LookupError::Store(error).into(),
        }
    }
}
