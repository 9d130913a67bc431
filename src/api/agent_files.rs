//! `/v1/agents/{agent}/files`: what agents are told from the start.

use axum::extract::State;
use axum::response::{IntoResponse, Response};

use crate::agent::documents::Collection;
use crate::agent::documents::files::{FILE_LIMITS, files_of};
use crate::agent::error::LookupError;
use crate::api::auth::Caller;
use crate::api::documents::{DocumentDeletion, Owner, missing};
use crate::api::error::ApiError;
use crate::api::extract::{JsonText, Query, Texts};
use crate::api::paging::page_of;
use crate::api::params::{AgentFileParams, AgentFilesParams};
use crate::api::state::Api;
use crate::api::wire::document::{MemoryDocument, PutMemory};
use crate::api::wire::run::List;

/// Lists the files of an agent by their names, or a user's copies of them.
#[utoipa::path(
    get, path = "/v1/agents/{agent}/files", tag = "memory", operation_id = "listAgentFiles",
    params(("agent" = String, Path, description = "The agent"), AgentFilesParams),
    responses((status = 200, description = "A page of files", body = List<MemoryDocument>)),
)]
pub async fn list(
    State(api): State<Api>,
    caller: Caller,
    Texts(agent): Texts<String>,
    query: Query,
) -> Result<Response, ApiError> {
    let (of, limit) = (files(&agent, &query, &caller)?, query.limit()?);
    let found = api.agent.documents().list(&caller.tenant, &of, query.get("after"), limit + 1).await;
    let (found, has_more) = page_of(found.map_err(LookupError::Store)?, limit);
    let data = found.into_iter().map(|file| MemoryDocument::new(&of, file, false)).collect();
    Ok(axum::Json(List::new(data, has_more, |file: &MemoryDocument| file.name.clone())).into_response())
}

/// Reads a file.
#[utoipa::path(
    get, path = "/v1/agents/{agent}/files/{file}", tag = "memory", operation_id = "getAgentFile",
    params(
        ("agent" = String, Path, description = "The agent"), ("file" = String, Path, description = "The file"),
        AgentFileParams,
    ),
    responses((status = 200, description = "The file", body = MemoryDocument)),
)]
pub async fn get(
    State(api): State<Api>,
    caller: Caller,
    Texts((agent, file)): Texts<(String, String)>,
    query: Query,
) -> Result<Response, ApiError> {
    let of = files(&agent, &query, &caller)?;
    let found = api.agent.documents().get(&caller.tenant, &of, &file).await.map_err(LookupError::Store)?;
    let found = found.ok_or_else(|| missing(&file))?;
    Ok(axum::Json(MemoryDocument::new(&of, found, true)).into_response())
}

/// Writes a file: runs that begin from now on are told what it says.
#[utoipa::path(
    put, path = "/v1/agents/{agent}/files/{file}", tag = "memory", operation_id = "putAgentFile",
    params(
        ("agent" = String, Path, description = "The agent"), ("file" = String, Path, description = "The file"),
        AgentFileParams,
    ),
    request_body = PutMemory,
    responses((status = 200, description = "The file", body = MemoryDocument)),
)]
pub async fn put(
    State(api): State<Api>,
    caller: Caller,
    Texts((agent, file)): Texts<(String, String)>,
    query: Query,
    body: JsonText,
) -> Result<Response, ApiError> {
    let (of, put) = (files(&agent, &query, &caller)?, PutMemory::read(body.as_str()?)?);
    let put = api.agent.documents().put(&caller.tenant, &of, &file, (&put.change(), &FILE_LIMITS)).await?;
    Ok(axum::Json(MemoryDocument::new(&of, put, true)).into_response())
}

/// Deletes a file.
#[utoipa::path(
    delete, path = "/v1/agents/{agent}/files/{file}", tag = "memory", operation_id = "deleteAgentFile",
    params(
        ("agent" = String, Path, description = "The agent"), ("file" = String, Path, description = "The file"),
        AgentFileParams,
    ),
    responses((status = 200, description = "It is gone", body = DocumentDeletion)),
)]
pub async fn delete(
    State(api): State<Api>,
    caller: Caller,
    Texts((agent, file)): Texts<(String, String)>,
    query: Query,
) -> Result<Response, ApiError> {
    let of = files(&agent, &query, &caller)?;
    api.agent.documents().delete(&caller.tenant, &of, (&file, None)).await?;
    Ok(axum::Json(DocumentDeletion { id: file, object: "memory.document", deleted: true }).into_response())
}

/// The files of an agent, or a user's copies of them, if the caller may see them.
fn files(agent: &str, query: &Query, caller: &Caller) -> Result<Collection, ApiError> {
    let user = query.get("user").filter(|user| !user.is_empty()).map(str::to_owned);
    let owner = Owner { agent: Some(agent.to_owned()), user }.checked(caller)?;
    Ok(files_of(agent, owner.user.as_deref()))
}
