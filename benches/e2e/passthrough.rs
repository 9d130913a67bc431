//! The first baseline: a proxy that hands every byte on and understands none of them.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::ListenerExt;
use http::StatusCode;
use http::header::HOST;
use http::uri::{Authority, Scheme, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;

use crate::failure::Failure;

#[derive(Clone)]
struct Upstream {
    client: Client<HttpConnector, Body>,
    authority: Authority,
}

/// Forwards everything but `/healthz` to `upstream` until the process is killed.
pub(crate) async fn serve(listener: TcpListener, upstream: SocketAddr) -> Result<(), Failure> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new()).build(connector);
    let upstream = Upstream { client, authority: upstream.to_string().parse()? };
    let routes = Router::new().route("/healthz", get(async || "ok")).fallback(forward).with_state(upstream);
    let listener = listener.tap_io(|stream| stream.set_nodelay(true).unwrap_or_default());
    Ok(axum::serve(listener, routes).await?)
}

async fn forward(State(upstream): State<Upstream>, mut request: Request) -> Response {
    let mut uri = std::mem::take(request.uri_mut()).into_parts();
    uri.scheme = Some(Scheme::HTTP);
    uri.authority = Some(upstream.authority);
    let Ok(uri) = Uri::from_parts(uri) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    *request.uri_mut() = uri;
    request.headers_mut().remove(HOST);
    match upstream.client.request(request).await {
        Ok(response) => response.map(Body::new),
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}
