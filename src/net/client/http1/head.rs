//! The head of an answer: its status, its headers, and how its body ends.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING};
use http::{Method, StatusCode};
use httparse::{EMPTY_HEADER, Status};
use memchr::memchr_iter;

use super::chunks::Chunks;
use super::error::Malformed;
use super::framing::Framing;

/// The longest head that is read, in bytes, and the most headers in it: more than common servers send.
pub(super) const MAX_HEAD: usize = 64 << 10;
const MAX_HEADERS: usize = 128;
/// What every answer begins with.
const BEGINNING: &[u8] = b"HTTP/1.";

/// The head of an answer.
#[derive(Debug, PartialEq)]
pub(super) struct Head {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) framing: Framing,
    /// Whether the server lets the connection be used again.
    pub(super) may_go_on: bool,
}

/// What the first bytes of an answer are.
#[derive(Debug, PartialEq)]
pub(super) enum Read {
    /// Not yet all of the head.
    Partial,
    /// A head of so many bytes that says only that the answer is still to come.
    Interim(usize),
    /// The head, and how many bytes it has.
    Whole(Head, usize),
}

/// Reads the head at the beginning of `bytes`, of which the first `seen` were looked at before without finding its end.
pub(super) fn read(bytes: &[u8], seen: usize, method: &Method) -> Result<Read, Malformed> {
    if !begins_rightly(bytes) {
        return Err(Malformed("it begins otherwise"));
    }
    let Some(length) = end(bytes, seen)? else {
        return if bytes.len() > MAX_HEAD { Err(Malformed("its head is too long")) } else { Ok(Read::Partial) };
    };
    let mut fields = [EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Response::new(&mut fields);
    match parsed.parse(&bytes[..length]) {
        Ok(Status::Complete(read)) if read == length => {}
        Err(httparse::Error::TooManyHeaders) => return Err(Malformed("it has too many headers")),
        Ok(Status::Complete(_) | Status::Partial) | Err(_) => return Err(Malformed("its head cannot be read")),
    }
    let status = parsed.code.and_then(|code| StatusCode::from_u16(code).ok()).ok_or(Malformed("it has no status"))?;
    match status.as_u16() {
        101 => return Err(Malformed("it changes the protocol, which was not asked for")),
        100..=199 => return Ok(Read::Interim(length)),
        _ => {}
    }
    let headers = headers(&bytes[..length], parsed.headers)?;
    let is_1_1 = parsed.version == Some(1);
    let framing = framing(status, &headers, method, is_1_1)?;
    // One that names both has been through something that does not keep to the rules.
    let is_ambiguous = headers.contains_key(TRANSFER_ENCODING) && headers.contains_key(CONTENT_LENGTH);
    let may_go_on = is_1_1 && !is_ambiguous && !tokens(&headers, &CONNECTION).any(|token| token == "close");
    Ok(Read::Whole(Head { status, headers, framing, may_go_on }, length))
}

/// Whether this can become an answer: some servers speak first and something else.
fn begins_rightly(bytes: &[u8]) -> bool {
    let length = bytes.len().min(BEGINNING.len());
    bytes[..length] == BEGINNING[..length]
}

/// Where the head ends, if that is there. Where a line ends with a line feed alone, readers differ on what belongs to the
/// head, so none may.
fn end(bytes: &[u8], seen: usize) -> Result<Option<usize>, Malformed> {
    for at in memchr_iter(b'\n', &bytes[seen..]).map(|at| seen + at) {
        match &bytes[..at] {
            [.., b'\r', b'\n', b'\r'] => return Ok(Some(at + 1)),
            [.., b'\r'] => {}
            _ => return Err(Malformed("a line of its head ends with a line feed alone")),
        }
    }
    Ok(None)
}

/// All headers, in one copy of the memory that they were read into.
fn headers(head: &[u8], fields: &[httparse::Header<'_>]) -> Result<HeaderMap, Malformed> {
    const UNREADABLE: Malformed = Malformed("it has a header that cannot be read");
    let copy = Bytes::copy_from_slice(head);
    let mut headers = HeaderMap::with_capacity(fields.len());
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| UNREADABLE)?;
        // What is empty may lie anywhere.
        let value = if field.value.is_empty() {
            HeaderValue::from_static("")
        } else {
            let at = field.value.as_ptr().addr() - head.as_ptr().addr();
            let value = copy.slice(at..at + field.value.len());
            HeaderValue::from_maybe_shared(value).map_err(|_| UNREADABLE)?
        };
        headers.append(name, value);
    }
    Ok(headers)
}

/// How the body ends, in the order of RFC 9112, section 6.3.
fn framing(status: StatusCode, headers: &HeaderMap, method: &Method, is_1_1: bool) -> Result<Framing, Malformed> {
    if method == Method::HEAD || matches!(status.as_u16(), 204 | 304) {
        return Ok(Framing::Length(0));
    }
    if headers.contains_key(TRANSFER_ENCODING) {
        return match tokens(headers, &TRANSFER_ENCODING).collect::<Vec<_>>().as_slice() {
            // Nothing here unpacks what else a body may be put into.
            [chunked] if is_1_1 && chunked == "chunked" => Ok(Framing::Chunked(Chunks::default())),
            _ => Err(Malformed("it has a transfer-encoding other than chunked")),
        };
    }
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter().map(length);
    let Some(first) = lengths.next() else { return Ok(Framing::UntilClosed) };
    match first {
        Some(length) if lengths.all(|other| other == Some(length)) => Ok(Framing::Length(length)),
        _ => Err(Malformed("it has a content-length that cannot be read")),
    }
}

/// A length, which is digits alone.
fn length(value: &HeaderValue) -> Option<u64> {
    let digits = value.to_str().ok().filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()))?;
    digits.parse().ok()
}

/// What is listed in all headers of this name, in small letters.
fn tokens(headers: &HeaderMap, name: &HeaderName) -> impl Iterator<Item = String> {
    let values = headers.get_all(name).iter();
    values.flat_map(|value| value.as_bytes().split(|&byte| byte == b',')).map(|token| {
        let token = token.trim_ascii();
        String::from_utf8_lossy(token).to_ascii_lowercase()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(head: &str) -> Result<Read, Malformed> {
        read(head.as_bytes(), 0, &Method::GET)
    }

    fn whole(method: &Method, head: &str) -> (Framing, bool) {
        match read(head.as_bytes(), 0, method).unwrap() {
            Read::Whole(read, length) if length == head.len() => (read.framing, read.may_go_on),
            other @ (Read::Partial | Read::Interim(_) | Read::Whole(..)) => panic!("{head:?}: {other:?}"),
        }
    }

    #[test]
    fn the_head_says_how_the_body_ends() {
        let get = |rest: &str| whole(&Method::GET, &format!("HTTP/1.1 200 OK\r\n{rest}\r\n"));
        let chunked = || Framing::Chunked(Chunks::default());
        assert_eq!(get("content-length: 12\r\n"), (Framing::Length(12), true));
        assert_eq!(get("Content-Length: 12\r\ncontent-length: 12\r\n"), (Framing::Length(12), true));
        assert_eq!(get("transfer-encoding: Chunked \r\n"), (chunked(), true));
        assert_eq!(get("transfer-encoding: chunked\r\ncontent-length: 3\r\n"), (chunked(), false));
        assert_eq!(get("content-type: text/plain\r\n"), (Framing::UntilClosed, true));
        assert_eq!(get("content-length: 0\r\nconnection: x, Close\r\n"), (Framing::Length(0), false));
        for head in ["HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 304 \r\ncontent-length: 5\r\n\r\n"] {
            assert_eq!(whole(&Method::GET, head), (Framing::Length(0), true), "{head}");
        }
        assert_eq!(whole(&Method::HEAD, "HTTP/1.1 200\r\ncontent-length: 5\r\n\r\n"), (Framing::Length(0), true));
        assert_eq!(whole(&Method::GET, "HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\n"), (Framing::Length(5), false));
    }

    #[test]
    fn an_answer_that_could_be_read_in_two_ways_is_refused() {
        for rest in [
            "content-length: 1\r\ncontent-length: 2\r\n",
            "content-length: +1\r\n",
            "content-length: 1, 1\r\n",
            "content-length: \r\n",
            "content-length: 18446744073709551616\r\n",
            "content-length : 1\r\n",
            "transfer-encoding: gzip, chunked\r\n",
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
            "transfer-encoding: chunked, identity\r\n",
            "transfer-encoding: \r\n",
            "x-folded: a\r\n b\r\n",
            "x: a\rb\r\n",
            "x: a\0b\r\n",
            ": x\r\n",
            "no colon\r\n",
            "content-length: 2\n",
            "x: y\n\ncontent-length: 4\r\n",
            "\n",
        ] {
            let head = format!("HTTP/1.1 200 OK\r\n{rest}\r\n");
            assert!(parse(&head).is_err(), "{head:?}: {:?}", parse(&head));
        }
        assert!(parse("HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").is_err());
        assert!(parse("HTTP/1.1 101 Switching Protocols\r\n\r\n").is_err());
        for head in ["HTTP/2.0 200 OK\r\n\r\n", "HTTP/1.1 99 x\r\n\r\n", "HTTP/1.1 2000 x\r\n\r\n", "SSH-2.0", "\x16"] {
            assert!(parse(head).is_err(), "{head:?}");
        }
    }

    /// Some readers end a line with it, others read on: then they differ on where the body begins.
    #[test]
    fn a_line_feed_alone_is_refused_as_soon_as_it_is_there() {
        let refused = Err(Malformed("a line of its head ends with a line feed alone"));
        for head in
            ["HTTP/1.1 200 OK\n", "HTTP/1.1 200 OK\r\nx: y\n", "HTTP/1.1 200 OK\r\n\n", "HTTP/1.1 200 OK\r\nx: \ny"]
        {
            for seen in 0..head.rfind('\n').unwrap() {
                assert_eq!(read(head.as_bytes(), seen, &Method::GET), refused, "{head:?}, {seen} seen");
            }
        }
        assert!(matches!(parse("HTTP/1.1 200 OK\r\n\r\na\nb"), Ok(Read::Whole(_, 19))), "a body is another matter");
    }

    #[test]
    fn a_head_is_read_wherever_it_is_cut() {
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 1\r\nx-empty:\r\nx: y\r\n\r\n";
        for cut in 0..head.len() {
            assert_eq!(read(&head.as_bytes()[..cut], cut.saturating_sub(1), &Method::GET), Ok(Read::Partial), "{cut}");
        }
        let Ok(Read::Whole(whole, length)) = read(format!("{head}body").as_bytes(), head.len() - 1, &Method::GET)
        else {
            panic!("it is whole");
        };
        assert_eq!(
            (length, &whole.headers["x"], &whole.headers["x-empty"]),
            (head.len(), &"y".parse().unwrap(), &"".parse().unwrap())
        );
    }

    #[test]
    fn a_head_has_its_bounds() {
        let long = format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(MAX_HEAD));
        assert!(parse(&long).is_err());
        assert_eq!(parse(&long[..MAX_HEAD]), Ok(Read::Partial));
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(MAX_HEADERS + 1));
        assert!(parse(&many).is_err());
        assert_eq!(parse("HTTP/1.1 100 Continue\r\n\r\nHTTP"), Ok(Read::Interim(25)));
    }
}
