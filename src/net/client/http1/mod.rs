//! HTTP/1.1 over connections without TLS, spoken in the task of the caller.
//!
//! What runs ask goes mostly to servers beside this one, and most of the time a run waits for them. A connection that
//! waits has no buffer here and no task: bytes are read into memory that all connections of a thread share, and a body
//! is handed on as soon as it arrives. What comes with TLS, HTTP/2 or a proxy is spoken by the HTTP library.
//!
//! | file | holds |
//! | --- | --- |
//! | `request` | a request as bytes (pure) |
//! | `head` | the head of an answer: what it says, and how its body ends (pure) |
//! | `framing`, `chunks` | where a body ends (pure) |
//! | `connection` | a connection: writes a request, reads what comes |
//! | `exchange` | one request and its answer over one connection |
//! | `body` | a body while it arrives |
//! | `pool` | connections that are kept for the next request |

mod body;
mod chunks;
mod connection;
mod error;
mod exchange;
mod framing;
mod head;
mod pool;
mod request;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::{Authority, Scheme};
use http::{HeaderMap, Request, StatusCode, Uri};
use tokio::net::TcpStream;
use tower::Service;

pub(super) use self::body::Body;
pub(super) use self::error::Http1Error;
use self::exchange::{Arriving, Exchange};
use self::head::Head;
use self::pool::Pool;
use super::connect::TooSlow;
use super::tcp::Tcp;

/// Asks servers, and keeps connections to them. Clones share these connections.
#[derive(Debug, Clone)]
pub(super) struct Http1Client {
    connector: Tcp,
    connect_timeout: Option<Duration>,
    pool: Arc<Pool>,
}

/// An answer whose body is still to come.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Body,
}

impl Http1Client {
    /// Keeps each connection for so long after an answer.
    pub(super) fn new(connector: Tcp, connect_timeout: Option<Duration>, keep_idle: Duration) -> Self {
        Self { connector, connect_timeout, pool: Arc::new(Pool::new(keep_idle)) }
    }

    /// The server that a request to `uri` goes to, if that is asked here. Who is named in the URL is known to the HTTP
    /// library alone.
    pub(super) fn server(uri: &Uri) -> Option<&Authority> {
        let server = uri.authority().filter(|_| uri.scheme() == Some(&Scheme::HTTP))?;
        (!server.as_str().contains('@')).then_some(server)
    }

    /// Sends a request to its server, and returns once the head of the answer is there. A connection that was kept and
    /// took no byte is replaced by another.
    pub(super) async fn send(&self, server: Authority, request: Request<Bytes>) -> Result<Answer, Http1Error> {
        while let Some(kept) = self.pool.take(&server) {
            match Exchange::new(kept, &request, true).answer().await {
                Err(Http1Error::Unsent) => {}
                answered => return answered.map(|answered| self.answer(answered, server)),
            }
        }
        let fresh = self.connect(request.uri().clone()).await?;
        let exchange = Exchange::new(fresh, &request, false);
        drop(request);
        exchange.answer().await.map(|answered| self.answer(answered, server))
    }

    fn answer(&self, (head, first, arriving): (Box<Head>, Vec<u8>, Arriving), server: Authority) -> Answer {
        let Head { status, headers, .. } = *head;
        Answer { status, headers, body: Body::new(first, arriving, self.pool.clone(), server) }
    }

    async fn connect(&self, to: Uri) -> Result<TcpStream, Http1Error> {
        let connecting = self.connector.clone().call(to);
        let connected = match self.connect_timeout {
            Some(timeout) => tokio::time::timeout(timeout, connecting).await.map_err(|_| unconnected(TooSlow))?,
            None => connecting.await,
        };
        Ok(connected.map_err(unconnected)?.into_inner())
    }
}

fn unconnected(why: impl Into<super::tcp::Failure>) -> Http1Error {
    Http1Error::Unconnected(why.into())
}
