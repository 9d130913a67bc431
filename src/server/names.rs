//! The host names and origins that a server without keys accepts.
//!
//! A server without keys trusts every client that reaches it. A web page can reach a server on the same machine
//! through the browser: by a host name of its own that it points there, or by a request that needs no permission. In
//! both cases the browser names the page's origin.

use std::net::{Ipv4Addr, Ipv6Addr};

use http::uri::Authority;
use http::{HeaderMap, Uri, header};

use crate::api::wire::error::{ErrorCode, WireError};

/// Allows any name, or any origin.
const ALL: &str = "*";

/// The names and origins that the operator allows besides.
#[derive(Debug)]
pub(super) struct Allowed {
    pub(super) hosts: Vec<String>,
    pub(super) origins: Vec<String>,
}

/// The host that a request names; `None` if it names none. An error if that is not one host.
pub(super) fn named_host(uri: &Uri, headers: &HeaderMap) -> Result<Option<Authority>, WireError> {
    let wrong = |what: &str| Err(WireError::new(ErrorCode::MalformedRequest, what).at("host"));
    let mut hosts = headers.get_all(header::HOST).iter();
    let header = hosts.next();
    if hosts.next().is_some() {
        return wrong("the host header is there more than once");
    }
    let host = match header.map(|host| host.to_str()) {
        None | Some(Ok("")) => None,
        Some(Ok(text)) => match text.parse::<Authority>() {
            Ok(host) if !text.contains('@') => Some(host),
            Ok(_) | Err(_) => return wrong("the host header is not a host"),
        },
        Some(Err(_)) => return wrong("the host header is not a host"),
    };
    // What the request line names goes first.
    Ok(uri.authority().cloned().or(host))
}

impl Allowed {
    /// Refuses what a web page may have sent without its user's knowledge.
    pub(super) fn check(&self, host: Option<&Authority>, headers: &HeaderMap) -> Result<(), WireError> {
        if let Some(host) = host.filter(|host| !self.has_host(host.host())) {
            let message = format!(
                "a server without keys is called localhost, or by an IP address, not {:?}; the operator can add names \
                 to server.hosts, or declare keys",
                host.host()
            );
            return Err(WireError::new(ErrorCode::HostNotAllowed, message).at("host"));
        }
        let mut origins = headers.get_all(header::ORIGIN).iter().map(|origin| origin.to_str().unwrap_or("null"));
        match origins.find(|origin| !self.has_origin(origin, host)) {
            None => Ok(()),
            Some(origin) => {
                let message = format!(
                    "a server without keys takes no requests from pages of {origin:?}; the operator can add the \
                     origin to server.cors_origins"
                );
                Err(WireError::new(ErrorCode::OriginNotAllowed, message).at("origin"))
            }
        }
    }

    fn has_host(&self, host: &str) -> bool {
        let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        let is_address = name.parse::<Ipv4Addr>().is_ok()
            || name.strip_prefix('[').and_then(|name| name.strip_suffix(']')?.parse::<Ipv6Addr>().ok()).is_some();
        let is_loopback = name == "localhost" || name.ends_with(".localhost");
        let is_named = |allowed: &String| allowed == ALL || allowed.eq_ignore_ascii_case(&name);
        is_address || is_loopback || self.hosts.iter().any(is_named)
    }

    /// Whether it is one of those allowed, or that of the server's own pages.
    fn has_origin(&self, origin: &str, host: Option<&Authority>) -> bool {
        let own = host.is_some_and(|host| {
            let place = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
            place.is_some_and(|place| place.eq_ignore_ascii_case(host.as_str()))
        });
        own || self.origins.iter().any(|allowed| allowed == ALL || allowed == origin)
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn code(hosts: &[&str], host: &str, origin: Option<&str>) -> Option<ErrorCode> {
        let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        let allowed = Allowed { hosts: texts(hosts), origins: texts(&["https://chat.example"]) };
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_str(host).unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, HeaderValue::from_str(origin).unwrap());
        }
        let host = named_host(&Uri::from_static("/v1/models"), &headers).unwrap();
        allowed.check(host.as_ref(), &headers).err().map(|error| error.code)
    }

    #[test]
    fn names_that_others_can_point_here_are_refused() {
        for host in
            ["localhost", "LOCALHOST:8080", "localhost.", "a.localhost", "127.0.0.1:1", "[::1]:8080", "10.1.2.3"]
        {
            assert_eq!(code(&[], host, None), None, "{host}");
        }
        for host in ["evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "1.2.3"] {
            assert_eq!(code(&[], host, None), Some(ErrorCode::HostNotAllowed), "{host}");
            assert_eq!(code(&["*"], host, None), None, "{host}");
        }
        assert_eq!(code(&["my-host"], "My-Host:8080", None), None);
    }

    #[test]
    fn pages_of_others_are_refused() {
        assert_eq!(code(&[], "localhost:8080", Some("http://localhost:8080")), None, "the server's own");
        assert_eq!(code(&[], "localhost:8080", Some("https://chat.example")), None);
        for origin in ["https://evil.example", "http://localhost:3000", "null", "http://localhost:8080.evil.example"] {
            assert_eq!(code(&[], "localhost:8080", Some(origin)), Some(ErrorCode::OriginNotAllowed), "{origin}");
        }
    }

    #[test]
    fn a_request_names_one_host() {
        let named = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::HOST, HeaderValue::from_static(value));
            }
            named_host(&Uri::from_static("/"), &headers)
        };
        assert_eq!(named(&["a.test:80"]).unwrap().unwrap().host(), "a.test");
        assert_eq!((named(&[]), named(&[""])), (Ok(None), Ok(None)));
        for values in [&["a", "b"] as &[_], &["a", "a"], &["a b/c@d"], &["user@a"], &["a/b"]] {
            assert_eq!(named(values).unwrap_err().code, ErrorCode::MalformedRequest, "{values:?}");
        }
    }
}
