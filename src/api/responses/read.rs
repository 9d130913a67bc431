//! `/v1/responses/{id}`: responses are read, streamed again, cancelled and deleted.

use axum::extract::State;
use axum::response::Response;
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use crate::api::auth::Caller;
use crate::api::error::ApiError;
use crate::api::extract::{Query, Texts};
use crate::api::readers::ReaderShare;
use crate::api::responses::json;
use crate::api::responses::stored::Stored;
use crate::api::sse;
use crate::api::state::Api;
use crate::api::wire::responses::object::ResponseObject;
use crate::api::wire::{RunNames, StreamEvent};

/// The response that a path names.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Path, names("id"))]
#[expect(dead_code, reason = "it only describes; `Texts` reads the path")]
pub struct ResponsePath(
    /// The response
    #[param(value_type = String, pattern = "^resp_[0-9a-f]{32,36}$")]
    String,
);

/// How a response is to be shown.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it only describes; the handler reads the query")]
struct ReadQuery {
    /// `true` for its stream
    stream: Option<bool>,
    /// Only events with greater numbers
    #[param(maximum = 9_007_199_254_740_992_u64)]
    starting_after: Option<u64>,
}

/// That a response is gone.
#[derive(Debug, Serialize, ToSchema)]
pub struct ResponseDeletion {
    /// The response.
    id: String,
    /// `response`.
    object: &'static str,
    /// `true`.
    deleted: bool,
}

/// A response as far as it came, or its stream: again from any event on, and live until its end.
#[utoipa::path(
    get, path = "/v1/responses/{id}", tag = "responses", operation_id = "getResponse",
    params(ResponsePath, ReadQuery),
    responses((status = 200, description = "The response; with `stream=true` its events, then `[DONE]`",
               content((ResponseObject<'_> = "application/json"), (StreamEvent = "text/event-stream")))),
)]
pub async fn get(
    State(api): State<Api>,
    caller: Caller,
    Texts(id): Texts<String>,
    query: Query,
    ReaderShare(memory): ReaderShare,
) -> Result<Response, ApiError> {
    let stored = Stored::find(&api, &caller, &id).await?;
    let streams = query.parsed("stream", |text| text.parse::<bool>().ok())?.unwrap_or(false);
    let after = query.parsed("starting_after", |text| text.parse::<u64>().ok())?;
    if !streams {
        return read(&api, &caller, &stored, &id).await;
    }
    if let Some(after) = after {
        let frames = stored.read(&api, &caller, &id).await?.frames();
        if after >= frames {
            let last = frames.saturating_sub(1);
            let message =
                format!("{after} is beyond the last event of the response so far, which has the number {last}");
            return Err(ApiError::invalid("starting_after", message));
        }
    }
    let follower = stored.follow(&api, &caller).await?.with_memory(memory);
    let events = stored.events(Some(after.map_or(0, |after| after + 1)));
    Ok(sse::stream(follower, events, &RunNames::from(&stored.head)))
}

/// Cancels a response that has not ended. Returns once it has stopped.
#[utoipa::path(
    post, path = "/v1/responses/{id}/cancel", tag = "responses", operation_id = "cancelResponse",
    params(ResponsePath),
    responses((status = 200, description = "The response as it ended", body = ResponseObject<'_>)),
)]
pub async fn cancel(State(api): State<Api>, caller: Caller, Texts(id): Texts<String>) -> Result<Response, ApiError> {
    let stored = Stored::find(&api, &caller, &id).await?;
    stop(&api, &caller, &stored, &id).await?;
    read(&api, &caller, &stored, &id).await
}

/// Deletes a response, and with it all others of its run; one that has not ended is cancelled first.
#[utoipa::path(
    delete, path = "/v1/responses/{id}", tag = "responses", operation_id = "deleteResponse",
    params(ResponsePath),
    responses((status = 200, description = "It is gone", body = ResponseDeletion)),
)]
pub async fn delete(State(api): State<Api>, caller: Caller, Texts(id): Texts<String>) -> Result<Response, ApiError> {
    let stored = Stored::find(&api, &caller, &id).await?;
    if !stored.head.status.is_final() {
        api.agent.runs().cancel(caller.requester(), &stored.head.id).await?;
    }
    api.agent.runs().delete(caller.requester(), &stored.head.id).await?;
    Ok(json(&ResponseDeletion { id, object: "response", deleted: true }))
}

async fn read(api: &Api, caller: &Caller, stored: &Stored, id: &str) -> Result<Response, ApiError> {
    let events = stored.read(api, caller, id).await?;
    let mut response = json(&events.object());
    sse::name_run(&mut response, &RunNames::from(&stored.head));
    Ok(response)
}

/// Cancels the run, unless the client has continued it after this response.
async fn stop(api: &Api, caller: &Caller, stored: &Stored, id: &str) -> Result<(), ApiError> {
    if stored.head.status.is_final() || stored.read(api, caller, id).await?.is_over() {
        return Ok(());
    }
    api.agent.runs().cancel(caller.requester(), &stored.head.id).await?;
    Ok(())
}
