//! `/v1/conversations`: sessions in the dialect of OpenAI's Responses.
//!
//! Nothing is kept of a conversation beside its session, and every session can be read as one.

pub mod items;

use std::sync::Arc;

use axum::extract::{FromRequestParts, State};
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use crate::agent::session::{NewSession, SessionPatch};
use crate::api::auth::Caller;
use crate::api::error::ApiError;
use crate::api::extract::{JsonText, Texts};
use crate::api::identity::{RequestIdentity, mark_replayed};
use crate::api::params::IdempotencyKey;
use crate::api::state::Api;
use crate::api::wire::body::clip;
use crate::api::wire::conversations::{
    ConversationObject, CreateConversation, UpdateConversation, mint, read_create, read_update,
};
use crate::api::wire::error::ErrorCode;
use crate::types::SessionId;

/// The conversation of a path.
#[derive(Debug, IntoParams)]
#[into_params(names("id"), parameter_in = Path)]
pub struct ConversationPath(
    /// The conversation
    #[param(value_type = String, pattern = "^[A-Za-z0-9_.:-]{1,128}$")]
    pub SessionId,
);

impl<S: Send + Sync> FromRequestParts<S> for ConversationPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Texts(id) = Texts::<String>::from_request_parts(parts, state).await?;
        named(&id).map(Self)
    }
}

/// The session of this name.
fn named(id: &str) -> Result<SessionId, ApiError> {
    let missing =
        || ApiError::new(ErrorCode::ConversationNotFound, format!("Conversation with id '{}' not found.", clip(id)));
    SessionId::parse(id).ok_or_else(missing)
}

/// That a conversation is gone.
#[derive(Debug, Serialize, ToSchema)]
pub struct ConversationDeletion {
    /// The conversation.
    id: String,
    /// `conversation.deleted`.
    object: &'static str,
    /// `true`.
    deleted: bool,
}

/// Creates a conversation: a session.
#[utoipa::path(
    post, path = "/v1/conversations", tag = "conversations", operation_id = "createConversation",
    request_body = Option<CreateConversation<'_>>,
    params(IdempotencyKey),
    responses((status = 200, description = "The conversation", body = ConversationObject)),
)]
pub async fn create(
    State(api): State<Api>,
    caller: Caller,
    identity: RequestIdentity,
    body: JsonText,
) -> Result<Response, ApiError> {
    let text = body.as_str()?;
    let new = read_create(text)?;
    let key = identity.chosen_key("conversations", &caller, text)?;
    let memory = Arc::new(body.into_memory());
    let new = NewSession { memory: memory.clone(), ..new };
    let make = |id| api.agent.sessions().create(&caller.tenant, NewSession { id: Some(id), ..new });
    let made = api.agent.admission().make_session(&caller.tenant, key.as_ref(), mint(), memory, make).await;
    let (made, replayed) = made.map_err(|error| ApiError::from(error).in_responses())?;
    let mut response = axum::Json(ConversationObject::from(&made.session)).into_response();
    if replayed {
        mark_replayed(response.headers_mut());
    }
    Ok(response)
}

/// Reads a conversation.
#[utoipa::path(
    get, path = "/v1/conversations/{id}", tag = "conversations", operation_id = "getConversation",
    params(ConversationPath),
    responses((status = 200, description = "The conversation", body = ConversationObject)),
)]
pub async fn get(
    State(api): State<Api>,
    caller: Caller,
    ConversationPath(id): ConversationPath,
) -> Result<Response, ApiError> {
    let found = api.agent.sessions().get(&caller.tenant, &id).await;
    let found = found.map_err(|error| ApiError::from(error).in_responses())?;
    Ok(axum::Json(ConversationObject::from(&found.session)).into_response())
}

/// Replaces a conversation's metadata.
#[utoipa::path(
    post, path = "/v1/conversations/{id}", tag = "conversations", operation_id = "updateConversation",
    params(ConversationPath),
    request_body = UpdateConversation,
    responses((status = 200, description = "The conversation", body = ConversationObject)),
)]
pub async fn update(
    State(api): State<Api>,
    caller: Caller,
    ConversationPath(id): ConversationPath,
    body: JsonText,
) -> Result<Response, ApiError> {
    let metadata = read_update(body.as_str()?)?;
    let sessions = api.agent.sessions();
    let patched = async {
        let had = sessions.get(&caller.tenant, &id).await?.session.metadata;
        let removed = had.into_keys().map(|name| (name, None));
        let set = metadata.into_iter().map(|(name, value)| (name, Some(value)));
        let patch = SessionPatch { metadata: removed.chain(set).collect(), ..SessionPatch::default() };
        sessions.patch(&caller.tenant, &id, patch).await
    };
    let patched = patched.await.map_err(|error| ApiError::from(error).in_responses())?;
    Ok(axum::Json(ConversationObject::from(&patched.session)).into_response())
}

/// Deletes a conversation with its items and runs.
#[utoipa::path(
    delete, path = "/v1/conversations/{id}", tag = "conversations", operation_id = "deleteConversation",
    params(ConversationPath),
    responses((status = 200, description = "It is gone", body = ConversationDeletion)),
)]
pub async fn delete(
    State(api): State<Api>,
    caller: Caller,
    ConversationPath(id): ConversationPath,
) -> Result<Response, ApiError> {
    let deleted = api.agent.sessions().delete(caller.requester(), &id).await;
    deleted.map_err(|error| ApiError::from(error).in_responses())?;
    let deletion = ConversationDeletion { id: id.to_string(), object: "conversation.deleted", deleted: true };
    Ok(axum::Json(deletion).into_response())
}
