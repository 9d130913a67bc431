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

/// After how many bytes an exchange that reads a log ends: whoever asks the same server waits for them.
const EXCHANGE: usize = 4 << 20;

/// More entries than any log has, and few enough for Lua to count.
const ENDLESS: u64 = 1 << 52;

/// What to ask for the rest of a page of up to `limit` entries after `after`.
pub(super) fn rest(page: &LogPage, after: u64, limit: usize) -> Vec<Bytes> {
    let first = after.saturating_add(page.entries.len() as u64).min(ENDLESS);
    let limit = (limit.saturating_sub(page.entries.len()) as u64).min(ENDLESS);
    vec![first.to_string().into(), limit.to_string().into(), EXCHANGE.to_string().into()]
}

/// Adds the answer to [`rest`] to the page; whether the page is whole now.
pub(super) fn add(answer: Value, page: &mut LogPage, after: u64, limit: usize) -> Result<bool, Unavailable> {
    let Value::Array(parts) = answer else { return Err(nonsense(&answer)) };
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
        assert_eq!(numbers(&LogPage::default(), u64::MAX, usize::MAX)[..2], [ENDLESS.to_string(), ENDLESS.to_string()]);
    }

    #[test]
    fn page_of_a_log_that_was_removed_meanwhile_is_empty() {
        let mut page = LogPage { first: 1, ..LogPage::default() };
        assert_eq!(add(answer(9, &["a"]), &mut page, 0, 3), Ok(false));
        assert_eq!(add(answer(0, &[]), &mut page, 0, 3), Ok(true));
        assert_eq!(page, LogPage { first: 1, entries: vec![], head: 0 });
    }

    #[test]
    fn what_is_no_document_is_an_error() {
        assert_eq!(document(b"12 a b".to_vec()).unwrap(), Document { version: 12, value: Bytes::from("a b") });
        for bad in [&b""[..], b"12", b" x", b"x y", b"-1 x"] {
            assert!(document(bad.to_vec()).is_err());
        }
    }
}
