//! `POST /v1/tool-results/{call_id}`: what the service of a tool answers later.
//!
//! It asks for no API key: the token of the call is what its service knows and others do not.

use axum::extract::{FromRequestParts, Path, Request, State};
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, StatusCode, header};
use sha2::{Digest, Sha256};
use utoipa::IntoParams;

use crate::agent::tool_results::Taken;
use crate::api::error::ApiError;
use crate::api::extract::{Query, whole_body};
use crate::api::identity::mark_replayed;
use crate::api::state::Api;
use crate::api::wire::error::ErrorCode;
use crate::api::wire::openai_error::ErrorBody;
use crate::config::key::to_hex;
use crate::tools::http::parts_of;
use crate::types::ToolOutcome;

/// The call that a path names.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Path, names("call_id"))]
pub struct CallPath(
    /// The call
    #[param(value_type = String, pattern = "^call_[0-9a-f]{32}$")]
    String,
);

/// What an answer says beside its body.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it only describes; the handler reads the query")]
pub struct AnswerQuery {
    /// `true` if the call failed, which the body then says why
    is_error: Option<bool>,
}

impl<S: Send + Sync> FromRequestParts<S> for CallPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let id = Path::<String>::from_request_parts(parts, state).await;
        id.map(|Path(id)| Self(id)).map_err(|_| ApiError::new(ErrorCode::UnknownUrl, "the path is not valid UTF-8"))
    }
}

/// Answers a tool call that its service accepted with 202. The body is the answer as the service would have given it at once:
/// text, JSON, a picture or a PDF, by its content type. The same answer may be sent again.
#[utoipa::path(
    post, path = "/v1/tool-results/{call_id}", tag = "runs", operation_id = "answerToolCall",
    request_body(content = String, content_type = "text/plain"),
    params(CallPath, AnswerQuery),
    responses(
        (status = 204, description = "The answer is stored, and the run goes on with it"),
        (status = 404, description = "There is no such call, or the token is not its", body = ErrorBody),
        (status = 409, description = "The call was answered before, and otherwise", body = ErrorBody),
        (status = 410, description = "The call's time is up, or its run has ended", body = ErrorBody),
    ),
)]
pub async fn answer(
    State(api): State<Api>,
    CallPath(call): CallPath,
    headers: HeaderMap,
    query: Query,
    request: Request,
) -> Result<Response, ApiError> {
    let is_error = query.parsed("is_error", |text| text.parse().ok())?.unwrap_or(false);
    // Before the body is read: whoever has no token takes no memory.
    let addressed = api.agent.tool_results().find(&call, token(&headers)?).await?;
    let (body, _room) = whole_body(request).await?;
    let (parts, bytes) = (parts_of(&headers, &body), body.len() as u64);
    let fingerprint = fingerprint(&headers, is_error, &body);
    let outcome = ToolOutcome { parts, is_error, bytes, ..ToolOutcome::default() };
    let taken = api.agent.tool_results().take(addressed, outcome, fingerprint).await?;
    let mut response = StatusCode::NO_CONTENT.into_response();
    if taken == Taken::Before {
        mark_replayed(response.headers_mut());
    }
    Ok(response)
}

/// The token that the headers show.
fn token(headers: &HeaderMap) -> Result<&str, ApiError> {
    let shown = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token =
        shown.and_then(|value| value.split_once(' ')).filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let message = "send the token of the call, which its request had in x-loopgate-callback-token, as authorization: Bearer TOKEN";
    token.map(|(_, token)| token.trim()).ok_or_else(|| ApiError::new(ErrorCode::InvalidApiKey, message))
}

/// By which the same answer is recognised.
fn fingerprint(headers: &HeaderMap, is_error: bool, body: &[u8]) -> String {
    let kind = headers.get(header::CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
    let mut hash = Sha256::new();
    hash.update((kind.len() as u64).to_be_bytes());
    hash.update(kind);
    hash.update([u8::from(is_error)]);
    hash.update(body);
    to_hex(&hash.finalize().into())
}
