//! Sends messages to services, signed.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, StatusCode, Uri};

use super::failure::HookFailure;
use super::signature;
use crate::config::Webhook;
use crate::net::client::{CannotConnect, HttpClient, Reach, Response, common_headers};
use crate::net::retry_after::retry_after;
use crate::types::clock::now_ms;

/// Most time for opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an unused connection is kept: less than common servers do.
const KEEP_IDLE: Duration = Duration::from_secs(4);

/// The client that all hooks share. It goes through no proxy, and follows no redirect.
pub fn client() -> Result<HttpClient, CannotConnect> {
    HttpClient::new(&Reach { connect_timeout: Some(CONNECT_TIMEOUT), keep_idle: Some(KEEP_IDLE), ..Reach::default() })
}

/// Sends a message that is taken if the service says so with its status, whatever else it says.
pub(super) async fn tell(client: &HttpClient, webhook: &Webhook, id: &str, body: Bytes) -> Result<(), HookFailure> {
    post(client, webhook, id, body).await.map(drop)
}

/// Sends a message, and returns how a service begins its answer that took it. A status other than of success is a failure.
async fn post(client: &HttpClient, webhook: &Webhook, id: &str, body: Bytes) -> Result<Response, HookFailure> {
    let request = request(webhook, id, body)?;
    let response = client.send(request).await.map_err(|error| unanswered(&error))?;
    let Response { status, headers, .. } = &response;
    if !status.is_success() {
        let wait = retry_after(headers, now_ms());
        return Err(HookFailure {
            what: format!("the service answered HTTP {status}"),
            status: Some(*status),
            retry_after_s: wait.map(|wait| wait.as_secs() + u64::from(wait.subsec_nanos() > 0)),
        });
    }
    Ok(response)
}

/// Sends a message, and returns what the service answers. An answer that is too long is a failure too.
pub(super) async fn ask(client: &HttpClient, webhook: &Webhook, id: &str, body: Bytes) -> Result<Vec<u8>, HookFailure> {
    let Response { status, headers, mut body } = post(client, webhook, id, body).await?;
    let wrong = |what: String| HookFailure { what, status: Some(status), retry_after_s: None };
    if headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        return Err(wrong("the service compressed its answer, which was not asked for".to_owned()));
    }
    let mut answer = Vec::new();
    while status != StatusCode::NO_CONTENT
        && let Some(chunk) = body.chunk().await.map_err(|_| wrong("the service broke off its answer".to_owned()))?
    {
        if answer.len() + chunk.len() > webhook.max_response {
            return Err(wrong(format!("the answer is longer than max_response, {} bytes", webhook.max_response)));
        }
        answer.extend_from_slice(&chunk);
    }
    Ok(answer)
}

fn request(webhook: &Webhook, id: &str, body: Bytes) -> Result<Request<Bytes>, HookFailure> {
    let cannot = |what: &str| HookFailure::new(format!("the request cannot be written: {what}"));
    let mut headers = common_headers();
    for (name, value) in &webhook.headers {
        let mut value = HeaderValue::from_str(value.expose()).map_err(|_| cannot(name.as_str()))?;
        value.set_sensitive(true);
        headers.insert(name.clone(), value);
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let signed = signature::headers(id, now_ms() / 1_000, &body, &webhook.secrets).map_err(|_| cannot("its id"))?;
    headers.extend(signed);
    let mut request = Request::new(body);
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::try_from(webhook.url.as_str()).map_err(|_| cannot("its URL"))?;
    *request.headers_mut() = headers;
    Ok(request)
}

fn unanswered(error: &crate::net::client::HttpError) -> HookFailure {
    let what = if error.is_connect() { "the service cannot be reached" } else { "the service gave no answer" };
    HookFailure::new(format!("{what}: {error}"))
}
