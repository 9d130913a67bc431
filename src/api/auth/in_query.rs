//! Tokens in the query of streams of events: `EventSource` can set no header.
//!
//! A token is taken out of the request's address as soon as it is read, so that nothing behind sees it.

use http::{Method, Uri, header, request::Parts};

use crate::api::auth::token::PREFIX;
use crate::api::error::ApiError;
use crate::api::wire::error::ErrorCode;

/// The parameter.
const PARAMETER: &str = "token";
/// The only route that takes one there.
const ROUTE: &str = "/v1/runs/{id}/events";

/// The token in the query of a request that shows nothing in its headers. It is no longer in the address then.
pub fn take_token(parts: &mut Parts, route: &str) -> Result<Option<String>, ApiError> {
    let pairs: Vec<(String, String)> =
        url::form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
    let Some((_, token)) = pairs.iter().find(|(name, _)| name == PARAMETER) else { return Ok(None) };
    let is_list = pairs.iter().any(|(name, value)| name == "stream" && matches!(value.as_str(), "false" | "0"));
    let token = token.clone();
    parts.uri = without_token(&parts.uri, &pairs)?;
    if parts.headers.contains_key(header::AUTHORIZATION) || parts.headers.contains_key("x-api-key") {
        return Ok(None);
    }
    if parts.method != Method::GET || route != ROUTE || is_list {
        let message = "a token in the query is good for streams of events alone; send it as `Authorization: Bearer`";
        return Err(ApiError::new(ErrorCode::InvalidToken, message));
    }
    if !token.starts_with(PREFIX) {
        let message = "a query takes a token, never a key: keys belong into the header `Authorization`";
        return Err(ApiError::new(ErrorCode::InvalidToken, message));
    }
    Ok(Some(token))
}

fn without_token(uri: &Uri, pairs: &[(String, String)]) -> Result<Uri, ApiError> {
    let rest = pairs.iter().filter(|(name, _)| name != PARAMETER);
    let query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(rest).finish();
    let path = uri.path();
    let written = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(written.parse().map_err(|_| malformed())?);
    Uri::from_parts(parts).map_err(|_| malformed())
}

fn malformed() -> ApiError {
    ApiError::new(ErrorCode::MalformedRequest, "the address of the request cannot be read")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(method: &str, uri: &str, key: Option<&str>) -> Parts {
        let request = http::Request::builder().method(method).uri(uri);
        let request = key.into_iter().fold(request, |request, key| request.header("x-api-key", key));
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_token_is_taken_out_of_the_address_of_a_stream() {
        let mut stream = parts("GET", "/v1/runs/r/events?after=3&token=lgt_a.b&events=none", None);
        assert_eq!(take_token(&mut stream, ROUTE).unwrap().as_deref(), Some("lgt_a.b"));
        assert_eq!(stream.uri, "/v1/runs/r/events?after=3&events=none");
        let mut alone = parts("GET", "/v1/runs/r/events?token=lgt_a.b", None);
        assert_eq!(take_token(&mut alone, ROUTE).unwrap().as_deref(), Some("lgt_a.b"));
        assert_eq!(alone.uri, "/v1/runs/r/events");
        let mut without = parts("GET", "/v1/runs/r/events?after=3", None);
        assert_eq!(take_token(&mut without, ROUTE).unwrap(), None);
        assert_eq!(without.uri, "/v1/runs/r/events?after=3");
    }

    #[test]
    fn a_query_takes_no_key_and_other_requests_take_no_query() {
        for (method, uri, route) in [
            ("GET", "/v1/runs/r?token=lgt_a.b", "/v1/runs/{id}"),
            ("POST", "/v1/agent/completions?token=lgt_a.b", "/v1/agent/completions"),
            ("GET", "/v1/runs/r/events?stream=false&token=lgt_a.b", ROUTE),
            ("GET", "/v1/runs/r/events?token=lg_key", ROUTE),
        ] {
            let mut parts = parts(method, uri, None);
            let error = take_token(&mut parts, route).unwrap_err().object();
            assert_eq!(error.code, "invalid_token", "{uri}");
            assert!(!error.message.contains("lgt_") && !error.message.contains("lg_key"), "{}", error.message);
            assert!(!parts.uri.to_string().contains("lg"), "{}", parts.uri);
        }
        // What a header shows counts.
        let mut both = parts("GET", "/v1/runs/r/events?token=lgt_a.b", Some("k"));
        assert_eq!(take_token(&mut both, ROUTE).unwrap(), None);
        assert_eq!(both.uri, "/v1/runs/r/events");
    }
}
