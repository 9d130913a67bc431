//! Extractors of JSON bodies, identifiers and page bounds. Every failure is an [`ApiError`].

use std::time::Duration;

use axum::body::HttpBody;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use http::request::Parts;
use http::{HeaderMap, header};
use serde::de::DeserializeOwned;
use utoipa::IntoParams;

use crate::agent::RequestMemory;
use crate::agent::listed::Traits;
use crate::api::bodies::{self, Room};
use crate::api::error::ApiError;
use crate::api::wire::body::{check_metadata, clip};
use crate::api::wire::error::ErrorCode;
use crate::types::{RunId, SessionId};

/// How long a body may take to arrive. Not a setting: who sends the largest body that fits in `max_body` over a slow line
/// has this long, and a slower sender only holds memory.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Entries of a list unless asked otherwise, and at most.
const LIMIT: (usize, usize) = (20, 100);

/// A body that claims to be JSON: UTF-8 text within the size limit.
#[derive(Debug)]
pub struct JsonText {
    text: Vec<u8>,
    /// Its share of the memory for bodies.
    room: Room,
}

impl JsonText {
    /// The text.
    pub fn as_str(&self) -> Result<&str, ApiError> {
        std::str::from_utf8(&self.text)
            .map_err(|_| ApiError::new(ErrorCode::InvalidJson, "the body is not valid UTF-8"))
    }

    /// Forgets the text, which was read; keeps its share of the memory for what was made of it.
    pub fn into_memory(self) -> RequestMemory {
        self.room.into_memory()
    }
}

impl<S: Send + Sync> FromRequest<S> for JsonText {
    type Rejection = ApiError;

    async fn from_request(request: Request, _state: &S) -> Result<Self, ApiError> {
        check_media_type(request.headers(), request.body().is_end_stream())?;
        let (text, room) = whole_body(request).await?;
        Ok(Self { text, room })
    }
}

/// A body of any kind, within the size limit, and its share of the memory for bodies.
pub async fn whole_body(request: Request) -> Result<(Vec<u8>, Room), ApiError> {
    if request.headers().get(header::CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        return Err(ApiError::new(ErrorCode::UnsupportedMediaType, "compressed bodies are not supported"));
    }
    let too_slow = |_| ApiError::new(ErrorCode::RequestTimeout, "the body took too long to arrive");
    tokio::time::timeout(BODY_TIMEOUT, bodies::read(request)).await.map_err(too_slow)?
}

/// `application/json`, or an empty body.
fn check_media_type(headers: &HeaderMap, is_empty: bool) -> Result<(), ApiError> {
    let unsupported = |message: &str| Err(ApiError::new(ErrorCode::UnsupportedMediaType, message));
    let media_type = headers.get(header::CONTENT_TYPE).and_then(|media_type| media_type.to_str().ok());
    let essence = media_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if is_empty || essence.eq_ignore_ascii_case("application/json") {
        Ok(())
    } else {
        unsupported("content-type must be application/json")
    }
}

/// The `{id}` of a path. What is not text is at no known place.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Path, names("id"))]
pub struct ModelPath(
    /// An agent, `upstream/model`, or a bare model name
    pub String,
);

/// The run that a path names. What cannot be a run's id is no run.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Path, names("id"))]
pub struct RunPath(
    /// The run
    #[param(value_type = String, pattern = "^run_[0-9a-f]{32}$")]
    pub RunId,
);

/// The session that a path names. What cannot be a session's id is no session.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Path, names("id"))]
pub struct SessionPath(
    /// The session
    #[param(value_type = String, pattern = "^[A-Za-z0-9_.:-]{1,128}$")]
    pub SessionId,
);

/// Other texts of a path. What is not text is at no known place.
#[derive(Debug)]
pub struct Texts<T>(
    /// The texts
    pub T,
);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Texts<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let texts = Path::<T>::from_request_parts(parts, state).await;
        let unknown = |_| ApiError::new(ErrorCode::UnknownUrl, "the path is not valid UTF-8");
        texts.map(|Path(texts)| Self(texts)).map_err(unknown)
    }
}

async fn id_of<S: Send + Sync>(parts: &mut Parts, state: &S) -> Result<String, ApiError> {
    let id = Path::<String>::from_request_parts(parts, state).await;
    id.map(|Path(id)| id).map_err(|_| ApiError::new(ErrorCode::UnknownUrl, "the path is not valid UTF-8"))
}

impl<S: Send + Sync> FromRequestParts<S> for ModelPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        // A model's name may have slashes in it, written as they are or as `%2F`.
        let segments = Path::<Vec<String>>::from_request_parts(parts, state).await;
        let segments = segments.map_err(|_| ApiError::new(ErrorCode::UnknownUrl, "the path is not valid UTF-8"))?;
        Ok(Self(segments.join("/")))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for RunPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let id = id_of(parts, state).await?;
        let missing = || ApiError::new(ErrorCode::RunNotFound, format!("run {:?} does not exist", clip(&id)));
        RunId::parse(&id).map(Self).ok_or_else(missing)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for SessionPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let id = id_of(parts, state).await?;
        let missing = || ApiError::new(ErrorCode::SessionNotFound, format!("session {:?} does not exist", clip(&id)));
        SessionId::parse(&id).map(Self).ok_or_else(missing)
    }
}

/// The query of a request, as it was written.
#[derive(Debug)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// The last value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The names of the parameters.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// The members of a parameter that is written as `name[member]=value`.
    pub fn members(&self, name: &str) -> impl Iterator<Item = (&str, &str)> {
        let member = move |key: &'_ str| -> Option<(usize, usize)> {
            let rest = key.strip_prefix(name)?.strip_prefix('[')?;
            rest.ends_with(']').then(|| (name.len() + 1, key.len() - 1))
        };
        self.0.iter().filter_map(move |(key, value)| member(key).map(|(from, to)| (&key[from..to], value.as_str())))
    }

    /// By which agent, model, user and notes a list goes.
    pub fn traits(&self) -> Result<Traits, ApiError> {
        let text = |name: &str| self.get(name).map(str::to_owned);
        let metadata = self.members("metadata").map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        check_metadata(Some(&metadata))?;
        let traits = Traits { agent: text("agent"), model: text("model"), metadata, user: None };
        Ok(traits.of_user(self.get("user")))
    }

    /// `limit`: how many entries a list shows.
    pub fn limit(&self) -> Result<usize, ApiError> {
        self.limit_of(LIMIT)
    }

    /// `limit`, of a list that has so many entries unless asked otherwise, and at most.
    pub fn limit_of(&self, (default, most): (usize, usize)) -> Result<usize, ApiError> {
        let Some(text) = self.get("limit") else { return Ok(default) };
        let limit = text.parse().ok().filter(|limit| (1..=most).contains(limit));
        limit.ok_or_else(|| ApiError::invalid("limit", format!("must be between 1 and {most}")))
    }

    /// A parameter that is parsed by `parse`; what does not parse is an error.
    pub fn parsed<T>(&self, name: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>, ApiError> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let wrong = || ApiError::invalid(name, format!("{:?} is not a valid {name}", clip(text)));
        parse(text).map(Some).ok_or_else(wrong)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Query {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        let query = parts.uri.query().unwrap_or_default();
        Ok(Self(url::form_urlencoded::parse(query.as_bytes()).into_owned().collect()))
    }
}

/// A header's text; `None` if it is absent.
pub fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, ApiError> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let text = value.to_str().map_err(|_| ApiError::invalid(name, "the header is not plain text"))?;
    Ok(Some(text))
}
