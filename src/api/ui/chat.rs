//! `/v1/agent/ui`: chats of the AI SDK.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};

use crate::agent::error::LookupError;
use crate::api::agent_header::read_agent_header;
use crate::api::auth::Caller;
use crate::api::error::ApiError;
use crate::api::extract::{JsonText, SessionPath};
use crate::api::identity::RequestIdentity;
use crate::api::page_starts::OptionsPlace;
use crate::api::params::UiHeaders;
use crate::api::readers::ReaderShare;
use crate::api::state::Api;
use crate::api::ui::{Asking, context};
use crate::api::ui_stream;
use crate::api::wire::agent::options::EventsMode;
use crate::api::wire::ai_sdk::chunks::AiSdk;
use crate::api::wire::ai_sdk::request::UiChatRequest;
use crate::api::wire::ui::events::UiEvents;
use crate::api::wire::{RunNames, StreamEvent};

/// Runs the whole tool loop for a chat of the AI SDK and streams a UI message.
#[utoipa::path(
    post, path = "/v1/agent/ui", tag = "ui", operation_id = "sendChat",
    request_body = UiChatRequest<'_>,
    params(UiHeaders),
    responses((status = 200, description = "The chunks of the message, then `[DONE]`",
               content((StreamEvent = "text/event-stream")))),
)]
pub async fn send(
    State(api): State<Api>,
    caller: Caller,
    identity: RequestIdentity,
    headers: HeaderMap,
    memory: ReaderShare,
    body: JsonText,
) -> Result<Response, ApiError> {
    let mut request = UiChatRequest::read(body.as_str()?)?;
    read_agent_header(&headers, &mut request.agent)?;
    let (new, continued) = request.into_run(context(&caller, &identity, &headers, EventsMode::AiSdk)?)?;
    let (route, options) = ("agent/ui", OptionsPlace::Body);
    let asking = Asking { api: &api, caller, identity: &identity, route, options, body, memory };
    Box::pin(asking.run(new, AiSdk { continued })).await
}

/// Joins the run that a chat waits for, from its first chunk on.
#[utoipa::path(
    get, path = "/v1/agent/ui/{id}/stream", tag = "ui", operation_id = "resumeChat",
    params(SessionPath),
    responses((status = 200, description = "The chunks of the message, then `[DONE]`",
               content((StreamEvent = "text/event-stream"))),
              (status = 204, description = "No run of the chat is under way")),
)]
pub async fn resume(
    State(api): State<Api>,
    caller: Caller,
    SessionPath(id): SessionPath,
    ReaderShare(memory): ReaderShare,
) -> Result<Response, ApiError> {
    let Some(head) = api.agent.runs().live_run(caller.requester(), &id).await? else {
        return Ok(StatusCode::NO_CONTENT.into_response());
    };
    let following = match api.agent.runs().follow(caller.requester(), &head.id, 0).await {
        // It ended meanwhile, and is no longer kept.
        Err(LookupError::RunNotFound(_) | LookupError::EventsExpired(_)) => {
            return Ok(StatusCode::NO_CONTENT.into_response());
        }
        found => found?,
    };
    let Some(follower) = following.follower else { return Ok(StatusCode::NO_CONTENT.into_response()) };
    let events = UiEvents::of_run(AiSdk::default(), RunNames::from(&head));
    Ok(ui_stream::respond(follower.with_memory(memory), events, true).await?)
}
