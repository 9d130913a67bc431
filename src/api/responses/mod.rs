//! `/v1/responses`: runs in OpenAI's newer dialect.
//!
//! It is one more view of runs: a response is a leg of one, found by its id, and told by the run's log.

pub mod count;
pub mod create;
pub mod input_items;
pub mod read;
mod references;
mod stored;

use axum::response::{IntoResponse, Response};
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use serde::Serialize;

use crate::api::error::ApiError;
use crate::api::wire::error::ErrorCode;

/// An answer, written in one piece of memory, which most answers fit into.
fn json(answer: &impl Serialize) -> Response {
    const ROOM: usize = 4 << 10;
    let mut body = Vec::with_capacity(ROOM);
    serde_json::to_writer(&mut body, answer).expect("wire types hold only strings, numbers and valid raw JSON");
    ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
}

/// Why there is no response of this id for the caller.
fn no_response(id: &str) -> ApiError {
    let id = crate::api::wire::body::clip(id);
    ApiError::new(ErrorCode::ResponseNotFound, format!("Response with id '{id}' not found."))
}
