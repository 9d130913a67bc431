//! Reads: each from one consistent view of the tables.

use std::ops::Bound;

use bytes::Bytes;
use redb::ReadTransaction;

use super::tables::{COUNTER_EXPIRIES, COUNTERS, DOCUMENTS, ENTRIES, LOGS};
use crate::store::{Document, LogPage, Order, PAGE_BYTES, Scan};

type Read<T> = Result<T, redb::Error>;

pub(super) fn document(txn: &ReadTransaction, partition: &str, key: &str, now: u64) -> Read<Option<Document>> {
    let found = txn.open_table(DOCUMENTS)?.get((partition, key))?;
    Ok(found.and_then(|row| unexpired(row.value(), now)))
}

pub(super) fn counter(txn: &ReadTransaction, partition: &str, counter: &str, now: u64) -> Read<i64> {
    let expired = txn.open_table(COUNTER_EXPIRIES)?.get((partition, counter))?.is_some_and(|row| row.value() <= now);
    Ok(if expired { 0 } else { txn.open_table(COUNTERS)?.get((partition, counter))?.map_or(0, |row| row.value()) })
}

pub(super) fn page(
    txn: &ReadTransaction,
    partition: &str,
    log: &str,
    after: u64,
    limit: usize,
    now: u64,
) -> Read<LogPage> {
    let first = after.saturating_add(1);
    let mut page = LogPage { first, ..LogPage::default() };
    let found = txn.open_table(LOGS)?.get((partition, log))?.map(|row| row.value());
    if let Some((id, head, expiry)) = found
        && now < expiry
    {
        page.head = head;
        if after < head {
            let mut bytes = 0;
            for row in txn.open_table(ENTRIES)?.range((id, first)..=(id, head))?.take(limit) {
                let entry = Bytes::copy_from_slice(row?.1.value());
                bytes += entry.len();
                page.entries.push(entry);
                if bytes >= PAGE_BYTES {
                    break;
                }
            }
        }
    }
    Ok(page)
}

pub(super) fn scan(txn: &ReadTransaction, partition: &str, scan: &Scan, now: u64) -> Read<Vec<(String, Document)>> {
    let Some((lower, upper)) = scan.range() else { return Ok(Vec::new()) };
    // The lowest partition above this one ends a range that is open within it.
    let above = format!("{partition}\0");
    let end = match &upper {
        Bound::Included(key) => Bound::Included((partition, key.as_str())),
        Bound::Excluded(key) => Bound::Excluded((partition, key.as_str())),
        Bound::Unbounded => Bound::Excluded((above.as_str(), "")),
    };
    let start = lower.as_ref().map(|key| (partition, key.as_str()));
    let mut rows = txn.open_table(DOCUMENTS)?.range::<(&str, &str)>((start, end))?;
    let mut found = Vec::new();
    while found.len() < scan.limit {
        let row = match scan.order {
            Order::Ascending => rows.next(),
            Order::Descending => rows.next_back(),
        };
        let Some(row) = row else { break };
        let (key, document) = row?;
        if let Some(document) = unexpired(document.value(), now) {
            found.push((key.value().1.to_owned(), document));
        }
    }
    Ok(found)
}

fn unexpired((version, expiry, value): (u64, u64, &[u8]), now: u64) -> Option<Document> {
    (now < expiry).then(|| Document { version, value: Bytes::copy_from_slice(value) })
}
