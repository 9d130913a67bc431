//! What is asked, and what the answers say.

use std::ops::Bound;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use redis::{FromRedisValue, Pipeline, Value};

use crate::store::{Document, LogPage, Unavailable};

/// Reads a string.
pub(super) fn value(key: &str) -> Pipeline {
    let mut reads = Pipeline::with_capacity(1);
    reads.cmd("GET").arg(key);
    reads
}

/// Reads part of a list, and then its length.
pub(super) fn page(key: &str, after: u64, limit: usize) -> Pipeline {
    let first = if limit == 0 { i64::MAX } else { i64::try_from(after).unwrap_or(i64::MAX) };
    let last = i64::try_from(limit).unwrap_or(i64::MAX).saturating_sub(1).saturating_add(first);
    let mut reads = Pipeline::with_capacity(2);
    reads.cmd("LRANGE").arg(key).arg(first).arg(last);
    reads.cmd("LLEN").arg(key);
    reads
}

/// Reads the answers to [`page`].
pub(super) fn read_page(answers: Vec<Value>, after: u64) -> Result<LogPage, Unavailable> {
    let Ok([entries, head]) = <[Value; 2]>::try_from(answers) else { return Err(nonsense(&None::<Value>)) };
    let head = number(&head)?;
    let Value::Array(found) = entries else { return Err(nonsense(&entries)) };
    let mut entries = found.into_iter().map(bytes).collect::<Result<Vec<_>, _>>()?;
    if head < after.saturating_add(entries.len() as u64) {
        // The log was removed between the two reads.
        entries.clear();
    }
    Ok(LogPage { first: after.saturating_add(1), entries, head })
}

/// Reads a document: its version, a space, its value.
pub(super) fn document(found: Vec<u8>) -> Result<Document, Unavailable> {
    let found = Bytes::from(found);
    let version = memchr::memchr(b' ', &found).and_then(|space| Some((space, whole(&found[..space])?)));
    let Some((space, version)) = version else { return Err(nonsense(&"a document without a version")) };
    Ok(Document { version, value: found.slice(space + 1..) })
}

/// Reads names and documents that take turns.
pub(super) fn documents(answer: Value) -> Result<Vec<(String, Document)>, Unavailable> {
    let Value::Array(parts) = answer else { return Err(nonsense(&answer)) };
    let mut parts = parts.into_iter();
    let mut found = Vec::with_capacity(parts.len() / 2);
    while let (Some(name), Some(value)) = (parts.next(), parts.next()) {
        let Value::BulkString(value) = value else { return Err(nonsense(&value)) };
        found.push((text(&name)?, document(value)?));
    }
    Ok(found)
}

/// The bounds of a range of names, the lower one first.
pub(super) fn bounds((lower, upper): (Bound<String>, Bound<String>)) -> (String, String) {
    let bound = |bound, unbounded: &str| match bound {
        Bound::Included(name) => format!("[{name}"),
        Bound::Excluded(name) => format!("({name}"),
        Bound::Unbounded => unbounded.to_owned(),
    };
    (bound(lower, "-"), bound(upper, "+"))
}

/// Whole microseconds, at least 1 for more than nothing, as many as Lua's numbers tell apart.
pub(super) fn micros(time: Duration) -> String {
    let micros = time.as_micros().max(u128::from(!time.is_zero()));
    micros.min(1 << 52).to_string()
}

/// A whole number, however it is written.
pub(super) fn number<T: FromStr + TryFrom<i64>>(value: &Value) -> Result<T, Unavailable> {
    let number = if let Value::BulkString(text) = value {
        whole(text)
    } else if let Value::Int(number) = value {
        T::try_from(*number).ok()
    } else {
        None
    };
    number.ok_or_else(|| nonsense(value))
}

/// Text.
pub(super) fn text(value: &Value) -> Result<String, Unavailable> {
    String::from_redis_value_ref(value).map_err(|_| nonsense(value))
}

fn bytes(value: Value) -> Result<Bytes, Unavailable> {
    if let Value::BulkString(found) = value { Ok(found.into()) } else { Err(nonsense(&value)) }
}

fn whole<T: FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// An answer that cannot be: somebody else writes below our keys.
pub(super) fn nonsense(answer: &impl std::fmt::Debug) -> Unavailable {
    tracing::debug!(?answer, "Redis answers what cannot be");
    Unavailable("Redis holds something that is not a store's".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_of_a_log_that_was_removed_meanwhile_is_empty() {
        let entries = Value::Array(vec![Value::BulkString(b"x".to_vec())]);
        let page = read_page(vec![entries.clone(), Value::Int(0)], 0).unwrap();
        assert_eq!(page, LogPage { first: 1, entries: vec![], head: 0 });
        let page = read_page(vec![entries, Value::Int(9)], 4).unwrap();
        assert_eq!((page.first, page.entries.len(), page.head), (5, 1, 9));
    }

    #[test]
    fn what_is_no_document_is_an_error() {
        assert_eq!(document(b"12 a b".to_vec()).unwrap(), Document { version: 12, value: Bytes::from("a b") });
        for bad in [&b""[..], b"12", b" x", b"x y", b"-1 x"] {
            assert!(document(bad.to_vec()).is_err());
        }
    }
}
