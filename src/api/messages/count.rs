//! `POST /v1/messages/count_tokens`: how many tokens a request would be to its model.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::auth::Caller;
use crate::api::error::ApiError;
use crate::api::extract::JsonText;
use crate::api::identity::RequestIdentity;
use crate::api::messages::create::read;
use crate::api::messages::json;
use crate::api::params::MessagesHeaders;
use crate::api::state::Api;
use crate::api::wire::messages::request::MessagesRequest;
use crate::config::Scope;

/// How many tokens a request is, by estimate.
#[derive(Debug, Serialize, ToSchema)]
pub struct MessageTokens {
    /// With the session's history, the instructions and the tools.
    input_tokens: u64,
}

/// Counts what a request's first model call would send, by estimate. Nothing is called or stored.
#[utoipa::path(
    post, path = "/v1/messages/count_tokens", tag = "messages", operation_id = "countMessageTokens",
    request_body = MessagesRequest<'_>,
    params(MessagesHeaders),
    responses((status = 200, description = "How many tokens it is", body = MessageTokens)),
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
        let request = MessagesRequest::read(body.as_str()?)?;
        let (mut new, _) = read(&caller, &identity, &headers, request)?;
        new.memory = Arc::new(body.into_memory());
        let found = api.agent.admission().dry_run(&new).await.map_err(|error| ApiError::from(error).in_messages())?;
        Ok(json(&MessageTokens { input_tokens: found.context_tokens }))
    };
    Box::pin(counting).await
}
