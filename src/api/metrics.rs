//! `/metrics`.

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{HeaderMap, HeaderValue, Method, Uri, header};

use crate::agent::Agent;
use crate::api::access::MetricsAccess;
use crate::api::auth;
use crate::api::error::ApiError;
use crate::api::state::Api;
use crate::api::unknown::{unknown_url, wrong_method};
use crate::config::Scope;
use crate::telemetry::metrics::Format;

/// The router of an address at which there is nothing but the metrics.
pub fn router(agent: Agent, access: MetricsAccess) -> Router {
    let nothing = |method: Method, uri: Uri| async move { unknown_url(&method, &uri) };
    let not_so = |method: Method, uri: Uri| async move { wrong_method(&method, &uri) };
    let router = Router::new().route("/metrics", get(metrics)).method_not_allowed_fallback(not_so).fallback(nothing);
    router.with_state(Api { agent, metrics: access })
}

/// The metrics of this replica, for Prometheus.
///
/// In the text format of Prometheus, or in that of OpenMetrics if `Accept` prefers it. Where keys are declared, the key
/// needs the scope `metrics`, unless the server is configured to ask for none.
#[utoipa::path(
    get, path = "/metrics", tag = "operation", operation_id = "getMetrics",
    responses((status = 200, description = "The metrics", content(
                  (String = "text/plain; version=0.0.4; charset=utf-8"),
                  (String = "application/openmetrics-text; version=1.0.0; charset=utf-8"))),
              (status = "4XX", description = "No such key, a key without the scope, or metrics that are off or elsewhere",
               body = crate::api::wire::openai_error::ErrorBody)),
)]
pub async fn metrics(State(api): State<Api>, method: Method, uri: Uri, headers: HeaderMap) -> Response {
    match api.metrics {
        MetricsAccess::Disabled => return unknown_url(&method, &uri),
        MetricsAccess::Key => {
            if let Err(error) = auth::check_scope(&api.agent, &headers, Scope::Metrics) {
                return error.into_response();
            }
        }
        MetricsAccess::Public => {}
    }
    let accept = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let format = Format::preferred(accept);
    api.agent.metrics().show_breakers(api.agent.breakers());
    api.agent.metrics().mcp().show(api.agent.mcp_servers());
    match api.agent.metrics().write(format, api.agent.figures()) {
        None => unknown_url(&method, &uri),
        Some(Ok(text)) => {
            let content_type = HeaderValue::from_static(format.content_type());
            ([(header::CONTENT_TYPE, content_type)], text).into_response()
        }
        Some(Err(error)) => ApiError::internal(&error).into_response(),
    }
}
