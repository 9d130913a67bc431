//! Connections without TLS, and where the guard stands before them.

use std::error::Error;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;
use std::vec;

use futures_util::future::BoxFuture;
use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower::Service;

use crate::net::guard::Guard;

/// How the kernel finds out that a server has vanished: after how long a silence it asks, how often again, when it
/// gives up, and how long what was sent may stay without an acknowledgement. Not settings: the packets cost next to
/// nothing, and servers that are there answer them by themselves.
const SILENCE: Duration = Duration::from_secs(15);
const ASK_EVERY: Duration = Duration::from_secs(15);
const ASK_TIMES: u32 = 3;
#[cfg(target_os = "linux")]
const ACKNOWLEDGED: Duration = Duration::from_secs(30);

/// Why a connection failed.
pub(super) type Failure = Box<dyn Error + Send + Sync>;

/// Opens connections. With a guard, only to addresses that the guard checked for this connection.
#[derive(Debug, Clone)]
pub(super) struct Tcp {
    connector: HttpConnector<Resolver>,
    guard: Option<Guard>,
}

impl Tcp {
    pub(super) fn new(guard: Option<Guard>) -> Self {
        let mut connector = HttpConnector::new_with_resolver(Resolver(guard.clone()));
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_keepalive(Some(SILENCE));
        connector.set_keepalive_interval(Some(ASK_EVERY));
        connector.set_keepalive_retries(Some(ASK_TIMES));
        #[cfg(target_os = "linux")]
        connector.set_tcp_user_timeout(Some(ACKNOWLEDGED));
        Self { connector, guard }
    }
}

impl Service<Uri> for Tcp {
    type Response = TokioIo<TcpStream>;
    type Error = Failure;
    type Future = BoxFuture<'static, Result<Self::Response, Failure>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        self.connector.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        // An address in the place of a name is connected to without asking the resolver.
        let allowed = self.guard.as_ref().map_or(Ok(()), |guard| guard.check_uri(&to));
        let mut connector = self.connector.clone();
        Box::pin(async move {
            allowed?;
            Ok(connector.call(to).await?)
        })
    }
}

/// Resolves names, through the guard if there is one.
#[derive(Debug, Clone)]
struct Resolver(Option<Guard>);

impl Service<Name> for Resolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = Failure;
    type Future = BoxFuture<'static, Result<Self::Response, Failure>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let guard = self.0.clone();
        Box::pin(async move {
            let addresses: Vec<SocketAddr> = match guard {
                None => GaiResolver::new().call(name).await?.collect(),
                Some(guard) => {
                    let answers = guard.resolve(name.as_str()).await?;
                    answers.into_iter().map(|address| SocketAddr::new(address, 0)).collect()
                }
            };
            Ok(addresses.into_iter())
        })
    }
}

/// Reaches one server whatever it is asked for: the server's address in the place of its name.
#[derive(Debug, Clone)]
pub(super) struct Pinned<S> {
    inner: S,
    to: Uri,
}

impl<S> Pinned<S> {
    pub(super) fn new(inner: S, to: Uri) -> Self {
        Self { inner, to }
    }
}

impl<S: Service<Uri>> Service<Uri> for Pinned<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, _: Uri) -> S::Future {
        self.inner.call(self.to.clone())
    }
}
