//! The HTTP client for models and tools: what a run asks passes through here, so it has what that takes and no more.
//!
//! It keeps connections for the next request, speaks HTTP/2 to servers that offer it with TLS, and trusts the system's
//! certificate authorities, or others that it is given. Servers without TLS that no proxy stands before are spoken to by
//! `http1`, all others by the HTTP library. It follows no redirects, unpacks nothing, and has no time limits but the one for
//! connecting: callers know how long each phase may take. With a guard it connects nowhere that the guard does not allow. A request is sent once; only one of which no byte was sent, because the
//! connection that was kept for it turned out to be closed, is sent again on another.

mod connect;
mod distrust;
mod error;
mod http1;
mod reach;
mod stream;
mod tcp;
#[cfg(test)]
mod tests;
pub mod tls;

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, PROXY_AUTHORIZATION, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::{TokioExecutor, TokioTimer};

pub use self::connect::CannotConnect;
use self::connect::{Connector, NAME};
pub use self::error::HttpError;
use self::http1::Http1Client;
pub use self::reach::Reach;
pub use super::proxies::{Proxies, Proxy};

/// How long a connection is kept for the next request. Not a setting: servers close theirs earlier, and are heeded.
const KEEP_IDLE: Duration = Duration::from_secs(90);

/// A client. Cheap to clone; clones share their connections.
#[derive(Debug, Clone)]
pub struct HttpClient {
    connector: Connector,
    /// `None` where HTTP/2 is spoken without being asked for.
    plain: Option<Http1Client>,
    connections: legacy::Client<Connector, Full<Bytes>>,
}

/// An answer whose body is still to come.
#[derive(Debug)]
pub struct Response {
    /// Its status.
    pub status: StatusCode,
    /// Its headers. They lie in the memory that they were read into, so keeping them keeps all of that.
    pub headers: HeaderMap,
    /// What follows.
    pub body: Body,
}

/// A body while it arrives. Dropped before its end it closes the connection, or its stream of it.
#[derive(Debug)]
pub struct Body(Arriving);

#[derive(Debug)]
enum Arriving {
    Plain(http1::Body),
    Library(Incoming),
}

/// What every request of this server says of it. A caller adds to these headers once and clones them for each request.
#[must_use]
pub fn common_headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, NAME);
    headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
    // Nothing here unpacks what is compressed.
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers
}

impl HttpClient {
    /// A client without connections. Fails where it needs the certificate authorities of the system, and there are none.
    pub fn new(reach: &Reach) -> Result<Self, CannotConnect> {
        Self::through(reach.proxies.matcher(), reach)
    }

    fn through(proxies: Option<Matcher>, reach: &Reach) -> Result<Self, CannotConnect> {
        let connector = Connector::new(reach, proxies)?;
        let keep_idle = reach.keep_idle.unwrap_or(KEEP_IDLE);
        let mut builder = legacy::Client::builder(TokioExecutor::new());
        builder.http2_only(reach.http2_only);
        builder.timer(TokioTimer::new()).pool_timer(TokioTimer::new()).pool_idle_timeout(keep_idle);
        let plain = || Http1Client::new(connector.tcp(), reach.connect_timeout, keep_idle);
        let plain = (!reach.http2_only).then(plain);
        Ok(Self { connections: builder.build(connector.clone()), plain, connector })
    }

    /// Sends a request, and returns once the head of its answer is there.
    pub async fn send(&self, mut request: Request<Bytes>) -> Result<Response, HttpError> {
        if let Some(plain) = &self.plain
            && let Some(server) = Http1Client::server(request.uri()).cloned()
            && !self.connector.is_proxied(request.uri())
        {
            let http1::Answer { status, headers, body } = plain.send(server, request).await?;
            return Ok(Response { status, headers, body: Body(Arriving::Plain(body)) });
        }
        if let Some(authorization) = self.connector.proxy_authorization(request.uri()) {
            request.headers_mut().insert(PROXY_AUTHORIZATION, authorization);
        }
        // Boxed, as it is large and rarely needed where most servers are beside this one.
        let answer = Box::pin(self.connections.request(request.map(Full::new))).await?;
        let (head, body) = answer.into_parts();
        Ok(Response { status: head.status, headers: head.headers, body: Body(Arriving::Library(body)) })
    }
}

impl Body {
    /// All of it, and the trailers after it, which only HTTP/2 has. What is more than `most` bytes is not read.
    pub async fn whole(mut self, most: usize) -> Result<(Vec<u8>, HeaderMap), HttpError> {
        let (mut read, mut trailers) = (Vec::new(), HeaderMap::new());
        while let Some(data) = self.piece(&mut trailers).await? {
            if read.len() + data.len() > most {
                break;
            }
            read.extend_from_slice(&data);
        }
        Ok((read, trailers))
    }

    /// What arrives next; `None` at the end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, HttpError> {
        // What follows a body, such as trailers, is nothing to most.
        self.piece(&mut HeaderMap::new()).await
    }

    async fn piece(&mut self, trailers: &mut HeaderMap) -> Result<Option<Bytes>, HttpError> {
        let body = match &mut self.0 {
            Arriving::Plain(body) => return Ok(body.chunk().await?),
            Arriving::Library(body) => body,
        };
        while let Some(frame) = body.frame().await {
            match frame?.into_data() {
                Ok(data) => return Ok(Some(data)),
                Err(frame) => trailers.extend(frame.into_trailers().unwrap_or_default()),
            }
        }
        Ok(None)
    }
}
