//! `/v1/messages`: runs in the dialect of Anthropic's Messages.

pub mod count;
pub mod create;
mod paused;
pub mod refusals;
mod unstreamed;

use axum::response::{IntoResponse, Response};
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use serde::Serialize;

/// An answer, written in one piece of memory, which most answers fit into.
fn json(answer: &impl Serialize) -> Response {
    const ROOM: usize = 2 << 10;
    let mut body = Vec::with_capacity(ROOM);
    serde_json::to_writer(&mut body, answer).expect("wire types hold only strings, numbers and valid raw JSON");
    ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
}
