//! Sends requests to a server's endpoint, with the credentials that are the server's.

use bytes::Bytes;
use http::header::LOCATION;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use url::Url;

use super::HttpFault;
use crate::config::McpEndpoint;
use crate::net::client::{HttpClient, HttpError, Response, common_headers};
use crate::tools::mcp::auth::Authorization;

/// Most redirects that are followed, all of them to the same server.
const MAX_REDIRECTS: u32 = 3;

/// Where a server listens, and what each request tells it.
#[derive(Debug)]
pub(in crate::tools::mcp) struct Endpoint {
    client: HttpClient,
    url: Url,
    headers: HeaderMap,
    authorization: Authorization,
}

impl Endpoint {
    /// The endpoint that is declared so, and is shown `authorization`.
    pub(in crate::tools::mcp) fn new(client: HttpClient, declared: &McpEndpoint, authorization: Authorization) -> Self {
        let mut headers = common_headers();
        for (name, value) in &declared.headers {
            // The configuration has checked that they can be sent.
            if let Ok(mut value) = HeaderValue::from_str(value.whole.expose()) {
                value.set_sensitive(true);
                headers.insert(name, value);
            }
        }
        Self { client, url: declared.url.clone(), headers, authorization }
    }

    /// Sends a request. One that is refused because of a token that counts no more is sent again with the next.
    pub(super) async fn send(&self, method: Method, more: HeaderMap, body: Bytes) -> Result<Response, HttpFault> {
        let mut headers = self.headers.clone();
        headers.extend(more);
        let shown = self.authorization.shown().await?;
        shown.add_to(&mut headers);
        let response = self.follow(&method, &headers, &body).await?;
        if response.status == StatusCode::UNAUTHORIZED
            && let Some(next) = self.authorization.after_refusal(&shown, &response.headers).await?
        {
            next.add_to(&mut headers);
            return self.follow(&method, &headers, &body).await;
        }
        Ok(response)
    }

    /// Sends a request, and follows redirects to other paths of the same server.
    async fn follow(&self, method: &Method, headers: &HeaderMap, body: &Bytes) -> Result<Response, HttpFault> {
        let mut url = self.url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let mut request = Request::new(body.clone());
            let uri = Uri::try_from(url.as_str()).map_err(|_| HttpFault::Unreached)?;
            (*request.method_mut(), *request.uri_mut(), *request.headers_mut()) =
                (method.clone(), uri, headers.clone());
            let response = self.client.send(request).await.map_err(|error| fault(&error))?;
            match redirected(&url, &response) {
                Some(next) => url = next?,
                None => return Ok(response),
            }
        }
        Err(HttpFault::Redirected)
    }
}

/// Where an answer sends the same request; only the same server is asked again.
fn redirected(from: &Url, response: &Response) -> Option<Result<Url, HttpFault>> {
    if !matches!(response.status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT) {
        return response.status.is_redirection().then_some(Err(HttpFault::Redirected));
    }
    let to = response.headers.get(LOCATION).and_then(|to| to.to_str().ok()).and_then(|to| from.join(to).ok());
    Some(to.filter(|to| to.origin() == from.origin()).ok_or(HttpFault::Redirected))
}

fn fault(error: &HttpError) -> HttpFault {
    if let Some(refusal) = error.refusal() {
        return HttpFault::Refused(refusal.clone());
    }
    match (error.is_tls(), error.is_connect()) {
        (true, true) => HttpFault::Untrusted,
        (_, true) => HttpFault::Unreached,
        (_, false) => HttpFault::Broken,
    }
}
