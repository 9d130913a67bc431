//! `/v1/tools`: the tools that agents can be given, and which definitions of them count.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::api::auth::Caller;
use crate::api::error::ApiError;
use crate::api::state::Api;
use crate::api::wire::run::List;
use crate::api::wire::vocabulary::EffectText;
use crate::tools::RegisteredTool;
use crate::tools::registry::HeldTool;
use crate::types::Effect;

/// A tool that agents can be given.
#[derive(Debug, Serialize, ToSchema)]
pub struct ToolObject {
    /// Its name.
    #[schema(example = "calculator")]
    name: String,
    /// What it does.
    description: String,
    /// JSON schema of its arguments.
    #[schema(value_type = BTreeMap<String, Value>)]
    parameters: Box<RawValue>,
    /// `builtin`, `http`, …
    source: String,
    /// `read`, `idempotent` or `write`.
    #[schema(value_type = EffectText, example = "read")]
    effect: Effect,
    /// The SHA-256 of name, description and parameters, and of what an MCP server says of the effect, in hex.
    definition_hash: String,
    /// Why no agent has it until this definition is accepted: `new`, `changed` or `not_pinned`.
    #[serde(skip_serializing_if = "Option::is_none")]
    held_back: Option<&'static str>,
}

/// A definition that was accepted.
#[derive(Debug, Serialize, ToSchema)]
pub struct AcceptedObject {
    /// The tool.
    name: String,
    /// The SHA-256 of its definition, in hex.
    definition_hash: String,
}

/// Lists the server's tools, then those whose definitions are held back.
#[utoipa::path(
    get, path = "/v1/tools", tag = "models", operation_id = "listTools",
    responses((status = 200, description = "All of them", body = List<ToolObject>)),
)]
pub async fn list(caller: Caller) -> Response {
    let registry = caller.generation.tools.current();
    let held = registry.held().values().map(|HeldTool { tool, why }| ToolObject::new(tool, Some(why.as_str())));
    let tools = registry.iter().map(|tool| ToolObject::new(tool, None)).chain(held).collect();
    axum::Json(List::new(tools, false, |tool: &ToolObject| tool.name.clone())).into_response()
}

/// Accepts the definition of a tool that is held back: from now on agents have the tool as it is defined so.
#[utoipa::path(
    put, path = "/v1/tools/{name}/accepted/{hash}", tag = "models", operation_id = "acceptTool",
    params(
        ("name" = String, Path, description = "The tool"),
        ("hash" = String, Path, description = "The `definition_hash` that `GET /v1/tools` shows"),
    ),
    responses((status = 200, description = "It was accepted", body = AcceptedObject)),
)]
pub async fn accept(
    State(api): State<Api>,
    _caller: Caller,
    Path((name, hash)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    api.agent.definitions().accept(&name, &hash).await?;
    Ok((StatusCode::OK, axum::Json(AcceptedObject { name, definition_hash: hash })).into_response())
}

impl ToolObject {
    fn new(tool: &RegisteredTool, held_back: Option<&'static str>) -> Self {
        let spec = tool.spec();
        Self {
            name: spec.name.clone(),
            description: spec.description.clone(),
            parameters: spec.parameters.clone(),
            source: spec.source.as_str().to_owned(),
            effect: spec.effect,
            definition_hash: tool.pin().to_owned(),
            held_back,
        }
    }
}
