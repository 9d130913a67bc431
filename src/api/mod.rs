//! HTTP in, HTTP out: parse, call the agent, encode. No decisions.

pub mod callers;
mod completions;
pub mod error;
mod extract;
mod health;
mod idempotency;
mod models;
mod runs;
mod session_copies;
mod sessions;
mod sse;
mod state;
#[cfg(test)]
mod tests;
pub mod wire;

use std::sync::Arc;

use axum::Router;
use axum::response::{IntoResponse, Response};
use http::{Method, StatusCode, Uri};
use utoipa::OpenApi;
use utoipa::openapi::OpenApi as Document;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub use self::state::Api;
use crate::agent::Agent;
use crate::api::callers::{Guard, RequestRates};
use crate::api::error::ApiError;
use crate::api::wire::error::ErrorCode;

#[derive(OpenApi)]
#[openapi(
    info(title = "Loopgate"),
    tags(
        (name = "completions", description = "Run the tool loop"),
        (name = "runs", description = "Read, follow and cancel runs"),
        (name = "sessions", description = "Conversations that outlive their runs"),
        (name = "models", description = "What can be asked for"),
        (name = "operation", description = "For probes"),
    ),
    security((), ("bearer" = [])),
)]
struct Description;

/// All routes, and the description of them; `guard` stands before those that are not open to everyone.
fn routes(guard: impl FnOnce(OpenApiRouter<Api>) -> OpenApiRouter<Api>) -> OpenApiRouter<Api> {
    let guarded = OpenApiRouter::new()
        .routes(routes!(completions::agent_completions))
        .routes(routes!(completions::chat_completions))
        .routes(routes!(runs::list))
        .routes(routes!(runs::get))
        .routes(routes!(runs::events))
        .routes(routes!(runs::cancel))
        .routes(routes!(runs::steer))
        .routes(routes!(sessions::list, sessions::create))
        .routes(routes!(sessions::get, sessions::patch, sessions::delete))
        .routes(routes!(sessions::messages))
        .routes(routes!(sessions::cancel))
        .routes(routes!(session_copies::fork))
        .routes(routes!(session_copies::export))
        .routes(routes!(session_copies::import))
        .route("/v1/sessions/import", session_copies::session_called_import())
        .routes(routes!(models::list))
        .routes(routes!(models::get))
        .routes(routes!(models::tools));
    OpenApiRouter::with_openapi(Description::openapi())
        .merge(guard(guarded))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
}

/// The router of the HTTP contract, with its description at `/openapi.json` and `/docs`.
pub fn router(agent: Agent, rates: &Arc<RequestRates>) -> Router {
    let guard = Guard { rates: rates.clone(), agent: agent.clone() };
    let guard = axum::middleware::from_fn_with_state(guard, callers::admit);
    let (router, document) = routes(|guarded| guarded.layer(guard)).split_for_parts();
    let docs = utoipa_swagger_ui::SwaggerUi::new("/docs").url("/openapi.json", described(document));
    let docs = Router::from(docs).layer(axum::middleware::from_fn(in_shape));
    router.merge(docs).method_not_allowed_fallback(method_not_allowed).fallback(unknown_url).with_state(Api { agent })
}

/// The description of the HTTP contract.
#[must_use]
pub fn openapi() -> Document {
    described(routes(|guarded| guarded).split_for_parts().1)
}

fn described(mut document: Document) -> Document {
    let bearer = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
    document.components.get_or_insert_default().add_security_scheme("bearer", bearer);
    document
}

/// The pages' own 404 has no body.
async fn in_shape(request: axum::extract::Request, next: axum::middleware::Next) -> Response {
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let response = next.run(request).await;
    if response.status() == StatusCode::NOT_FOUND { unknown_url(method, uri).await } else { response }
}

async fn unknown_url(method: Method, uri: Uri) -> Response {
    let path = wire::body::clip(uri.path()).to_owned();
    ApiError::new(ErrorCode::UnknownUrl, format!("there is nothing at {method} {path}")).into_response()
}

async fn method_not_allowed(method: Method, uri: Uri) -> Response {
    let path = wire::body::clip(uri.path()).to_owned();
    let message = format!("{path} does not take {method}");
    ApiError::new(ErrorCode::MethodNotAllowed, message).into_response()
}
