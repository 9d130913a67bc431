//! `/v1/memory/documents`: the documents of one memory.

use axum::extract::State;
use axum::response::{IntoResponse, Response};

use crate::agent::documents::limits::memory_limits;
use crate::agent::error::LookupError;
use crate::api::auth::Caller;
use crate::api::documents::{DocumentDeletion, DocumentPath, Owner, missing};
use crate::api::error::ApiError;
use crate::api::extract::{JsonText, Query};
use crate::api::paging::page_of;
use crate::api::params::{MemoryDocumentsParams, MemoryParams};
use crate::api::state::Api;
use crate::api::wire::document::{MemoryDocument, PutMemory};
use crate::api::wire::error::ErrorCode;
use crate::api::wire::run::List;

/// Lists the documents of a memory by their names.
#[utoipa::path(
    get, path = "/v1/memory/documents", tag = "memory", operation_id = "listMemoryDocuments",
    params(MemoryDocumentsParams),
    responses((status = 200, description = "A page of documents", body = List<MemoryDocument>)),
)]
pub async fn list(State(api): State<Api>, caller: Caller, query: Query) -> Result<Response, ApiError> {
    let (of, limit) = (Owner::read(&query, &caller)?.memory(), query.limit()?);
    let found = api.agent.documents().list(&caller.tenant, &of, query.get("after"), limit + 1).await;
    let (found, has_more) = page_of(found.map_err(LookupError::Store)?, limit);
    let data = found.into_iter().map(|document| MemoryDocument::new(&of, document, false)).collect();
    Ok(axum::Json(List::new(data, has_more, |document: &MemoryDocument| document.name.clone())).into_response())
}

/// Reads a document.
#[utoipa::path(
    get, path = "/v1/memory/documents/{name}", tag = "memory", operation_id = "getMemoryDocument",
    params(DocumentPath, MemoryParams),
    responses((status = 200, description = "The document", body = MemoryDocument)),
)]
pub async fn get(
    State(api): State<Api>,
    caller: Caller,
    DocumentPath(name): DocumentPath,
    query: Query,
) -> Result<Response, ApiError> {
    let of = Owner::read(&query, &caller)?.memory();
    let found = api.agent.documents().get(&caller.tenant, &of, &name).await.map_err(LookupError::Store)?;
    let found = found.ok_or_else(|| missing(&name))?;
    Ok(axum::Json(MemoryDocument::new(&of, found, true)).into_response())
}

/// Writes a document.
#[utoipa::path(
    put, path = "/v1/memory/documents/{name}", tag = "memory", operation_id = "putMemoryDocument",
    params(DocumentPath, MemoryParams),
    request_body = PutMemory,
    responses((status = 200, description = "The document", body = MemoryDocument)),
)]
pub async fn put(
    State(api): State<Api>,
    caller: Caller,
    DocumentPath(name): DocumentPath,
    query: Query,
    body: JsonText,
) -> Result<Response, ApiError> {
    let of = Owner::read(&query, &caller)?.memory();
    let put = PutMemory::read(body.as_str()?)?;
    let off =
        || ApiError::new(ErrorCode::Forbidden, "agents of this server remember nothing: memory is off").permanent();
    let limits = memory_limits(&caller.generation.memory.ok_or_else(off)?);
    let put = api.agent.documents().put(&caller.tenant, &of, &name, (&put.change(), &limits)).await?;
    Ok(axum::Json(MemoryDocument::new(&of, put, true)).into_response())
}

/// Deletes a document.
#[utoipa::path(
    delete, path = "/v1/memory/documents/{name}", tag = "memory", operation_id = "deleteMemoryDocument",
    params(DocumentPath, MemoryParams),
    responses((status = 200, description = "It is gone", body = DocumentDeletion)),
)]
pub async fn delete(
    State(api): State<Api>,
    caller: Caller,
    DocumentPath(name): DocumentPath,
    query: Query,
) -> Result<Response, ApiError> {
    let of = Owner::read(&query, &caller)?.memory();
    api.agent.documents().delete(&caller.tenant, &of, (&name, None)).await?;
    Ok(axum::Json(DocumentDeletion { id: name, object: "memory.document", deleted: true }).into_response())
}
