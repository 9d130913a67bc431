//! `/v1/agent/ag-ui`: agents of AG-UI.

use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;

use crate::api::agent_header::read_agent_header;
use crate::api::auth::Caller;
use crate::api::error::ApiError;
use crate::api::extract::JsonText;
use crate::api::identity::RequestIdentity;
use crate::api::page_starts::OptionsPlace;
use crate::api::params::UiHeaders;
use crate::api::readers::ReaderShare;
use crate::api::state::Api;
use crate::api::ui::{Asking, context};
use crate::api::wire::StreamEvent;
use crate::api::wire::ag_ui::input::RunAgentInput;
use crate::api::wire::agent::options::EventsMode;

/// Runs the whole tool loop for a client of AG-UI and streams its events.
#[utoipa::path(
    post, path = "/v1/agent/ag-ui", tag = "ui", operation_id = "runAgUi",
    request_body = RunAgentInput<'_>,
    params(UiHeaders),
    responses((status = 200, description = "The events of the run", content((StreamEvent = "text/event-stream")))),
)]
pub async fn run(
    State(api): State<Api>,
    caller: Caller,
    identity: RequestIdentity,
    headers: HeaderMap,
    memory: ReaderShare,
    body: JsonText,
) -> Result<Response, ApiError> {
    let mut input = RunAgentInput::read(body.as_str()?)?;
    read_agent_header(&headers, &mut input.forwarded_props.get_or_insert_default().0.agent)?;
    let (new, ag_ui) = input.into_run(context(&caller, &identity, &headers, EventsMode::AgUi)?)?;
    let (route, options) = ("agent/ag-ui", OptionsPlace::ForwardedProps);
    let asking = Asking { api: &api, caller, identity: &identity, route, options, body, memory };
    Box::pin(asking.run(new, ag_ui)).await
}
