//! A request about one agent.

use http::Method;
use http::header::CONTENT_TYPE;
use serde_json::Value;

use super::super::client::{Client, RequestError};

/// Sends a request about an agent, and reads the answer.
pub(super) async fn send(
    client: &Client,
    method: Method,
    name: &str,
    body: Option<&Value>,
) -> Result<Value, RequestError> {
    let request = client.request(method, &["v1", "agents", name], &[]);
    let request = match body {
        Some(body) => request.header(CONTENT_TYPE, "application/json").body(body.to_string()),
        None => request,
    };
    client.read(request).await
}
