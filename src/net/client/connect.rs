//! Connections to servers: directly or through a proxy, with TLS or without.

use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::header::USER_AGENT;
use http::uri::Scheme;
use http::{HeaderMap, HeaderValue, Uri};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use rustls::ClientConfig;
use tower::Service;

use super::reach::Reach;
use super::stream::Stream;
use super::tcp::{Failure, Pinned, Tcp};
use super::tls;
use crate::net::guard::Guard;

/// What this server calls itself, to servers and to proxies.
pub(super) const NAME: HeaderValue = HeaderValue::from_static(concat!("loopgate/", env!("CARGO_PKG_VERSION")));

/// Why there can be no client: the certificate authorities of the system cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("what HTTPS is checked against cannot be read: {0}")]
pub struct CannotConnect(#[from] rustls::Error);

/// It took too long to connect.
#[derive(Debug, thiserror::Error)]
#[error("it took too long to connect")]
pub(super) struct TooSlow;

/// Makes connections.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    /// Reaches servers without TLS.
    tcp: Tcp,
    /// Reaches servers.
    direct: HttpsConnector<Tcp>,
    /// Reaches proxies, which speak HTTP/1.1.
    to_proxy: HttpsConnector<Tcp>,
    tls: Arc<ClientConfig>,
    proxies: Option<Arc<Matcher>>,
    /// Whether proxies are asked for a tunnel to every server: they pass no HTTP/2 on, and would resolve a name again that was
    /// checked.
    tunnels_all: bool,
    guard: Option<Guard>,
    timeout: Option<Duration>,
}

impl Connector {
    /// Connects through `proxies` where they say so; through tunnels alone where only HTTP/2 is spoken.
    pub(super) fn new(reach: &Reach, proxies: Option<Matcher>) -> Result<Self, CannotConnect> {
        let tcp = Tcp::new(reach.guard.clone());
        let checks_names = reach.guard.as_ref().is_some_and(|guard| !guard.policy().leaves_names_to_the_proxy());
        let (mut to_server, to_proxy) = encryption(reach)?;
        to_server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let tls = Arc::new(to_server);
        Ok(Self {
            tcp: tcp.clone(),
            direct: (tcp.clone(), tls.clone()).into(),
            to_proxy: (Tcp::new(None), Arc::new(to_proxy)).into(),
            tls,
            proxies: proxies.map(Arc::new),
            tunnels_all: reach.http2_only || checks_names,
            guard: reach.guard.clone(),
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
    pub(super) fn tcp(&self) -> Tcp {
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
        let at = self.checked(&to).await?;
        if to.scheme() != Some(&Scheme::HTTPS) && !self.tunnels_all {
            return Ok(Stream::to_proxy(self.to_proxy.call(proxy.uri().clone()).await?));
        }
        let name = HeaderMap::from_iter([(USER_AGENT, NAME)]);
        let mut tunnel = Tunnel::new(proxy.uri().clone(), self.to_proxy).with_headers(name);
        if let Some(authorization) = proxy.basic_auth() {
            tunnel = tunnel.with_auth(authorization.clone());
        }
        let tunnel = Pinned::new(tunnel, at.unwrap_or_else(|| to.clone()));
        Ok(Stream::direct(HttpsConnector::from((tunnel, self.tls)).call(to).await?))
    }

    /// Has the guard check a server that a proxy reaches. Returns the server with its address in the place of its name, unless
    /// names are left to the proxy.
    async fn checked(&self, to: &Uri) -> Result<Option<Uri>, Failure> {
        let Some(guard) = &self.guard else { return Ok(None) };
        guard.check_uri(to)?;
        let Some(host) = to.host().filter(|_| !guard.policy().leaves_names_to_the_proxy()) else { return Ok(None) };
        let answers = guard.resolve(host).await?;
        let address = answers.first().map(|address| match address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        });
        let is_encrypted = to.scheme() == Some(&Scheme::HTTPS);
        let port = to.port_u16().unwrap_or(if is_encrypted { 443 } else { 80 });
        let server = format!("{}:{port}", address.unwrap_or_default());
        let parts = Uri::builder().scheme(to.scheme().cloned().unwrap_or(Scheme::HTTP)).authority(server);
        Ok(Some(parts.path_and_query("/").build()?))
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
