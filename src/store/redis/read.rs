//! Arguments of reads, and how answers are read.

use std::ops::Bound;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use redis::{FromRedisValue, Pipeline, Value};

use crate::store::{Document, LogPage, PAGE_BYTES, Unavailable};

/// Reads a string.
pub(super) fn value(key: &str) -> Pipeline {
    let mut reads = Pipeline::with_capacity(1);
    reads.cmd("GET").arg(key);
    reads
}

/// More entries than any log has, and exact in Lua's numbers.
const UNLIMITED: u64 = 1 << 52;

/// The arguments that ask for a page of up to `limit` entries after `after`.
pub(super) fn page_args(after: u64, limit: usize) -> Vec<Bytes> {
    let (first, limit) = (after.min(UNLIMITED), (limit as u64).min(UNLIMITED));
    vec![first.to_string().into(), limit.to_string().into(), PAGE_BYTES.to_string().into()]
}

/// Reads the answer to [`page_args`].
pub(super) fn page(answer: Value, after: u64) -> Result<LogPage, Unavailable> {
    let Value::Array(parts) = answer else { return Err(malformed(&answer)) };
    let mut parts = parts.into_iter();
    let head = number(&parts.next().unwrap_or(Value::Nil))?;
    Ok(LogPage { first: after.saturating_add(1), entries: parts.map(bytes).collect::<Result<_, _>>()?, head })
}

/// Reads a document: its version, a space and its value.
pub(super) fn document(found: Vec<u8>) -> Result<Document, Unavailable> {
    let found = Bytes::from(found);
    let version = memchr::memchr(b' ', &found).and_then(|space| Some((space, whole(&found[..space])?)));
    let Some((space, version)) = version else { return Err(malformed(&"a document without a version")) };
    Ok(Document { version, value: found.slice(space + 1..) })
}

/// Reads a list in which each key is followed by its document.
pub(super) fn documents(answer: Value) -> Result<Vec<(String, Document)>, Unavailable> {
    let Value::Array(parts) = answer else { return Err(malformed(&answer)) };
    let mut parts = parts.into_iter();
    let mut found = Vec::with_capacity(parts.len() / 2);
    while let (Some(name), Some(value)) = (parts.next(), parts.next()) {
        let Value::BulkString(value) = value else { return Err(malformed(&value)) };
        found.push((text(&name)?, document(value)?));
    }
    Ok(found)
}

/// The bounds of a range of keys as `ZRANGE` writes them, the lower one first.
pub(super) fn bounds((lower, upper): (Bound<String>, Bound<String>)) -> (String, String) {
    let bound = |bound, unbounded: &str| match bound {
        Bound::Included(name) => format!("[{name}"),
        Bound::Excluded(name) => format!("({name}"),
        Bound::Unbounded => unbounded.to_owned(),
    };
    (bound(lower, "-"), bound(upper, "+"))
}

/// Whole microseconds: at least 1 unless `time` is zero, and at most what Lua's numbers hold exactly.
pub(super) fn micros(time: Duration) -> String {
    let micros = time.as_micros().max(u128::from(!time.is_zero()));
    micros.min(1 << 52).to_string()
}

/// A whole number, from an integer or from text.
pub(super) fn number<T: FromStr + TryFrom<i64>>(value: &Value) -> Result<T, Unavailable> {
    let number = if let Value::BulkString(text) = value {
        whole(text)
    } else if let Value::Int(number) = value {
        T::try_from(*number).ok()
    } else {
        None
    };
    number.ok_or_else(|| malformed(value))
}

/// Text.
pub(super) fn text(value: &Value) -> Result<String, Unavailable> {
    String::from_redis_value_ref(value).map_err(|_| malformed(value))
}

fn bytes(value: Value) -> Result<Bytes, Unavailable> {
    if let Value::BulkString(found) = value { Ok(found.into()) } else { Err(malformed(&value)) }
}

fn whole<T: FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The error of an answer that no store of this kind gives: another program writes to its keys.
pub(super) fn malformed(answer: &impl std::fmt::Debug) -> Unavailable {
    tracing::debug!(?answer, "Redis gives an answer that this store never wrote");
    Unavailable("Redis holds data below `lg:` that this store did not write".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_page_are_exact_for_the_server() {
        let numbers = |after, limit| page_args(after, limit).iter().map(|number| number.to_vec()).collect::<Vec<_>>();
        assert_eq!(numbers(4, 3)[..2], [b"4", b"3"]);
        let most = UNLIMITED.to_string().into_bytes();
        assert_eq!(numbers(u64::MAX, usize::MAX)[..2], [most.clone(), most]);
    }

    #[test]
    fn malformed_document_is_an_error() {
        assert_eq!(document(b"12 a b".to_vec()).unwrap(), Document { version: 12, value: Bytes::from("a b") });
        for bad in [&b""[..], b"12", b" x", b"x y", b"-1 x"] {
            assert!(document(bad.to_vec()).is_err());
        }
    }
}
