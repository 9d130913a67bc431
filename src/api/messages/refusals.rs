//! Errors of these routes in Anthropic's shape, whatever refused the request: its key, its allowance, its body or its run.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;

use crate::api::wire::messages::error::{MessagesError, MessagesErrorBody, kind_of, worded};

/// By which Anthropic's clients name a request when they report it.
const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
/// An error is never larger.
const MOST: usize = 1 << 20;

/// An error, as every other route answers with it.
#[derive(Deserialize)]
struct ErrorBody {
    error: ErrorObject,
}

#[derive(Deserialize)]
struct ErrorObject {
    message: String,
    code: String,
    param: Option<String>,
    run_id: Option<String>,
}

/// Names the request in the response, and writes an error as this dialect does.
pub async fn in_shape(request: Request, next: Next) -> Response {
    let request_id = request.headers().get("x-request-id").cloned();
    let mut response = next.run(request).await;
    if let Some(id) = &request_id {
        response.headers_mut().insert(REQUEST_ID, id.clone());
    }
    let status = response.status();
    if !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let Ok(bytes) = to_bytes(body, MOST).await else { return Response::from_parts(parts, Body::empty()) };
    let Ok(ErrorBody { error }) = serde_json::from_slice(&bytes) else {
        return Response::from_parts(parts, Body::from(bytes));
    };
    let body = rewritten(status.as_u16(), &error, request_id.as_ref());
    correct_length(&mut parts.headers, body.len());
    Response::from_parts(parts, Body::from(body))
}

fn rewritten(status: u16, error: &ErrorObject, request_id: Option<&HeaderValue>) -> Vec<u8> {
    let message = worded(&error.message, error.code == "context_length_exceeded");
    let error = MessagesError {
        r#type: kind_of(status),
        message: &message,
        code: &error.code,
        param: error.param.as_deref(),
        run_id: error.run_id.as_deref(),
    };
    let request_id = request_id.and_then(|id| id.to_str().ok());
    let body = MessagesErrorBody::new(error, request_id);
    serde_json::to_vec(&body).expect("an error holds only strings")
}

fn correct_length(headers: &mut HeaderMap, length: usize) {
    if headers.contains_key(CONTENT_LENGTH) {
        headers.insert(CONTENT_LENGTH, length.into());
    }
}
