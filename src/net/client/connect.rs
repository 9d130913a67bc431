//! Connections to servers: directly or through a proxy, with TLS or without.

use std::error::Error;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::header::USER_AGENT;
use http::uri::Scheme;
use http::{HeaderMap, HeaderValue, Uri};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use rustls::ClientConfig;
use tower::Service;

use super::reach::Reach;
use super::stream::Stream;
use super::tls;

/// What this server calls itself, to servers and to proxies.
pub(super) const NAME: HeaderValue = HeaderValue::from_static(concat!("loopgate/", env!("CARGO_PKG_VERSION")));

/// How the kernel finds out that a server has vanished: after how long a silence it asks, how often again, when it
/// gives up, and how long what was sent may stay without an acknowledgement. Not settings: the packets cost next to
/// nothing, and servers that are there answer them by themselves.
const SILENCE: Duration = Duration::from_secs(15);
const ASK_EVERY: Duration = Duration::from_secs(15);
const ASK_TIMES: u32 = 3;
#[cfg(target_os = "linux")]
const ACKNOWLEDGED: Duration = Duration::from_secs(30);

/// Why there can be no client: the certificate authorities of the system cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("what HTTPS is checked against cannot be read: {0}")]
pub struct CannotConnect(#[from] rustls::Error);

/// It took too long to connect.
#[derive(Debug, thiserror::Error)]
#[error("it took too long to connect")]
pub(super) struct TooSlow;

/// Why a connection failed.
pub(super) type Failure = Box<dyn Error + Send + Sync>;

/// Makes connections.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    /// Reaches servers without TLS.
    tcp: HttpConnector,
    /// Reaches servers.
    direct: HttpsConnector<HttpConnector>,
    /// Reaches proxies, which speak HTTP/1.1.
    to_proxy: HttpsConnector<HttpConnector>,
    tls: Arc<ClientConfig>,
    proxies: Option<Arc<Matcher>>,
    /// Whether proxies are asked for a tunnel to every server: they pass no HTTP/2 on.
    tunnels_all: bool,
    timeout: Option<Duration>,
}

impl Connector {
    /// Connects through `proxies` where they say so; through tunnels alone where only HTTP/2 is spoken.
    pub(super) fn new(reach: &Reach, proxies: Option<Matcher>) -> Result<Self, CannotConnect> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(SILENCE));
        tcp.set_keepalive_interval(Some(ASK_EVERY));
        tcp.set_keepalive_retries(Some(ASK_TIMES));
        #[cfg(target_os = "linux")]
        tcp.set_tcp_user_timeout(Some(ACKNOWLEDGED));
        let (mut to_server, to_proxy) = encryption(reach)?;
        to_server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let tls = Arc::new(to_server);
        Ok(Self {
            tcp: tcp.clone(),
            direct: (tcp.clone(), tls.clone()).into(),
            to_proxy: (tcp, Arc::new(to_proxy)).into(),
            tls,
            proxies: proxies.map(Arc::new),
            tunnels_all: reach.http2_only,
            timeout: reach.connect_timeout,
        })
    }

    /// What a proxy wants to see with each request that it gets as it is.
    pub(super) fn proxy_authorization(&self, to: &Uri) -> Option<HeaderValue> {
        if self.tunnels_all || to.scheme() != Some(&Scheme::HTTP) {
            return None;
        }
        self.proxy(to)?.basic_auth().cloned()
    }

    /// What opens connections without TLS, to servers that no proxy is used for.
    pub(super) fn tcp(&self) -> HttpConnector {
        self.tcp.clone()
    }

    /// Whether a proxy is used for requests to this server.
    pub(super) fn is_proxied(&self, to: &Uri) -> bool {
        self.proxy(to).is_some()
    }

    fn proxy(&self, to: &Uri) -> Option<Intercept> {
        self.proxies.as_ref()?.intercept(to)
    }

    async fn connect(mut self, to: Uri) -> Result<Stream, Failure> {
        let Some(proxy) = self.proxy(&to) else { return Ok(Stream::direct(self.direct.call(to).await?)) };
        if to.scheme() != Some(&Scheme::HTTPS) && !self.tunnels_all {
            return Ok(Stream::to_proxy(self.to_proxy.call(proxy.uri().clone()).await?));
        }
        let name = HeaderMap::from_iter([(USER_AGENT, NAME)]);
        let mut tunnel = Tunnel::new(proxy.uri().clone(), self.to_proxy).with_headers(name);
        if let Some(authorization) = proxy.basic_auth() {
            tunnel = tunnel.with_auth(authorization.clone());
        }
        Ok(Stream::direct(HttpsConnector::from((tunnel, self.tls)).call(to).await?))
    }
}

/// How TLS is spoken to servers, and to proxies. A proxy is shown no certificate, and is never vouched for by the
/// authorities of the server behind it.
fn encryption(reach: &Reach) -> Result<(ClientConfig, ClientConfig), rustls::Error> {
    let (authorities, certificate) = (reach.authorities.as_ref(), reach.certificate.as_ref());
    let of_system = tls::config(None, None);
    if authorities.is_none() && certificate.is_none() {
        return of_system.map(|config| (config.clone(), config));
    }
    // A client with authorities of its own needs none of the system, unless a proxy speaks TLS.
    let to_proxy = of_system.or_else(|_| tls::config_without_trust())?;
    Ok((tls::config(authorities, certificate)?, to_proxy))
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = Failure;
    type Future = BoxFuture<'static, Result<Stream, Failure>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        self.direct.poll_ready(context)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let timeout = self.timeout;
        let connecting = self.clone().connect(to);
        Box::pin(async move {
            match timeout {
                Some(timeout) => tokio::time::timeout(timeout, connecting).await.map_err(|_| TooSlow)?,
                None => connecting.await,
            }
        })
    }
}
