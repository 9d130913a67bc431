//! A server's HTTP API, as the commands use it.

use std::borrow::Cow;
use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use clap::Args;
use http::{Method, StatusCode};
use reqwest::{RequestBuilder, Response};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use url::Url;

use super::process::{Failure, env};
use super::text::clean;
use crate::config::{Options, Settings};

/// How long an answer may take that waits for nothing at the server. Not a setting: it only ends a wait for a server that
/// hangs.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Which server a command talks to.
#[derive(Debug, Args)]
pub(super) struct Target {
    /// The server; without it, the one that listens where the configuration says
    #[arg(long, env = "LOOPGATE_URL", value_name = "URL", hide_env_values = true)]
    url: Option<String>,

    /// The server's API key
    #[arg(long, env = "LOOPGATE_KEY", value_name = "KEY", hide_env_values = true)]
    key: Option<String>,

    #[command(flatten)]
    options: Options,
}

impl Target {
    /// A client of this server.
    pub(super) fn client(&self) -> Result<Client, Failure> {
        let url = match &self.url {
            Some(url) => url.clone(),
            None => local_url(Settings::load(&self.options, &env).map_err(Failure::config)?.server.listen),
        };
        Client::new(&url, self.key.clone())
    }

    /// A client of another server, with the same key.
    pub(super) fn client_at(&self, url: &str) -> Result<Client, Failure> {
        Client::new(url, self.key.clone())
    }

    /// Whether a server is named, so that the configuration is not asked for it.
    pub(super) fn names_server(&self) -> bool {
        self.url.is_some()
    }
}

/// The address of a server on this machine that listens here.
pub(super) fn local_url(listen: SocketAddr) -> String {
    let address = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    format!("http://{}", SocketAddr::new(address, listen.port()))
}

/// Sends requests to one server. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Client {
    http: reqwest::Client,
    base: Url,
    key: Option<String>,
}

/// Why a request came to nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum RequestError {
    #[error("the server at {url} does not answer: {cause}")]
    Unreachable { url: String, cause: String },
    #[error("{status}: {message}")]
    Refused { status: StatusCode, message: String },
    #[error("the server at {url} answers something else than Loopgate does: {cause}")]
    Malformed { url: String, cause: String },
    #[error("the server ended the stream: {message}")]
    Ended { message: String },
}

#[derive(Deserialize)]
struct ErrorFrame {
    error: ErrorText,
}

/// What an error says.
#[derive(Debug, Deserialize)]
pub(super) struct ErrorText {
    pub(super) message: String,
}

impl Client {
    /// A client of the server at this address.
    pub(super) fn new(url: &str, key: Option<String>) -> Result<Self, Failure> {
        let base = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let base = base.ok_or_else(|| {
            let shown = clean(&without_userinfo(url));
            Failure::new(format_args!("{shown:?} is no address of a server such as http://127.0.0.1:8080"))
        })?;
        let http = reqwest::Client::builder().user_agent(concat!("loopgate/", env!("CARGO_PKG_VERSION")));
        // No proxy leads to this machine.
        let http = if is_local(&base) { http.no_proxy() } else { http };
        Ok(Self { http: http.build().map_err(Failure::new)?, base, key })
    }

    /// The server's address, as errors name it: without a password.
    pub(super) fn url(&self) -> String {
        let mut url = self.base.clone();
        // Neither fails on a URL with a host.
        let _ = url.set_username("").and_then(|()| url.set_password(None));
        url.to_string().trim_end_matches('/').to_owned()
    }

    /// A request for the resource whose path has these segments, with these members in its query.
    pub(super) fn request(&self, method: Method, path: &[&str], query: &[(&str, &str)]) -> RequestBuilder {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let request = self.http.request(method, url);
        match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }

    /// Sends a request; returns as soon as the server has begun to answer that it did what was asked.
    pub(super) async fn send(&self, request: RequestBuilder) -> Result<Response, RequestError> {
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let body = response.bytes().await.unwrap_or_default();
        let said = serde_json::from_slice::<ErrorFrame>(&body).map(|frame| clean(&frame.error.message));
        Err(RequestError::Refused {
            status,
            message: said.unwrap_or_else(|_| "the server does not say why".to_owned()),
        })
    }

    /// Sends a request and reads its JSON answer.
    pub(super) async fn read<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, RequestError> {
        let response = self.send(request).await?;
        let body = response.bytes().await.map_err(|error| self.unreachable(&error))?;
        let malformed =
            |error: serde_json::Error| RequestError::Malformed { url: self.url(), cause: error.to_string() };
        serde_json::from_slice(&body).map_err(malformed)
    }

    /// `GET` of the resource whose path has these segments.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<T, RequestError> {
        self.read(self.request(Method::GET, path, query).timeout(ANSWER_TIMEOUT)).await
    }

    /// The innermost error says what happened, the outer ones only during what.
    pub(super) fn unreachable(&self, error: &reqwest::Error) -> RequestError {
        let mut cause: &dyn Error = error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        RequestError::Unreachable { url: self.url(), cause: cause.to_string() }
    }
}

/// What can be shown of text that may be meant as a URL: it may have a password, and is none whose parts are known.
fn without_userinfo(text: &str) -> Cow<'_, str> {
    let Some((before, after)) = text.rsplit_once('@') else { return text.into() };
    let scheme = before.split_once("://").map(|(scheme, _)| scheme);
    match scheme.filter(|scheme| scheme.bytes().all(|byte| byte.is_ascii_alphanumeric())) {
        Some(scheme) => format!("{scheme}://{after}").into(),
        None => after.into(),
    }
}

fn is_local(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

impl RequestError {
    /// Whether the same request may succeed a little later.
    pub(super) fn is_temporary(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Refused { status, .. } => status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS,
            // Before a server says so in a stream, it has tried for long.
            Self::Malformed { .. } | Self::Ended { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lead_to_resources() {
        let path = |base: &str| {
            let client = Client::new(base, None).unwrap();
            let request = client.request(Method::GET, &["v1", "runs", "../a?b"], &[]).build().unwrap();
            (request.url().to_string(), client.url())
        };
        let plain = ("http://h:1/v1/runs/..%2Fa%3Fb".to_owned(), "http://h:1".to_owned());
        assert_eq!(path("http://h:1"), plain);
        assert_eq!(path("http://h:1/"), plain);
        let (request, named) = path("https://u:secret@h/base/");
        assert!(request.ends_with("h/base/v1/runs/..%2Fa%3Fb"), "{request}");
        assert_eq!(named, "https://h/base");
        for bad in ["h:1", "ftp://h", "", "http://"] {
            assert!(Client::new(bad, None).unwrap_err().message.contains("is no address"), "{bad}");
        }
        for (bad, shown) in [
            ("htps://u:secret@h", "\"htps://h\""),
            ("u:secret@h:1", "\"h:1\""),
            ("https://u:secret/@secret@h", "\"https://h\""),
            ("u:secret://secret@h", "\"h\""),
            ("http:/u:secret@", "\"\""),
        ] {
            let message = Client::new(bad, None).unwrap_err().message;
            assert!(message.starts_with(shown) && !message.contains("secret"), "{bad}: {message}");
        }
        assert_eq!(local_url(([0, 0, 0, 0], 80).into()), "http://127.0.0.1:80");
        assert_eq!(local_url("[::]:80".parse().unwrap()), "http://[::1]:80");
        assert_eq!(local_url("[::1]:80".parse().unwrap()), "http://[::1]:80");
    }
}
