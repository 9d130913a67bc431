//! Refuses requests by their head alone, and attaches what is needed to read their body.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, Version, header};

use super::listen::Surplus;
use super::names::{Allowed, named_host};
use crate::agent::Agent;
use crate::api::error::ApiError;
use crate::api::wire::error::{ErrorCode, WireError};
use crate::api::{Bodies, ReaderMemory};
use crate::config::ServerConfig;

/// Longest path and query together. Not a setting: what may be long stands in bodies.
const MAX_URI: usize = 8 * 1024;
/// What probes ask for. They are answered whatever else is refused.
const PROBES: [&str; 2] = ["/healthz", "/readyz"];

/// What requests are held against.
#[derive(Debug)]
pub(super) struct Entrance {
    agent: Agent,
    allowed: Allowed,
    max_body: u64,
    bodies: Arc<Bodies>,
    readers: ReaderMemory,
}

/// A refusal, and whether what else the connection brings cannot be trusted or is not wanted.
struct Refusal {
    error: ApiError,
    close: bool,
}

impl Entrance {
    pub(super) fn new(settings: &ServerConfig, agent: Agent) -> Self {
        let allowed = Allowed { hosts: settings.hosts.clone(), origins: settings.cors_origins.clone() };
        let bodies = Arc::new(Bodies::new(settings.body_memory, settings.max_body));
        let readers = ReaderMemory::new(settings.reader_memory);
        Self { agent, allowed, max_body: settings.max_body, bodies, readers }
    }

    /// What is wrong with a request, by its head.
    fn check(&self, request: &Request) -> Result<(), Refusal> {
        let (uri, headers) = (request.uri(), request.headers());
        let is_probe = PROBES.contains(&uri.path());
        if let Some(surplus) = request.extensions().get::<Surplus>().filter(|_| !is_probe) {
            return Err(no_slot(*surplus));
        }
        if uri.path_and_query().is_some_and(|uri| uri.as_str().len() > MAX_URI) {
            return Err(
                WireError::new(ErrorCode::UriTooLong, format!("the path is longer than {MAX_URI} bytes")).into()
            );
        }
        let host = named_host(uri, headers)?;
        let names_host = headers.contains_key(header::HOST) || host.is_some();
        if request.version() == Version::HTTP_11 && !names_host {
            return Err(WireError::new(ErrorCode::MissingField, "the host header is missing").into());
        }
        check_transfer_encoding(headers)?;
        if !is_probe && self.agent.generation().keys.is_empty() {
            self.allowed.check(host.as_ref(), headers)?;
        }
        let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        if length.is_some_and(|length: u64| length > self.max_body) {
            let message = format!("the body is larger than {} bytes", self.max_body);
            return Err(WireError::new(ErrorCode::PayloadTooLarge, message).into());
        }
        Ok(())
    }
}

/// Lets a request pass, or answers it.
pub(super) async fn enter(State(entrance): State<Arc<Entrance>>, mut request: Request, next: Next) -> Response {
    if let Err(Refusal { error, close }) = entrance.check(&request) {
        let mut response = error.into_response();
        if close {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        return response;
    }
    request.extensions_mut().insert(entrance.bodies.clone());
    request.extensions_mut().insert(entrance.readers.clone());
    next.run(request).await
}

fn no_slot(surplus: Surplus) -> Refusal {
    let error = match surplus {
        Surplus::Full => ApiError::new(ErrorCode::Overloaded, "the server has as many connections as it takes"),
        Surplus::Address => {
            ApiError::new(ErrorCode::RateLimited, "your address has as many connections as one may have")
        }
    };
    Refusal { error: error.retry_after(1), close: true }
}

/// A body comes in chunks or as it is. Another encoding would be taken for the body itself.
fn check_transfer_encoding(headers: &HeaderMap) -> Result<(), WireError> {
    let lines = headers.get_all(header::TRANSFER_ENCODING).iter().map(|line| line.to_str().unwrap_or("unknown"));
    let encodings: Vec<&str> = lines.flat_map(|line| line.split(',')).map(str::trim).collect();
    let unknown = encodings.iter().find(|encoding| !encoding.eq_ignore_ascii_case("chunked"));
    match (unknown, encodings.len()) {
        (None, 0 | 1) => Ok(()),
        (None, _) => Err(WireError::new(ErrorCode::MalformedRequest, "the body is chunked more than once")),
        (Some(_), _) => {
            let message = "a body may be chunked, but have no other transfer-encoding";
            Err(WireError::new(ErrorCode::TransferEncoding, message).at("transfer-encoding"))
        }
    }
}

impl From<WireError> for Refusal {
    fn from(error: WireError) -> Self {
        let close = matches!(error.code, ErrorCode::MalformedRequest | ErrorCode::TransferEncoding);
        Self { error: error.into(), close }
    }
}
