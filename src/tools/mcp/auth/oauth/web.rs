//! Asks servers about tokens: those that the operator names as they are, all others through the egress guard.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use tokio::time::timeout;
use url::{Origin, Url};

use crate::net::client::{HttpClient, common_headers};
use crate::net::fetch::{FetchLimits, Fetcher, GuardedRequest, Redirects};

/// Most time for an answer.
const WITHIN: Duration = Duration::from_secs(10);
/// Longest answer.
const MAX_BODY: usize = 64 << 10;
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const FORM: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded");

/// What servers are asked with. Cheap to clone.
#[derive(Debug, Clone)]
pub(in crate::tools::mcp) struct AuthWeb {
    client: HttpClient,
    fetcher: Fetcher,
    /// Where the servers are that the operator names.
    named: Vec<Origin>,
}

/// What a server answered.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

impl AuthWeb {
    /// Asks the servers at these origins with `client`, and all others with `fetcher`.
    pub(in crate::tools::mcp) fn new(client: HttpClient, fetcher: Fetcher, named: Vec<Origin>) -> Self {
        Self { client, fetcher, named }
    }

    /// Reads a URL.
    pub(super) async fn get(&self, url: &Url) -> Result<Answer, String> {
        self.send(Method::GET, url, Bytes::new(), None).await
    }

    /// Sends a form, and perhaps a secret in the header for that.
    pub(super) async fn post(
        &self,
        url: &Url,
        form: String,
        authorization: Option<HeaderValue>,
    ) -> Result<Answer, String> {
        self.send(Method::POST, url, form.into(), authorization).await
    }

    /// Sends a request. The error is a clause that names no address.
    async fn send(
        &self,
        method: Method,
        url: &Url,
        body: Bytes,
        authorization: Option<HeaderValue>,
    ) -> Result<Answer, String> {
        let host = url.host_str().unwrap_or_default().to_owned();
        let mut headers = HeaderMap::from_iter([(ACCEPT, JSON)]);
        if method == Method::POST {
            headers.insert(CONTENT_TYPE, FORM);
        }
        let credentials = authorization.map(|value| (AUTHORIZATION, value)).into_iter().collect();
        let sent = if self.named.contains(&url.origin()) {
            timeout(WITHIN, self.direct(method, url, (headers, credentials), body))
                .await
                .unwrap_or_else(|_| Err("it took too long".to_owned()))
        } else if url.scheme() == "https" {
            self.guarded(method, url, (headers, credentials), body).await
        } else {
            Err("what is not named in the configuration is asked by https:// alone".to_owned())
        };
        sent.map_err(|why| {
            tracing::warn!(host, why, "a server could not be asked about tokens");
            format!("its authorization server could not be asked: {why}")
        })
    }

    async fn direct(
        &self,
        method: Method,
        url: &Url,
        (more, credentials): (HeaderMap, HeaderMap),
        body: Bytes,
    ) -> Result<Answer, String> {
        let mut request = Request::new(body);
        *request.uri_mut() = Uri::try_from(url.as_str()).map_err(|_| "its address cannot be asked".to_owned())?;
        *request.method_mut() = method;
        let mut headers = common_headers();
        headers.extend(more);
        headers.extend(credentials);
        *request.headers_mut() = headers;
        let broke = |_| "it cannot be reached, or broke off".to_owned();
        let response = self.client.send(request).await.map_err(broke)?;
        let (body, _) = response.body.whole(MAX_BODY).await.map_err(broke)?;
        Ok(Answer { status: response.status.as_u16(), headers: response.headers, body })
    }

    async fn guarded(
        &self,
        method: Method,
        url: &Url,
        (headers, credentials): (HeaderMap, HeaderMap),
        body: Bytes,
    ) -> Result<Answer, String> {
        let limits =
            FetchLimits { max_body: MAX_BODY, timeout: WITHIN, redirects: Redirects::Return, ..FetchLimits::default() };
        let request = GuardedRequest { method, headers, credentials, body, limits, ..GuardedRequest::get(url.clone()) };
        let response = self.fetcher.fetch(request).await.map_err(|error| error.to_string())?;
        let (status, headers) = (response.status.as_u16(), response.headers);
        let body = response.body.whole().await.map_err(|error| error.to_string())?;
        Ok(Answer { status, headers, body })
    }
}
