//! The layers that every request passes through, in order, outermost first.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request};
use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, Method};
use tower::ServiceBuilder;
use tower_http::ServiceBuilderExt;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};
use tower_http::request_id::{MakeRequestUuid, RequestId};
use tower_http::trace::TraceLayer;
use tracing::{Span, field};

use super::entrance::{Entrance, enter};
use crate::agent::Agent;
use crate::api::error::ApiError;
use crate::api::log_fields::LogFields;
use crate::config::ServerConfig;
use crate::telemetry::metrics::Metrics;

/// Longest request id that is taken over from a caller. Not a setting: a longer one is replaced, which does no harm.
const MAX_REQUEST_ID: usize = 128;
/// How long a browser may remember what is allowed. Not a setting: browsers have lower bounds of their own, and
/// origins change only with a restart.
const CORS_MAX_AGE: Duration = Duration::from_secs(600);
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Wraps the router.
pub(super) fn apply(router: Router, settings: &ServerConfig, agent: Agent) -> Router {
    let metrics = agent.metrics().clone();
    let answered = move |response: &Response<_>, latency: Duration, span: &Span| {
        count(&metrics, response, latency);
        log(response, latency, span);
    };
    let layers = ServiceBuilder::new()
        // A foreign id that is not sane is replaced, like one that is absent; the log line needs it.
        .map_request(drop_bad_request_id)
        .set_x_request_id(MakeRequestUuid)
        // One log line for each request, so everything below it is seen in it.
        .layer(TraceLayer::new_for_http().make_span_with(span).on_request(()).on_response(answered).on_failure(()))
        // Also on errors and on the answers to preflights.
        .propagate_x_request_id()
        // A browser must be able to read the errors that follow.
        .option_layer(cors(&settings.cors_origins))
        // One request that panics is one 500.
        .layer(CatchPanicLayer::custom(|_| ApiError::internal(&"a handler panicked").into_response()))
        .layer(DefaultBodyLimit::max(usize::try_from(settings.max_body).unwrap_or(usize::MAX)))
        .layer(axum::middleware::from_fn_with_state(Arc::new(Entrance::new(settings, agent)), enter));
    // No compression, anywhere: it would hold streamed events back.
    Router::new().fallback_service(layers.service(router))
}

fn drop_bad_request_id(mut request: Request) -> Request {
    let sane = |value: &HeaderValue| {
        (1..=MAX_REQUEST_ID).contains(&value.len()) && value.as_bytes().iter().all(u8::is_ascii_graphic)
    };
    if request.headers().get(REQUEST_ID).is_some_and(|value| !sane(value)) {
        request.headers_mut().remove(REQUEST_ID);
    }
    request
}

fn span(request: &Request) -> Span {
    let id = request.extensions().get::<RequestId>().and_then(|id| id.header_value().to_str().ok()).unwrap_or_default();
    let route = request.extensions().get::<MatchedPath>().map_or_else(|| request.uri().path(), MatchedPath::as_str);
    tracing::info_span!("request", id, method = %request.method(), path = route)
}

/// Counts an answer by its route. What has none is counted together: what no route was found for, and probes.
fn count<B>(metrics: &Metrics, response: &Response<B>, latency: Duration) {
    let fields = response.extensions().get::<LogFields>();
    let route = fields.and_then(|fields| fields.route.as_ref()).map_or("other", MatchedPath::as_str);
    metrics.answered_request(route, response.status().as_u16(), latency);
    if let Some(code) = fields.and_then(|fields| fields.code) {
        metrics.refused_request(code);
    }
}

fn log<B>(response: &Response<B>, latency: Duration, span: &Span) {
    let (status, latency_ms) = (response.status().as_u16(), (latency.as_secs_f64() * 1e6).round() / 1e3);
    let run = response.headers().get("x-loopgate-run-id").and_then(|run| run.to_str().ok());
    let unknown = LogFields::default();
    let fields = response.extensions().get().unwrap_or(&unknown);
    let LogFields { tenant, key, token, trace_id, code, model, tokens, cost_usd, route: _, is_planned, is_routine } =
        fields;
    let tenant = tenant.as_ref().map(field::display);
    macro_rules! line {
        ($level:ident) => {
            tracing::$level!(
                parent: span, status, latency_ms, run, tenant, key, token, trace_id, code, model, tokens, cost_usd, "served"
            )
        };
    }
    if response.status().is_server_error() && !is_planned {
        line!(warn);
    } else if *is_routine && response.status().is_success() {
        line!(debug);
    } else {
        line!(info);
    }
}

fn cors(origins: &[String]) -> Option<CorsLayer> {
    if origins.is_empty() {
        return None;
    }
    let origin = if origins.iter().any(|origin| origin == "*") {
        AllowOrigin::any()
    } else {
        AllowOrigin::list(origins.iter().filter_map(|origin| origin.parse().ok()))
    };
    let exposed = [
        "x-request-id",
        "request-id",
        "x-loopgate-run-id",
        "x-loopgate-session-id",
        "x-loopgate-trace-id",
        "x-vercel-ai-ui-message-stream",
        "x-should-retry",
        "idempotent-replayed",
        "retry-after",
        "x-ratelimit-limit-requests",
        "x-ratelimit-remaining-requests",
        "x-ratelimit-reset-requests",
        "x-ratelimit-limit-tokens",
        "x-ratelimit-remaining-tokens",
        "x-ratelimit-reset-tokens",
        "x-ratelimit-limit-cost",
        "x-ratelimit-remaining-cost",
        "x-ratelimit-reset-cost",
        "x-loopgate-budget-warning",
    ];
    let layer = CorsLayer::new()
        .allow_origin(origin)
        .allow_methods([Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE])
        .max_age(CORS_MAX_AGE)
        // Whatever a client library adds; no cookies are involved.
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(exposed.map(HeaderName::from_static));
    Some(layer)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::routing::get;
    use http_body_util::BodyExt;
    use serde_json::Value;
    use tower::ServiceExt;

    use super::*;
    use crate::config::{Options, Settings, StoreUrl};
    use crate::server::Server;

    async fn broken() {
        panic!("as told")
    }

    /// The client learns nothing of it but the request's id, by which the log has more.
    #[tokio::test]
    async fn a_handler_that_panics_costs_no_more_than_its_answer() {
        let options = Options { store: Some(StoreUrl::Memory), ..Options::default() };
        let settings = Settings::load(&options, &|_| None).unwrap();
        let (server, _) = Server::build(settings.clone()).await.unwrap();
        let router = Router::new().route("/broken", get(broken)).route("/fine", get(|| async { "fine" }));
        let router = apply(router, &settings.server, server.agent().clone());
        let ask = |path: &str| {
            let request = Request::builder().uri(path).header("host", "localhost").header("x-request-id", "req-7");
            router.clone().oneshot(request.body(Body::empty()).unwrap())
        };
        let response = ask("/broken").await.unwrap();
        assert_eq!(response.status(), 500);
        assert_eq!(response.headers()["x-request-id"], "req-7");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let error: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(error["error"]["code"], "internal_error");
        assert!(!error.to_string().contains("as told") && !error.to_string().contains("panicked"), "{error}");
        assert_eq!(ask("/fine").await.unwrap().status(), 200);
    }
}
