//! Arguments of reads, and how answers are read.

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

/// An exchange that reads a log ends after so many bytes, since other requests to the server wait for it.
const EXCHANGE_BYTES: usize = 4 << 20;

/// More entries than any log has, and exact in Lua's numbers.
const UNLIMITED: u64 = 1 << 52;

/// The arguments that ask for the rest of a page of up to `limit` entries after `after`.
pub(super) fn rest(page: &LogPage, after: u64, limit: usize) -> Vec<Bytes> {
    let first = after.saturating_add(page.entries.len() as u64).min(UNLIMITED);
    let limit = (limit.saturating_sub(page.entries.len()) as u64).min(UNLIMITED);
    vec![first.to_string().into(), limit.to_string().into(), EXCHANGE_BYTES.to_string().into()]
}

/// Adds the answer to [`rest`] to the page, and returns whether the page is complete.
pub(super) fn add(answer: Value, page: &mut LogPage, after: u64, limit: usize) -> Result<bool, Unavailable> {
    let Value::Array(parts) = answer else { return Err(malformed(&answer)) };
    let mut parts = parts.into_iter();
    page.head = number(&parts.next().unwrap_or(Value::Nil))?;
    let before = page.entries.len();
    for entry in parts {
        page.entries.push(bytes(entry)?);
    }
    let last = after.saturating_add(page.entries.len() as u64);
    if page.head < last {
        // The log was removed between two exchanges.
        page.entries.clear();
        return Ok(true);
    }
    Ok(page.entries.len() >= limit || page.head <= last || page.entries.len() == before)
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

    fn answer(head: i64, entries: &[&str]) -> Value {
        let entries = entries.iter().map(|entry| Value::BulkString(entry.as_bytes().to_vec()));
        Value::Array(std::iter::once(Value::Int(head)).chain(entries).collect())
    }

    fn numbers(page: &LogPage, after: u64, limit: usize) -> Vec<String> {
        rest(page, after, limit).iter().map(|number| String::from_utf8_lossy(number).into_owned()).collect()
    }

    #[test]
    fn page_is_asked_for_until_it_is_full_or_the_log_ends() {
        let mut page = LogPage { first: 5, ..LogPage::default() };
        assert_eq!(numbers(&page, 4, 3), ["4", "3", "4194304"]);
        assert_eq!(add(answer(9, &["a"]), &mut page, 4, 3), Ok(false));
        assert_eq!(numbers(&page, 4, 3)[..2], ["5", "2"]);
        assert_eq!(add(answer(9, &["b", "c"]), &mut page, 4, 3), Ok(true));
        assert_eq!(page, LogPage { first: 5, entries: vec!["a".into(), "b".into(), "c".into()], head: 9 });
        assert_eq!(add(answer(9, &["d", "e"]), &mut page, 4, usize::MAX), Ok(true), "the log ends");
        assert_eq!(
            numbers(&LogPage::default(), u64::MAX, usize::MAX)[..2],
            [UNLIMITED.to_string(), UNLIMITED.to_string()]
        );
    }

    #[test]
    fn page_of_a_log_that_was_removed_meanwhile_is_empty() {
        let mut page = LogPage { first: 1, ..LogPage::default() };
        assert_eq!(add(answer(9, &["a"]), &mut page, 0, 3), Ok(false));
        assert_eq!(add(answer(0, &[]), &mut page, 0, 3), Ok(true));
        assert_eq!(page, LogPage { first: 1, entries: vec![], head: 0 });
    }

    #[test]
    fn malformed_document_is_an_error() {
        assert_eq!(document(b"12 a b".to_vec()).unwrap(), Document { version: 12, value: Bytes::from("a b") });
        for bad in [&b""[..], b"12", b" x", b"x y", b"-1 x"] {
            assert!(document(bad.to_vec()).is_err());
        }
    }
}
