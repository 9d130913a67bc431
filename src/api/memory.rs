//! `/v1/memory`: everything that is remembered of a user, or by an agent.

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream::BoxStream;
use http::{HeaderValue, header};

use crate::agent::documents::Collection;
use crate::api::auth::Caller;
use crate::api::documents::Owner;
use crate::api::error::ApiError;
use crate::api::extract::Query;
use crate::api::params::MemoryParams;
use crate::api::state::Api;
use crate::api::wire::document::{MemoryDeletion, MemoryDocument, MemoryExport};
use crate::store::Unavailable;
use crate::types::json::compact;

/// Documents read at a time.
const PAGE: usize = 32;

/// Reads everything that is kept of a user, by all agents or by one; or what an agent remembers of no user.
#[utoipa::path(
    get, path = "/v1/memory", tag = "memory", operation_id = "exportMemory",
    params(MemoryParams),
    responses((status = 200, description = "All documents; a body that breaks off is incomplete", body = MemoryExport)),
)]
pub async fn export(State(api): State<Api>, caller: Caller, query: Query) -> Result<Response, ApiError> {
    let all = memories(&api, &caller, Owner::read(&query, &caller)?).await?;
    let body = async_stream::try_stream! {
        yield Bytes::from_static(b"{\"object\":\"memory.export\",\"documents\":[");
        let mut is_first = true;
        for of in &all {
            let mut after: Option<String> = None;
            loop {
                let page = api.agent.documents().list(&caller.tenant, of, after.as_deref(), PAGE).await?;
                let is_last = page.len() < PAGE;
                after = page.last().map(|last| last.name.clone());
                for document in page {
                    if !std::mem::take(&mut is_first) {
                        yield Bytes::from_static(b",");
                    }
                    yield compact(&MemoryDocument::new(of, document, true)).map_err(|error| Unavailable(error.to_string()))?;
                }
                if is_last {
                    break;
                }
            }
        }
        yield Bytes::from_static(b"]}");
    };
    let body: BoxStream<'static, Result<Bytes, Unavailable>> = Box::pin(body);
    let mut response = Response::new(Body::from_stream(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// Deletes everything that is kept of a user, by all agents or by one; or what an agent remembers of no user.
#[utoipa::path(
    delete, path = "/v1/memory", tag = "memory", operation_id = "eraseMemory",
    params(MemoryParams),
    responses((status = 200, description = "It is gone", body = MemoryDeletion)),
)]
pub async fn erase(State(api): State<Api>, caller: Caller, query: Query) -> Result<Response, ApiError> {
    let all = memories(&api, &caller, Owner::read(&query, &caller)?).await?;
    let documents = api.agent.documents().erase(&caller.tenant, all).await?;
    Ok(axum::Json(MemoryDeletion { object: "memory", deleted: true, documents }).into_response())
}

/// The memories that are meant: of a user without an agent, those of all agents, and the user's copies of their files.
async fn memories(api: &Api, caller: &Caller, owner: Owner) -> Result<Vec<Collection>, ApiError> {
    let Some(user) = owner.user.clone() else { return Ok(vec![owner.memory()]) };
    let all = api.agent.documents().collections_of(&caller.tenant, &user).await;
    let all = all.map_err(crate::agent::error::LookupError::Store)?;
    Ok(all.into_iter().filter(|of| owner.agent.is_none() || of.agent == owner.agent).collect())
}
