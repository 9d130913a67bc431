//! `POST /v1/responses/input_tokens`: how many tokens a request would be to its model.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use serde::Serialize;
use utoipa::ToSchema;

use crate::agent::NewRun;
use crate::api::auth::Caller;
use crate::api::error::ApiError;
use crate::api::extract::JsonText;
use crate::api::identity::RequestIdentity;
use crate::api::params::ResponseHeaders;
use crate::api::responses::create::read;
use crate::api::responses::json;
use crate::api::state::Api;
use crate::api::wire::responses::request::ResponseRequest;
use crate::config::Scope;

/// How many tokens a request is, by estimate.
#[derive(Debug, Serialize, ToSchema)]
pub struct InputTokens {
    /// `response.input_tokens`.
    object: &'static str,
    /// With all that is continued, the instructions and the tools.
    input_tokens: u64,
}

/// Counts what a request's first model call would send, by estimate. Nothing is called or stored.
#[utoipa::path(
    post, path = "/v1/responses/input_tokens", tag = "responses", operation_id = "countInputTokens",
    request_body = ResponseRequest<'_>,
    params(ResponseHeaders),
    responses((status = 200, description = "How many tokens it is", body = InputTokens)),
)]
pub async fn count(
    State(api): State<Api>,
    caller: Caller,
    identity: RequestIdentity,
    headers: HeaderMap,
    body: JsonText,
) -> Result<Response, ApiError> {
    let counting = async {
        caller.check(Scope::Read)?;
        let (mut new, _) = read(&api, &caller, &identity, &headers, body.as_str()?).await?;
        new.memory = Arc::new(body.into_memory());
        check(&new)?;
        let found = api.agent.admission().dry_run(&new).await?;
        Ok(json(&InputTokens { object: "response.input_tokens", input_tokens: found.context_tokens }))
    };
    Box::pin(counting).await.map_err(ApiError::in_responses)
}

/// Refuses what could be counted only once it is done.
fn check(new: &NewRun) -> Result<(), ApiError> {
    if new.servers.is_some() {
        let message = "servers of tools are not asked for a count; leave those with a server_url out";
        return Err(ApiError::invalid("tools", message));
    }
    if new.run.is_some() && new.previous.is_none() {
        let message = "what follows decisions about calls is counted with previous_response_id alone";
        return Err(ApiError::invalid("input", message));
    }
    Ok(())
}
