//! What a redirect leads to.

use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, EXPECT, HOST,
    HeaderMap, HeaderName, HeaderValue, LOCATION, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{Method, StatusCode};
use url::Url;

use super::failure::FetchFailure;
use super::request::{GuardedRequest, Redirects};
use crate::net::client::common_headers;
use crate::net::guard::Refusal;

/// Most redirects that are followed.
const MAX_REDIRECTS: u8 = 3;

/// Headers of a connection, or of how a request is written: the HTTP client decides about them. A host of another name would lead to
/// another service at an address that was checked for this one.
const OF_THE_CLIENT: [HeaderName; 12] = [
    CONNECTION,
    CONTENT_LENGTH,
    EXPECT,
    HOST,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("http2-settings"),
];

/// One request of a chain.
#[derive(Debug)]
pub(super) struct Hop {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) body: Bytes,
    headers: HeaderMap,
    /// Empty once the chain has left the first origin.
    credentials: HeaderMap,
    /// How many redirects led here.
    redirects: u8,
}

/// What comes after an answer.
#[derive(Debug)]
pub(super) enum Next {
    /// It is the last one.
    Answer,
    /// Another request.
    Hop(Box<Hop>),
}

impl Hop {
    pub(super) fn first(request: GuardedRequest) -> Self {
        let GuardedRequest { method, url, headers, credentials, body, .. } = request;
        Self { method, url, headers, credentials, body, redirects: 0 }
    }

    /// All headers of the request.
    pub(super) fn headers(&self) -> HeaderMap {
        let mut headers = common_headers();
        for (name, value) in &self.headers {
            if !OF_THE_CLIENT.contains(name) {
                headers.insert(name, value.clone());
            }
        }
        for (name, value) in &self.credentials {
            headers.insert(name, value.clone());
        }
        // What is compressed is not read, whatever is asked for.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers
    }

    /// What comes after an answer with this head.
    pub(super) fn next(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        redirects: Redirects,
    ) -> Result<Next, FetchFailure> {
        let is_redirect = matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308);
        let location = headers.get(LOCATION).filter(|_| is_redirect && redirects != Redirects::Return);
        let Some(location) = location else { return Ok(Next::Answer) };
        let url = location.to_str().ok().and_then(|location| self.url.join(location).ok());
        let url = url.ok_or(Refusal::Malformed)?;
        let is_elsewhere = url.origin() != self.url.origin();
        if is_elsewhere && redirects == Redirects::SameOrigin {
            return Ok(Next::Answer);
        }
        if self.redirects == MAX_REDIRECTS {
            return Err(FetchFailure::TooManyRedirects);
        }
        let mut next = Self {
            method: self.method.clone(),
            url,
            body: self.body.clone(),
            headers: self.headers.clone(),
            credentials: self.credentials.clone(),
            redirects: self.redirects + 1,
        };
        let becomes_get = match status.as_u16() {
            303 => self.method != Method::HEAD,
            301 | 302 => self.method == Method::POST,
            _ => false,
        };
        if becomes_get {
            next.read_only();
        }
        if is_elsewhere {
            if !next.method.is_safe() || !next.body.is_empty() {
                return Err(FetchFailure::BodyElsewhere);
            }
            next.credentials.clear();
            for name in [AUTHORIZATION, COOKIE] {
                next.headers.remove(name);
            }
        }
        Ok(Next::Hop(Box::new(next)))
    }

    /// Makes it a request that has no body.
    fn read_only(&mut self) {
        self.method = Method::GET;
        self.body = Bytes::new();
        for name in [CONTENT_TYPE, CONTENT_ENCODING] {
            self.headers.remove(&name);
            self.credentials.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(method: Method, url: &str) -> Hop {
        let mut request = GuardedRequest::get(url.parse().unwrap());
        request.body = if method == Method::POST { "secret".into() } else { Bytes::new() };
        request.method = method;
        for (name, value) in
            [("authorization", "Bearer a"), ("cookie", "b=c"), ("x-mark", "d"), ("content-type", "e/f")]
        {
            request.headers.insert(name, HeaderValue::from_static(value));
        }
        request.credentials.insert("x-api-key", HeaderValue::from_static("key"));
        Hop::first(request)
    }

    fn after(hop: &Hop, status: u16, location: &str, redirects: Redirects) -> Result<Next, FetchFailure> {
        let headers = HeaderMap::from_iter([(LOCATION, location.parse().unwrap())]);
        hop.next(StatusCode::from_u16(status).unwrap(), &headers, redirects)
    }

    fn followed(hop: &Hop, status: u16, location: &str) -> Hop {
        match after(hop, status, location, Redirects::Follow) {
            Ok(Next::Hop(next)) => *next,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn credentials_stay_with_their_origin() {
        let first = hop(Method::GET, "https://a.test/x?y");
        let same = followed(&first, 302, "/z#part");
        assert_eq!(same.url.as_str(), "https://a.test/z#part");
        assert!(same.headers().contains_key("x-api-key") && same.headers().contains_key("authorization"));
        for elsewhere in ["http://a.test/", "https://a.test:8443/", "https://b.a.test/", "//b.test/"] {
            let other = followed(&first, 307, elsewhere);
            let back = followed(&other, 307, "https://a.test/");
            for hop in [other, back] {
                let headers = hop.headers();
                for secret in ["x-api-key", "authorization", "cookie"] {
                    assert!(!headers.contains_key(secret), "{elsewhere} {secret}");
                }
                assert_eq!(headers["x-mark"], "d");
            }
        }
    }

    #[test]
    fn a_body_goes_nowhere_else() {
        let first = hop(Method::POST, "https://a.test/");
        let again = followed(&first, 308, "/there");
        assert_eq!((again.method.as_str(), again.body.as_ref()), ("POST", b"secret".as_slice()));
        for status in [307, 308] {
            assert!(matches!(
                after(&first, status, "https://b.test/", Redirects::Follow),
                Err(FetchFailure::BodyElsewhere)
            ));
        }
        for status in [301, 302, 303] {
            let read = followed(&first, status, "https://b.test/");
            assert_eq!((read.method.as_str(), read.body.len()), ("GET", 0));
            assert!(!read.headers().contains_key("content-type"));
        }
        let delete = hop(Method::DELETE, "https://a.test/");
        assert!(matches!(after(&delete, 302, "https://b.test/", Redirects::Follow), Err(FetchFailure::BodyElsewhere)));
    }

    #[test]
    fn no_more_are_followed_than_are_allowed() {
        let mut last = hop(Method::GET, "https://a.test/0");
        for at in 1..=MAX_REDIRECTS {
            last = followed(&last, 302, &format!("/{at}"));
        }
        assert!(matches!(after(&last, 302, "/more", Redirects::Follow), Err(FetchFailure::TooManyRedirects)));
        let first = hop(Method::GET, "https://a.test/0");
        assert!(matches!(after(&first, 302, "/1", Redirects::Return), Ok(Next::Answer)));
        assert!(matches!(after(&first, 302, "/1", Redirects::SameOrigin), Ok(Next::Hop(_))));
        assert!(matches!(after(&first, 302, "https://b.test/", Redirects::SameOrigin), Ok(Next::Answer)));
        assert!(matches!(after(&first, 304, "/1", Redirects::Follow), Ok(Next::Answer)));
        assert!(matches!(after(&first, 302, "http://", Redirects::Follow), Err(FetchFailure::Refused(_))));
    }

    #[test]
    fn headers_of_the_connection_are_the_clients_own() {
        let mut hop = hop(Method::GET, "https://a.test/");
        for name in ["host", "transfer-encoding", "content-length", "connection", "upgrade", "accept-encoding"] {
            hop.headers.insert(name, HeaderValue::from_static("gzip"));
        }
        let headers = hop.headers();
        for name in ["host", "transfer-encoding", "content-length", "connection", "upgrade"] {
            assert!(!headers.contains_key(name), "{name}");
        }
        assert_eq!(headers["accept-encoding"], "identity");
    }
}
