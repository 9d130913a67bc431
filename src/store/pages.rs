//! Scans and logs as streams of pages, so that no caller counts positions itself.

use std::ops::Range;

use bytes::Bytes;
use futures_util::Stream;

use super::{Document, Key, PAGE_BYTES, Partition, Scan, Store, Unavailable};

/// Everything that a scan finds, read `scan.limit` documents at a time. No page is empty.
///
/// A document that is put or deleted meanwhile may be in the stream or not; every other one is in it once.
pub fn scan_pages<'a>(
    store: &'a dyn Store,
    partition: &'a Partition,
    mut scan: Scan,
) -> impl Stream<Item = Result<Vec<(String, Document)>, Unavailable>> + Send + 'a {
    async_stream::try_stream! {
        loop {
            let page = store.scan(partition, scan.clone()).await?;
            let is_last = page.len() < scan.limit;
            let Some((last, _)) = page.last() else { return };
            scan.after = Some(last.clone());
            yield page;
            if is_last {
                return;
            }
        }
    }
}

/// Those of these entries that one page has, by their bytes.
pub(super) fn bounded<T: AsRef<[u8]>>(entries: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
    let mut bytes = 0;
    entries.take_while(move |entry| {
        let has_room = bytes < PAGE_BYTES;
        bytes += entry.as_ref().len();
        has_room
    })
}

/// The entries of a log above number `numbers.start`, up to number `numbers.end`, read at most `size` at a
/// time. Ends early where the log ends. No page is empty.
pub fn log_pages<'a>(
    store: &'a dyn Store,
    partition: &'a Partition,
    log: Key,
    numbers: Range<u64>,
    size: usize,
) -> impl Stream<Item = Result<Vec<Bytes>, Unavailable>> + Send + 'a {
    async_stream::try_stream! {
        let Range { start: mut read, end } = numbers;
        while read < end {
            let limit = usize::try_from(end - read).map_or(size, |left| left.min(size));
            let page = store.read_log(partition, &log, read, limit).await?;
            read += page.entries.len() as u64;
            let is_last = read >= page.head || page.entries.is_empty();
            if !page.entries.is_empty() {
                yield page.entries;
            }
            if is_last {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::TryStreamExt;

    use super::*;
    use crate::store::memory::MemoryStore;
    use crate::store::{Order, Tx, Write};

    fn partition() -> Partition {
        Partition::new("p")
    }

    async fn keys(store: &MemoryStore, limit: usize, order: Order) -> Vec<Vec<String>> {
        let scan = Scan { prefix: "a/".to_owned(), after: None, limit, order };
        let pages: Vec<_> = scan_pages(store, &partition(), scan).try_collect().await.unwrap();
        pages.into_iter().map(|page| page.into_iter().map(|(key, _)| key).collect()).collect()
    }

    #[tokio::test]
    async fn scan_has_every_document_once_and_no_empty_page() {
        let store = MemoryStore::default();
        assert_eq!(keys(&store, 2, Order::Ascending).await, [[""; 0]; 0]);
        for key in ["a/1", "a/2", "a/3", "a/4", "b"] {
            let put = Write::Put { key: key.into(), value: Bytes::new(), ttl: None };
            store.commit(Tx::new(partition()).write(put)).await.unwrap();
        }
        assert_eq!(keys(&store, 2, Order::Ascending).await, [["a/1", "a/2"], ["a/3", "a/4"]]);
        assert_eq!(keys(&store, 3, Order::Descending).await, [vec!["a/4", "a/3", "a/2"], vec!["a/1"]]);
        assert_eq!(keys(&store, 9, Order::Ascending).await, [["a/1", "a/2", "a/3", "a/4"]]);
    }

    #[tokio::test]
    async fn log_is_read_up_to_the_asked_number_or_its_end() {
        let store = MemoryStore::default();
        let log = Key::from("log");
        let entries: Vec<Bytes> = (1..=5).map(|number: u8| Bytes::copy_from_slice(&[number])).collect();
        let append = Write::Append { log: log.clone(), after: 0, entries };
        store.commit(Tx::new(partition()).write(append)).await.unwrap();
        for (numbers, expected) in [
            (0..u64::MAX, vec![vec![1, 2], vec![3, 4], vec![5]]),
            (1..4, vec![vec![2, 3], vec![4]]),
            (3..5, vec![vec![4, 5]]),
            (5..u64::MAX, vec![]),
            (9..12, vec![]),
            (2..2, vec![]),
        ] {
            let pages: Vec<_> = log_pages(&store, &partition(), log.clone(), numbers, 2).try_collect().await.unwrap();
            let pages: Vec<Vec<u8>> = pages.iter().map(|page| page.iter().map(|entry| entry[0]).collect()).collect();
            assert_eq!(pages, expected);
        }
    }
}
