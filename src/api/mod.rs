//! HTTP in, HTTP out: parse, call the agent, encode. No decisions.

mod access;
mod agent_files;
mod agent_header;
mod agents;
pub mod answered;
mod approvals;
mod at_end;
pub mod auth;
mod bodies;
mod budget;
mod budget_headers;
mod canonical;
mod compactions;
mod completions;
mod conversations;
mod description;
mod documents;
mod equal_body;
pub mod error;
mod expected;
mod extract;
pub mod health;
mod identity;
mod index;
mod layers;
pub mod log_fields;
mod memory;
mod memory_documents;
mod messages;
pub mod metrics;
mod models;
mod nested;
mod operators;
mod page_starts;
mod paging;
mod params;
mod pool;
mod questions;
mod readers;
mod responses;
mod routes;
mod run_events;
mod run_trace;
mod run_tree;
mod runs;
mod schedules;
mod session_copies;
mod sessions;
mod skills;
mod splices;
mod sse;
mod state;
#[cfg(test)]
mod tests;
mod tokens;
mod tool_results;
mod tools;
mod trace;
mod ui;
mod ui_stream;
mod unknown;
mod usage;
pub mod wire;

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, StatusCode, Uri};
use utoipa::openapi::OpenApi as Document;

pub use self::access::MetricsAccess;
pub use self::bodies::Bodies;
pub use self::readers::ReaderMemory;
pub use self::state::Api;
use crate::agent::Agent;
use crate::api::auth::{Guard, RequestRates};
use crate::api::error::ApiError;
use crate::api::index::DESCRIPTION;
use crate::api::routes::routes;
use crate::api::schedules::ScheduledRequests;
use crate::api::unknown::{unknown_url, wrong_method};

/// The router of the HTTP contract, with its description at `/openapi.json` and `/docs`.
pub fn router(agent: Agent, rates: &Arc<RequestRates>, metrics: MetricsAccess) -> Router {
    agent.schedules().read_with(Arc::new(ScheduledRequests));
    let guard = Guard { rates: rates.clone(), agent: agent.clone() };
    let guard = axum::middleware::from_fn_with_state(guard, auth::admit);
    let docs = utoipa_swagger_ui::SwaggerUi::new("/docs").config(utoipa_swagger_ui::Config::from(DESCRIPTION));
    let docs = Router::from(docs).layer(axum::middleware::from_fn(in_shape));
    let router = routes(|guarded| guarded.layer(guard.clone())).route(DESCRIPTION, get(description)).merge(docs);
    let router = router.method_not_allowed_fallback(method_not_allowed).fallback(unknown_route);
    router.with_state(Api { agent, metrics })
}

/// The description of the HTTP contract, built of what the code says.
#[must_use]
pub fn openapi() -> Document {
    description::finish(routes::describe())
}

/// The description as it was built before the server was: to build it takes some MB, most of what a server at rest
/// would hold.
async fn description() -> Response {
    ([(CONTENT_TYPE, "application/json")], include_str!("../../openapi/openapi.json")).into_response()
}

/// The pages' own 404 has no body.
async fn in_shape(request: axum::extract::Request, next: axum::middleware::Next) -> Response {
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let response = next.run(request).await;
    if response.status() == StatusCode::NOT_FOUND { unknown_url(&method, &uri) } else { response }
}

async fn unknown_route(State(api): State<Api>, method: Method, uri: Uri, headers: HeaderMap) -> Response {
    match ask_for_key(&api, &uri, &headers) {
        Ok(()) => unknown_url(&method, &uri),
        Err(error) => error.into_response(),
    }
}

/// Nothing is said of the API to those without a key, not even what it does not have.
fn ask_for_key(api: &Api, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
    if uri.path().starts_with("/v1/") { auth::check_key(&api.agent, headers) } else { Ok(()) }
}

async fn method_not_allowed(State(api): State<Api>, method: Method, uri: Uri, headers: HeaderMap) -> Response {
    if let Err(error) = ask_for_key(&api, &uri, &headers) {
        return error.into_response();
    }
    wrong_method(&method, &uri)
}
