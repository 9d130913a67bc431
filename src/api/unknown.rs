//! What is answered where there is nothing.

use axum::response::{IntoResponse, Response};
use http::{Method, Uri};

use crate::api::error::ApiError;
use crate::api::wire::body;
use crate::api::wire::error::ErrorCode;

/// Says that there is nothing at this path.
pub(super) fn unknown_url(method: &Method, uri: &Uri) -> Response {
    let path = body::clip(uri.path()).to_owned();
    let message = format!("there is nothing at {method} {path}; /docs describes what there is");
    ApiError::new(ErrorCode::UnknownUrl, message).into_response()
}

/// Says that the path does not take this method.
pub(super) fn wrong_method(method: &Method, uri: &Uri) -> Response {
    let path = body::clip(uri.path()).to_owned();
    ApiError::new(ErrorCode::MethodNotAllowed, format!("{path} does not take {method}")).into_response()
}
