//! A request as bytes, but for its body.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST, HeaderMap, TRANSFER_ENCODING};
use http::{Method, Uri};

/// Beside the values: the first line without the target, and the length of the body.
const FIXED: usize = 96;
/// Beside the name and the value of a header.
const PER_HEADER: usize = ": \r\n".len();

/// The head of a request whose body has so many bytes. The length is written here and nowhere else, so that no header
/// of a caller can move the end of the request.
pub(super) fn head(method: &Method, uri: &Uri, headers: &HeaderMap, length: usize) -> Bytes {
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    let of_headers: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + PER_HEADER).sum();
    let host = uri.authority().map_or("", |server| server.as_str());
    let mut head = Vec::with_capacity(FIXED + target.len() + host.len() + of_headers);
    head.extend_from_slice(method.as_str().as_bytes());
    head.push(b' ');
    head.extend_from_slice(target.as_bytes());
    head.extend_from_slice(b" HTTP/1.1\r\n");
    if !headers.contains_key(HOST) {
        line(&mut head, "host", host.strip_suffix(":80").unwrap_or(host).as_bytes());
    }
    for (name, value) in headers {
        if name != CONTENT_LENGTH && name != TRANSFER_ENCODING {
            line(&mut head, name.as_str(), value.as_bytes());
        }
    }
    if length > 0 || [Method::POST, Method::PUT, Method::PATCH].contains(method) {
        line(&mut head, "content-length", length.to_string().as_bytes());
    }
    head.extend_from_slice(b"\r\n");
    head.into()
}

fn line(head: &mut Vec<u8>, name: &str, value: &[u8]) {
    head.extend_from_slice(name.as_bytes());
    head.extend_from_slice(b": ");
    head.extend_from_slice(value);
    head.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn written(method: &Method, uri: &'static str, headers: &[(&'static str, &'static str)], length: usize) -> String {
        let headers = headers.iter().map(|&(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)));
        let head = head(method, &Uri::from_static(uri), &headers.collect(), length);
        String::from_utf8(head.to_vec()).unwrap()
    }

    #[test]
    fn a_request_names_its_target_its_host_and_its_length() {
        for (method, uri, headers, length, expected) in [
            (Method::GET, "http://a.test", &[] as &[_], 0, "GET / HTTP/1.1\r\nhost: a.test\r\n\r\n"),
            (Method::GET, "http://a.test:80/?q", &[], 0, "GET /?q HTTP/1.1\r\nhost: a.test\r\n\r\n"),
            (Method::DELETE, "http://[::1]:81/a%20b", &[], 0, "DELETE /a%20b HTTP/1.1\r\nhost: [::1]:81\r\n\r\n"),
            (
                Method::POST,
                "http://a.test:8080/v1/x?y=z#part",
                &[("host", "b.test"), ("x-one", "1")],
                12,
                "POST /v1/x?y=z HTTP/1.1\r\nhost: b.test\r\nx-one: 1\r\ncontent-length: 12\r\n\r\n",
            ),
            (Method::POST, "http://a.test/", &[], 0, "POST / HTTP/1.1\r\nhost: a.test\r\ncontent-length: 0\r\n\r\n"),
        ] {
            assert_eq!(written(&method, uri, headers, length), expected);
        }
    }

    #[test]
    fn no_header_of_a_caller_moves_the_end_of_a_request() {
        let headers = [("content-length", "3"), ("transfer-encoding", "chunked"), ("x-two", "2")];
        let expected = "PUT / HTTP/1.1\r\nhost: a.test\r\nx-two: 2\r\ncontent-length: 5\r\n\r\n";
        assert_eq!(written(&Method::PUT, "http://a.test", &headers, 5), expected);
    }
}
