//! Versions of resources in headers: what `if-match` and `if-none-match` ask for, and the `etag` of an answer.

use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, header};
use serde::Serialize;

use crate::api::error::ApiError;
use crate::api::extract::header_text;
use crate::types::Expected;

/// What a request's headers expect of the resource that it changes.
#[derive(Debug)]
pub struct Precondition(
    /// It
    pub Expected,
);

impl<S: Send + Sync> FromRequestParts<S> for Precondition {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        expected(&parts.headers).map(Self)
    }
}

/// A resource with its version as its entity tag.
#[derive(Debug)]
pub struct Tagged<T>(
    /// Its version
    pub u64,
    /// The resource
    pub T,
);

impl<T: Serialize> IntoResponse for Tagged<T> {
    fn into_response(self) -> Response {
        let mut response = axum::Json(self.1).into_response();
        if let Ok(tag) = HeaderValue::try_from(format!("\"{}\"", self.0)) {
            response.headers_mut().insert(header::ETAG, tag);
        }
        response
    }
}

fn expected(headers: &HeaderMap) -> Result<Expected, ApiError> {
    let (matches, none) = (header_text(headers, "if-match")?, header_text(headers, "if-none-match")?);
    match (matches.map(str::trim), none.map(str::trim)) {
        (None, None) => Ok(Expected::Anything),
        (Some("*"), None) => Ok(Expected::Something),
        (None, Some("*")) => Ok(Expected::Nothing),
        (Some(tag), None) => {
            let version = tag.trim_start_matches("W/").trim_matches('"').parse().ok();
            let wrong = || ApiError::invalid("if-match", "must be `*` or the `etag` of one version, such as \"12\"");
            version.map(Expected::Version).ok_or_else(wrong)
        }
        (None, Some(_)) => Err(ApiError::invalid("if-none-match", "must be `*`: it must not be there yet")),
        (Some(_), Some(_)) => Err(ApiError::invalid("if-match", "may not stand beside if-none-match")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_say_what_is_expected() {
        for (matches, none, read) in [
            (None, None, Ok(Expected::Anything)),
            (Some("*"), None, Ok(Expected::Something)),
            (None, Some(" * "), Ok(Expected::Nothing)),
            (Some("\"12\""), None, Ok(Expected::Version(12))),
            (Some("W/\"12\""), None, Ok(Expected::Version(12))),
            (Some("12"), None, Ok(Expected::Version(12))),
            (Some("\"1\", \"2\""), None, Err("if-match")),
            (Some("-1"), None, Err("if-match")),
            (None, Some("\"12\""), Err("if-none-match")),
            (Some("*"), Some("*"), Err("if-match")),
        ] {
            let given = [("if-match", matches), ("if-none-match", none)];
            let mut headers = HeaderMap::new();
            for (name, value) in given.into_iter().filter_map(|(name, value)| Some((name, value?))) {
                headers.insert(name, HeaderValue::from_static(value));
            }
            let found = expected(&headers).map_err(|error| error.object().param);
            assert_eq!(found, read.map_err(|at: &str| Some(at.to_owned())), "{given:?}");
        }
    }
}
