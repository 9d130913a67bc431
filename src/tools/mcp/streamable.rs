//! Streamable HTTP through the HTTP client of models and tools, for the SDK, which decides what is sent.
//!
//! What a server answers is bounded before it is parsed, and no error quotes an address or a header: errors are shown to
//! models.

mod fault;
mod pace;
mod request;

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use serde_json::Value;
use sse_stream::{Sse, SseStream};
use tokio::time::Instant;

pub(super) use self::fault::HttpFault;
use self::pace::Pace;
pub(super) use self::request::Endpoint;
use crate::net::client::{Body, Response};

type Failure = StreamableHttpError<HttpFault>;
type Events = BoxStream<'static, Result<Sse, SseError>>;

/// What is accepted for a request, and what for a stream alone.
const EITHER: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
const STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// Speaks with one server.
#[derive(Debug, Clone)]
pub(super) struct Streamable {
    endpoint: Arc<Endpoint>,
    max_response: usize,
    pace: Arc<Pace>,
}

impl StreamableHttpClient for Streamable {
    type Error = HttpFault;

    async fn post_message(
        &self,
        _uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _auth: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let has_session = session.is_some();
        let id = request_id(&message);
        let mut headers = with_session(headers.into_iter().collect(), session)?;
        headers.insert(ACCEPT, EITHER);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let body = serde_json::to_vec(&message)?;
        let response = self.endpoint.send(Method::POST, headers, body.into()).await.map_err(Failure::Client)?;
        let status = response.status;
        if status == StatusCode::NOT_FOUND && has_session {
            return Err(Failure::SessionExpired);
        }
        if !status.is_success() {
            return self.refusal(response, id, has_session).await;
        }
        let session = response.headers.get(SESSION).and_then(|id| id.to_str().ok()).map(str::to_owned);
        match media_type(&response.headers) {
            "text/event-stream" => Ok(StreamableHttpPostResponse::Sse(self.events(response.body), session)),
            "application/json" if id.is_some() => {
                let body = read(response.body, self.max_response).await?;
                let message = serde_json::from_slice(&body).map_err(|_| Failure::Client(HttpFault::Unreadable))?;
                Ok(StreamableHttpPostResponse::Json(message, session))
            }
            // What follows a notification means nothing.
            _ if id.is_none() => Ok(StreamableHttpPostResponse::Accepted),
            _ if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) => {
                Ok(StreamableHttpPostResponse::Accepted)
            }
            _ => Err(Failure::Client(HttpFault::Unreadable)),
        }
    }

    async fn delete_session(
        &self,
        _uri: Arc<str>,
        session: Arc<str>,
        _auth: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Failure> {
        let headers = with_session(headers.into_iter().collect(), Some(session))?;
        self.endpoint.send(Method::DELETE, headers, Bytes::new()).await.map_err(Failure::Client)?;
        // A server need not let sessions be ended.
        Ok(())
    }

    async fn get_stream(
        &self,
        _uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        _auth: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<Events, Failure> {
        let mut headers = with_session(headers.into_iter().collect(), session)?;
        headers.insert(ACCEPT, STREAM);
        if let Some(last) = last_event {
            headers.insert(LAST_EVENT, sendable(&last)?);
        }
        tokio::time::sleep(self.pace.before_next(Instant::now())).await;
        let response = self.endpoint.send(Method::GET, headers, Bytes::new()).await.map_err(Failure::Client)?;
        match (response.status, media_type(&response.headers)) {
            (status, "text/event-stream") if status.is_success() => {
                let pace = self.pace.clone();
                pace.opened();
                let brought = move |event: &Result<Sse, SseError>| {
                    if event.as_ref().is_ok_and(|event| event.data.is_some()) {
                        pace.brought();
                    }
                };
                Ok(self.events(response.body).inspect(brought).boxed())
            }
            (status, _) if status.is_success() => Err(Failure::ServerDoesNotSupportSse),
            (StatusCode::METHOD_NOT_ALLOWED, _) => Err(Failure::ServerDoesNotSupportSse),
            (status, _) => Err(Failure::Client(HttpFault::Status(status, String::new()))),
        }
    }
}

impl Streamable {
    /// Speaks with the server at `endpoint`, of whose messages none may be longer than this.
    pub(super) fn new(endpoint: Endpoint, max_response: usize) -> Self {
        Self { endpoint: Arc::new(endpoint), max_response, pace: Arc::default() }
    }

    /// What a status of failure means. A server may say more in JSON-RPC; that is about the request, whatever id it has.
    async fn refusal(
        &self,
        response: Response,
        id: Option<Value>,
        has_session: bool,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let status = response.status;
        let body = read(response.body, self.max_response.min(64 << 10)).await.unwrap_or_default();
        let said: Option<Value> = serde_json::from_slice(&body).ok();
        let error = said.as_ref().and_then(|said| said.get("error")).filter(|error| error["code"].is_i64());
        let words = error.and_then(|error| error["message"].as_str()).unwrap_or_default();
        // Many servers say so of sessions that they do not know any more, before they look at the request.
        let is_of_request = said.as_ref().is_some_and(|said| !said["id"].is_null());
        if has_session && status == StatusCode::BAD_REQUEST && !is_of_request && denies_session(words) {
            return Err(Failure::Client(HttpFault::SessionDenied));
        }
        if let (Some(error), Some(id)) = (error, id)
            && !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
        {
            let answer = serde_json::json!({"jsonrpc": "2.0", "id": id, "error": error});
            if let Ok(message) = serde_json::from_value::<ServerJsonRpcMessage>(answer) {
                return Ok(StreamableHttpPostResponse::Json(message, None));
            }
        }
        Err(Failure::Client(HttpFault::of_status(status, &body)))
    }

    /// The events of a body, none of which is longer than a message may be.
    fn events(&self, body: Body) -> Events {
        let bounded = Bounded { body, most: self.max_response, since_event: 0, last: 0 };
        let chunks = stream::try_unfold(bounded, |mut bounded| async move {
            Ok::<_, HttpFault>(bounded.next().await?.map(|chunk| (chunk, bounded)))
        });
        SseStream::from_bytes_stream(chunks).boxed()
    }
}

/// A stream of events, each of which is bounded.
struct Bounded {
    body: Body,
    most: usize,
    /// How much came since the last empty line, and with what it ended.
    since_event: usize,
    last: u8,
}

impl Bounded {
    async fn next(&mut self) -> Result<Option<Bytes>, HttpFault> {
        let Some(chunk) = self.body.chunk().await.map_err(|_| HttpFault::Broken)? else { return Ok(None) };
        for &byte in &*chunk {
            match byte {
                b'\r' => continue,
                b'\n' if self.last == b'\n' => self.since_event = 0,
                _ => self.since_event += 1,
            }
            self.last = byte;
        }
        if self.since_event > self.most { Err(HttpFault::TooLong(self.most)) } else { Ok(Some(chunk)) }
    }
}

/// All of a body, unless it is too long.
async fn read(mut body: Body, most: usize) -> Result<Vec<u8>, Failure> {
    let mut read = Vec::new();
    while let Some(chunk) = body.chunk().await.map_err(|_| Failure::Client(HttpFault::Broken))? {
        if read.len() + chunk.len() > most {
            return Err(Failure::Client(HttpFault::TooLong(most)));
        }
        read.extend_from_slice(&chunk);
    }
    Ok(read)
}

/// Whether these words say that a session is not known.
fn denies_session(words: &str) -> bool {
    let words = words.to_ascii_lowercase();
    [
        "no valid session",
        "session not found",
        "unknown session",
        "invalid session",
        "session expired",
        "session terminated",
    ]
    .iter()
    .any(|known| words.contains(known))
}

/// The id of a request; a notification and an answer of ours have none.
fn request_id(message: &ClientJsonRpcMessage) -> Option<Value> {
    match message {
        ClientJsonRpcMessage::Request(request) => serde_json::to_value(&request.id).ok(),
        ClientJsonRpcMessage::Response(_) | ClientJsonRpcMessage::Notification(_) | ClientJsonRpcMessage::Error(_) => {
            None
        }
    }
}

fn with_session(mut headers: HeaderMap, session: Option<Arc<str>>) -> Result<HeaderMap, Failure> {
    if let Some(session) = session {
        headers.insert(SESSION, sendable(&session)?);
    }
    Ok(headers)
}

fn sendable(text: &str) -> Result<HeaderValue, Failure> {
    HeaderValue::from_str(text).map_err(|_| Failure::Client(HttpFault::Unreadable))
}

fn media_type(headers: &HeaderMap) -> &str {
    let written = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    written.split(';').next().unwrap_or_default().trim()
}
