//! The routes, and the description of them.

use utoipa::OpenApi;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};
use utoipa_axum::routes;

use crate::api::state::Api;
use crate::api::wire::openai_error::ErrorBody;
use crate::api::wire::vocabulary::{OrderText, RunStatusText};
use crate::api::{completions, description, health, models, run_events, runs, session_copies, sessions};

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
        ("/v1/agent/completions", routes!(completions::agent_completions)),
        ("/v1/chat/completions", routes!(completions::chat_completions)),
        ("/v1/runs", routes!(runs::list)),
        ("/v1/runs/{id}", routes!(runs::get)),
        ("/v1/runs/{id}/events", routes!(run_events::follow)),
        ("/v1/runs/{id}/cancel", routes!(runs::cancel)),
        ("/v1/runs/{id}/messages", routes!(runs::steer)),
        ("/v1/sessions", routes!(sessions::list, sessions::create)),
        ("/v1/sessions/{id}", routes!(sessions::get, sessions::patch, sessions::delete)),
        ("/v1/sessions/{id}/messages", routes!(sessions::messages)),
        ("/v1/sessions/{id}/cancel", routes!(sessions::cancel)),
        ("/v1/sessions/{id}/fork", routes!(session_copies::fork)),
        ("/v1/sessions/{id}/export", routes!(session_copies::export)),
        ("/v1/sessions/import", routes!(session_copies::import)),
        ("/v1/models", routes!(models::list)),
        ("/v1/models/{id}", routes!(models::get)),
        ("/v1/tools", routes!(models::tools)),
    ]);
    description::guard(guarded.get_openapi_mut());
    let open = table([("/healthz", routes!(health::healthz)), ("/readyz", routes!(health::readyz))]);
    OpenApiRouter::with_openapi(Description::openapi()).merge(guard(guarded)).merge(open)
}

/// The rows of a table of routes. A handler's description names its path too, which must be the same.
fn table<const N: usize>(rows: [(&str, UtoipaMethodRouter<Api>); N]) -> OpenApiRouter<Api> {
    rows.into_iter().fold(OpenApiRouter::new(), |router, (path, handlers)| {
        assert!(handlers.1.paths.keys().eq([path]), "{path} has handlers of {:?}", handlers.1.paths.keys());
        router.routes(handlers)
    })
}
