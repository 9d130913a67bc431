//! The routes, and the description of them.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::IntoResponse;
use axum::routing::MethodRouter;
use utoipa::OpenApi;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};
use utoipa_axum::routes;

use crate::api::auth::Caller;
use crate::api::state::Api;
use crate::api::wire::openai_error::ErrorBody;
use crate::api::wire::vocabulary::{OrderText, RunStatusText};
use crate::api::{completions, description, health, models, run_events, runs, session_copies, sessions};
use crate::config::Scope;

#[derive(OpenApi)]
#[openapi(
    components(schemas(ErrorBody, OrderText, RunStatusText)),
    info(title = "Loopgate"),
    tags(
        (name = "completions", description = "Run the tool loop"),
        (name = "runs", description = "Read, follow and cancel runs"),
        (name = "sessions", description = "Conversations that outlive their runs"),
        (name = "models", description = "What can be asked for"),
        (name = "operation", description = "For probes"),
    ),
)]
struct Description;

/// All routes; `guard` stands before those that are not open to everyone.
pub fn routes(guard: impl FnOnce(OpenApiRouter<Api>) -> OpenApiRouter<Api>) -> OpenApiRouter<Api> {
    let mut guarded = table([
        ("/v1/agent/completions", needs(Scope::Run, routes!(completions::agent_completions))),
        ("/v1/chat/completions", needs(Scope::Run, routes!(completions::chat_completions))),
        ("/v1/runs", needs(Scope::Read, routes!(runs::list))),
        ("/v1/runs/{id}", needs(Scope::Read, routes!(runs::get))),
        ("/v1/runs/{id}/events", needs(Scope::Read, routes!(run_events::follow))),
        ("/v1/runs/{id}/cancel", needs(Scope::Cancel, routes!(runs::cancel))),
        ("/v1/runs/{id}/messages", needs(Scope::Steer, routes!(runs::steer))),
        ("/v1/sessions", needs(Scope::Read, routes!(sessions::list))),
        ("/v1/sessions", needs(Scope::Sessions, routes!(sessions::create))),
        ("/v1/sessions/{id}", needs(Scope::Read, routes!(sessions::get))),
        ("/v1/sessions/{id}", needs(Scope::Sessions, routes!(sessions::patch, sessions::delete))),
        ("/v1/sessions/{id}/messages", needs(Scope::Read, routes!(sessions::messages))),
        ("/v1/sessions/{id}/cancel", needs(Scope::Cancel, routes!(sessions::cancel))),
        ("/v1/sessions/{id}/fork", needs(Scope::Sessions, routes!(session_copies::fork))),
        ("/v1/sessions/{id}/export", needs(Scope::Read, routes!(session_copies::export))),
        ("/v1/sessions/import", needs(Scope::Sessions, routes!(session_copies::import))),
        ("/v1/models", routes!(models::list)),
        ("/v1/models/{id}", routes!(models::get)),
        ("/v1/tools", routes!(models::tools)),
    ])
    .route("/v1/models/{id}/{*rest}", axum::routing::get(models::get));
    description::guard(guarded.get_openapi_mut());
    let open = table([("/healthz", routes!(health::healthz)), ("/readyz", routes!(health::readyz))]);
    OpenApiRouter::with_openapi(Description::openapi()).merge(guard(guarded)).merge(open)
}

/// Handlers for callers whose keys have this scope.
fn needs(scope: Scope, (schemas, paths, handlers): UtoipaMethodRouter<Api>) -> UtoipaMethodRouter<Api> {
    (schemas, paths, scoped(scope, handlers))
}

fn scoped(scope: Scope, handlers: MethodRouter<Api>) -> MethodRouter<Api> {
    let check =
        async |State(scope): State<Scope>, caller: Caller, request: Request, next: Next| match caller.check(scope) {
            Ok(()) => next.run(request).await,
            Err(error) => error.into_response(),
        };
    handlers.route_layer(axum::middleware::from_fn_with_state(scope, check))
}

/// The rows of a table of routes. A handler's description names its path too, which must be the same.
fn table<const N: usize>(rows: [(&str, UtoipaMethodRouter<Api>); N]) -> OpenApiRouter<Api> {
    rows.into_iter().fold(OpenApiRouter::new(), |router, (path, handlers)| {
        assert!(handlers.1.paths.keys().eq([path]), "{path} has handlers of {:?}", handlers.1.paths.keys());
        router.routes(handlers)
    })
}
