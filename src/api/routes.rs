//! The routes, and the description of them.

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any, get};
use http::{Method, Uri};
use utoipa::OpenApi;
use utoipa::openapi::OpenApi as Document;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};
use utoipa_axum::routes;

use crate::api::auth::Caller;
use crate::api::log_fields::LogFields;
use crate::api::state::Api;
use crate::api::unknown::unknown_url;
use crate::api::wire::messages::error::MessagesErrorBody;
use crate::api::wire::openai_error::ErrorBody;
use crate::api::wire::vocabulary::{OrderText, RunStatusText};
use crate::api::{
    agent_files, agents, approvals, budget, compactions, completions, conversations, description, health, index,
    layers, memory, memory_documents, messages, metrics, models, questions, responses, run_events, run_trace, run_tree,
    runs, schedules, session_copies, sessions, skills, splices, tokens, tool_results, tools, ui, usage,
};
use crate::config::Scope;

#[derive(OpenApi)]
#[openapi(
    components(schemas(ErrorBody, MessagesErrorBody<'_>, OrderText, RunStatusText)),
    info(title = "Loopgate"),
    tags(
        (name = "completions", description = "Run the tool loop"),
        (name = "responses", description = "Run the tool loop in the dialect of OpenAI's Responses"),
        (name = "conversations", description = "Sessions in the dialect of OpenAI's Responses"),
        (name = "messages", description = "Run the tool loop in the dialect of Anthropic's Messages"),
        (name = "ui", description = "Run the tool loop for chat interfaces"),
        (name = "runs", description = "Read, follow and cancel runs"),
        (name = "sessions", description = "Conversations that outlive their runs"),
        (name = "agents", description = "Agents that tenants keep beside those of the configuration"),
        (name = "schedules", description = "Requests that the server makes itself, at certain times"),
        (name = "memory", description = "What agents remember, and what they know how to do"),
        (name = "tokens", description = "What pages of a browser show in place of a key"),
        (name = "models", description = "What can be asked for"),
        (name = "usage", description = "What runs took, and what is left"),
        (name = "operation", description = "For probes and monitoring"),
    ),
)]
struct Description;

/// A row of the table of routes.
struct Row {
    path: &'static str,
    handlers: MethodRouter<Api>,
    /// Builds the description. It takes some MB for a moment, so a server does without it.
    describe: fn() -> UtoipaMethodRouter<Api>,
}

/// A row whose handlers each have a method. A handler's description names method and path too, which must be the same.
macro_rules! row {
    ($path:literal, $($method:ident $handler:path),+) => {
        Row {
            path: $path,
            handlers: MethodRouter::new()$(.$method($handler))+,
            describe: || routes!($($handler),+),
        }
    };
}

/// All routes; `guard` stands before those that are not open to everyone.
pub fn routes(guard: impl Fn(Router<Api>) -> Router<Api>) -> Router<Api> {
    let router =
        |rows: Vec<Row>| rows.into_iter().fold(Router::new(), |router, row| router.route(row.path, row.handlers));
    let nothing = |method: Method, uri: Uri| async move { unknown_url(&method, &uri) };
    let guarded = router(guarded())
        .route("/v1/models/{id}/{*rest}", get(models::get))
        // OpenAI has it and this server does not. It is no response's id.
        .route("/v1/responses/compact", any(nothing));
    let in_shape = axum::middleware::from_fn(messages::refusals::in_shape);
    let of_anthropic = guard(router(of_anthropic())).layer(in_shape);
    let probes = router(probes()).layer(axum::middleware::map_response(routine));
    guard(guarded).merge(of_anthropic).merge(probes).merge(router(open()))
}

/// Marks what comes every few seconds.
async fn routine(mut response: Response) -> Response {
    LogFields::of(&mut response).is_routine = true;
    response
}

/// What handlers and types say of the routes.
pub fn describe() -> Document {
    let mut guarded = table(guarded()).merge(table(of_anthropic()));
    description::guard(guarded.get_openapi_mut());
    OpenApiRouter::with_openapi(Description::openapi())
        .merge(guarded)
        .merge(table(probes()))
        .merge(table(open()))
        .into_openapi()
}

fn probes() -> Vec<Row> {
    vec![
        row!("/healthz", get health::healthz),
        row!("/readyz", get health::readyz),
        // It asks for a key itself, if it is to.
        row!("/metrics", get metrics::metrics),
    ]
}

fn open() -> Vec<Row> {
    vec![
        row!("/", get index::index),
        // It asks for the token of a call.
        row!("/v1/tool-results/{call_id}", post tool_results::answer),
    ]
}

/// Those whose errors are in Anthropic's shape, even where a key is refused.
fn of_anthropic() -> Vec<Row> {
    vec![
        needs(Scope::Run, row!("/v1/messages", post messages::create::create)),
        needs(Scope::Run, row!("/v1/messages/count_tokens", post messages::count::count)),
    ]
}

fn guarded() -> Vec<Row> {
    of_runs_and_sessions().into_iter().chain(of_conversations()).chain(of_tenants()).collect()
}

/// Sessions as clients of OpenAI's Responses know them.
fn of_conversations() -> Vec<Row> {
    vec![
        needs(Scope::Sessions, row!("/v1/conversations", post conversations::create)),
        needs(Scope::Read, row!("/v1/conversations/{id}", get conversations::get)),
        needs(
            Scope::Sessions,
            row!("/v1/conversations/{id}", post conversations::update, delete conversations::delete),
        ),
        needs(Scope::Read, row!("/v1/conversations/{id}/items", get conversations::items::list)),
        needs(Scope::Sessions, row!("/v1/conversations/{id}/items", post conversations::items::add)),
        needs(Scope::Read, row!("/v1/conversations/{id}/items/{item}", get conversations::items::get)),
        needs(Scope::Sessions, row!("/v1/conversations/{id}/items/{item}", delete conversations::items::delete)),
    ]
}

fn of_runs_and_sessions() -> Vec<Row> {
    vec![
        needs(Scope::Run, row!("/v1/agent/completions", post completions::agent_completions)),
        needs(Scope::Run, row!("/v1/chat/completions", post completions::chat_completions)),
        needs(Scope::Run, row!("/v1/agent/ui", post ui::chat::send)),
        needs(Scope::Read, row!("/v1/agent/ui/{id}/stream", get ui::chat::resume)),
        needs(Scope::Run, row!("/v1/agent/ag-ui", post ui::ag_ui::run)),
        needs(Scope::Run, row!("/v1/responses", post responses::create::create)),
        needs(Scope::Run, row!("/v1/responses/input_tokens", post responses::count::count)),
        needs(Scope::Read, row!("/v1/responses/{id}", get responses::read::get)),
        needs(Scope::Sessions, row!("/v1/responses/{id}", delete responses::read::delete)),
        needs(Scope::Cancel, row!("/v1/responses/{id}/cancel", post responses::read::cancel)),
        needs(Scope::Read, row!("/v1/responses/{id}/input_items", get responses::input_items::list)),
        needs_or_operator(Scope::Read, row!("/v1/runs", get runs::list)),
        needs_or_operator(Scope::Read, row!("/v1/runs/{id}", get runs::get)),
        needs_or_operator(Scope::Read, row!("/v1/runs/{id}/events", get run_events::follow)),
        needs_or_operator(Scope::Read, row!("/v1/runs/{id}/trace", get run_trace::get)),
        needs(Scope::Read, row!("/v1/runs/{id}/tree", get run_tree::get)),
        needs_or_operator(Scope::Cancel, row!("/v1/runs/{id}/cancel", post runs::cancel)),
        needs(Scope::Approvals, row!("/v1/runs/{id}/approvals", post approvals::decide)),
        needs(Scope::Steer, row!("/v1/runs/{id}/answers", post questions::answer)),
        needs(Scope::Steer, row!("/v1/runs/{id}/messages", post runs::steer)),
        needs(Scope::Read, row!("/v1/sessions", get sessions::list)),
        needs(Scope::Sessions, row!("/v1/sessions", post sessions::create)),
        needs(Scope::Read, row!("/v1/sessions/{id}", get sessions::get)),
        needs(Scope::Sessions, row!("/v1/sessions/{id}", patch sessions::patch, delete sessions::delete)),
        needs(Scope::Read, row!("/v1/sessions/{id}/messages", get sessions::messages)),
        needs(Scope::Read, row!("/v1/sessions/{id}/layers", get layers::list)),
        needs(Scope::Read, row!("/v1/sessions/{id}/layers/{name}", get layers::get)),
        needs(Scope::Sessions, row!("/v1/sessions/{id}/layers/{name}", put layers::put, delete layers::delete)),
        needs(Scope::Cancel, row!("/v1/sessions/{id}/cancel", post sessions::cancel)),
        needs(Scope::Run, row!("/v1/sessions/{id}/compact", post compactions::compact)),
        needs(Scope::Sessions, row!("/v1/sessions/{id}/splice", post splices::splice)),
        needs(Scope::Read, row!("/v1/sessions/{id}/splices", get splices::list)),
        needs(Scope::Sessions, row!("/v1/sessions/{id}/fork", post session_copies::fork)),
        needs(Scope::Read, row!("/v1/sessions/{id}/export", get session_copies::export)),
        needs(Scope::Sessions, row!("/v1/sessions/import", post session_copies::import)),
    ]
}

/// What tenants keep beside runs and sessions, and what they can ask for.
fn of_tenants() -> Vec<Row> {
    vec![
        needs(Scope::Read, row!("/v1/memory", get memory::export)),
        needs(Scope::Memory, row!("/v1/memory", delete memory::erase)),
        needs(Scope::Read, row!("/v1/memory/documents", get memory_documents::list)),
        needs(Scope::Read, row!("/v1/memory/documents/{name}", get memory_documents::get)),
        needs(
            Scope::Memory,
            row!("/v1/memory/documents/{name}", put memory_documents::put, delete memory_documents::delete),
        ),
        needs(Scope::Read, row!("/v1/agents/{agent}/files", get agent_files::list)),
        needs(Scope::Read, row!("/v1/agents/{agent}/files/{file}", get agent_files::get)),
        needs(Scope::Skills, row!("/v1/agents/{agent}/files/{file}", put agent_files::put, delete agent_files::delete)),
        needs(Scope::Read, row!("/v1/skills", get skills::list)),
        needs(Scope::Read, row!("/v1/skills/{name}", get skills::get)),
        needs(Scope::Skills, row!("/v1/skills/{name}", put skills::put, delete skills::delete)),
        needs(Scope::Usage, row!("/v1/usage", get usage::usage)),
        row!("/v1/budget", get budget::budget),
        row!("/v1/models", get models::list),
        row!("/v1/models/{id}", get models::get),
        needs(Scope::Agents, row!("/v1/agents", get agents::list)),
        needs(
            Scope::Agents,
            row!("/v1/agents/{agent}", get agents::get, put agents::put, patch agents::patch, delete agents::delete),
        ),
        needs(Scope::Agents, row!("/v1/agents/{agent}/versions", get agents::versions)),
        needs(Scope::Agents, row!("/v1/agents/{agent}/versions/{version}/restore", post agents::restore)),
        needs(Scope::Read, row!("/v1/schedules", get schedules::list)),
        needs(Scope::Schedules, row!("/v1/schedules", post schedules::create)),
        needs(Scope::Read, row!("/v1/schedules/{schedule}", get schedules::get)),
        needs(Scope::Schedules, row!("/v1/schedules/{schedule}", patch schedules::patch, delete schedules::delete)),
        needs(Scope::Schedules, row!("/v1/schedules/{schedule}/run", post schedules::run)),
        row!("/v1/tokens", post tokens::create, delete tokens::revoke_all),
        row!("/v1/tokens/{token}", delete tokens::revoke),
        row!("/v1/tools", get tools::list),
        needs(Scope::Tools, row!("/v1/tools/{name}/accepted/{hash}", put tools::accept)),
    ]
}

/// Handlers for callers whose keys have this scope.
fn needs(scope: Scope, Row { path, handlers, describe }: Row) -> Row {
    let check =
        async |State(scope): State<Scope>, caller: Caller, request: Request, next: Next| match caller.check(scope) {
            Ok(()) => next.run(request).await,
            Err(error) => error.into_response(),
        };
    let handlers = handlers.route_layer(axum::middleware::from_fn_with_state(scope, check));
    Row { path, handlers, describe }
}

/// The same, for callers as well who operate the server.
fn needs_or_operator(scope: Scope, Row { path, handlers, describe }: Row) -> Row {
    let check = async |State(scope): State<Scope>, caller: Caller, request: Request, next: Next| {
        let refused = if caller.is_operator() { None } else { caller.check(scope).err() };
        match refused {
            None => next.run(request).await,
            Some(error) => error.into_response(),
        }
    };
    let handlers = handlers.route_layer(axum::middleware::from_fn_with_state(scope, check));
    Row { path, handlers, describe }
}

fn table(rows: Vec<Row>) -> OpenApiRouter<Api> {
    rows.into_iter().fold(OpenApiRouter::new(), |router, row| {
        let described = (row.describe)();
        let paths = described.1.paths.keys();
        assert!(paths.clone().eq([row.path]), "{} has handlers of {paths:?}", row.path);
        router.routes(described)
    })
}
