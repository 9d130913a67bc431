//! What one partition holds in memory, and when it expires.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::log::{Log, Packer};
use crate::store::decide::CurrentState;
use crate::store::lease::Leases;
use crate::store::pages::bounded;
use crate::store::{Document, Fence, Key, LogPage, Order, Partition, Scan, Unavailable, Write};

/// What one partition holds, leases apart. Most partitions hold a handful of things, and one log or none: documents are
/// boxed because the node of a tree has room for eleven, and logs are a list.
#[derive(Debug, Default)]
pub(super) struct Contents {
    documents: BTreeMap<Key, Box<Stored>>,
    /// In the order of their keys.
    logs: Vec<(Key, Kept)>,
    /// Without zeros: a counter at zero is like one that was never counted.
    counters: BTreeMap<Key, Counter>,
}

#[derive(Debug)]
struct Stored {
    document: Document,
    expiry: Option<Ticket>,
}

#[derive(Debug, Default)]
struct Kept {
    log: Log,
    expiry: Option<Ticket>,
}

#[derive(Debug)]
struct Counter {
    value: i64,
    expiry: Option<Ticket>,
}

/// When something expires, and a number to tell it from what expires at the same time.
type Ticket = (Instant, u64);

/// Something that can expire.
#[derive(Debug)]
pub(super) enum Thing {
    Document(Key),
    Log(Key),
    Counter(Key),
}

/// Everything that will expire, by time. Holds one entry for each such thing: what is put again or
/// removed gives its old ticket back.
#[derive(Debug, Default)]
pub(super) struct Expiries {
    pub(super) due: BTreeMap<Ticket, (Partition, Thing)>,
    tickets: u64,
}

impl Expiries {
    /// Takes out something that expired.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(Partition, Thing)> {
        let first = self.due.first_entry()?;
        expired(Some(*first.key()), now).then(|| first.remove())
    }

    fn add(&mut self, at: Instant, partition: &Partition, thing: Thing) -> Ticket {
        self.tickets += 1;
        let ticket = (at, self.tickets);
        self.due.insert(ticket, (partition.clone(), thing));
        ticket
    }

    fn cancel(&mut self, ticket: Option<Ticket>) {
        if let Some(ticket) = ticket {
            self.due.remove(&ticket);
        }
    }
}

/// Removed logs.
pub(super) type Garbage = Vec<Log>;

/// A change of one partition at one moment.
pub(super) struct Moment<'a> {
    pub(super) at: Instant,
    pub(super) partition: &'a Partition,
    pub(super) leases: &'a Leases,
    pub(super) expiries: &'a mut Expiries,
    pub(super) garbage: &'a mut Garbage,
    pub(super) packer: &'a mut Packer,
}

impl Moment<'_> {
    pub(super) fn state<'s>(&'s self, contents: &'s Contents) -> impl CurrentState {
        MemoryState { now: self, contents }
    }

    /// Makes writes that were decided upon.
    pub(super) fn apply(&mut self, contents: &mut Contents, writes: Vec<Write>) {
        for write in writes {
            match write {
                Write::Put { key, value, ttl } => self.put(contents, key, value, ttl),
                Write::Delete { key } => {
                    if let Some(stored) = contents.documents.remove(&key) {
                        self.expiries.cancel(stored.expiry);
                    }
                }
                Write::Append { log, entries, .. } => self.append(contents, log, entries),
                Write::DeleteLog { log } => self.delete_log(contents, &log),
                Write::ExpireLog { log, ttl } => self.expire_log(contents, log, ttl),
                Write::Add { counter, delta, .. } => self.add(contents, counter, delta),
                Write::DeleteCounter { counter } => self.delete_counter(contents, &counter),
                Write::ExpireCounter { counter, ttl } => self.expire_counter(contents, counter, ttl),
            }
        }
    }

    fn put(&mut self, contents: &mut Contents, key: Key, value: Bytes, ttl: Option<Duration>) {
        let before = contents.document(&key, self.at).map_or(0, |document| document.version);
        let document = Document { version: before + 1, value };
        let expiry = ttl
            .and_then(|ttl| self.at.checked_add(ttl))
            .map(|at| self.expiries.add(at, self.partition, Thing::Document(key.clone())));
        if let Some(stored) = contents.documents.insert(key, Box::new(Stored { document, expiry })) {
            self.expiries.cancel(stored.expiry);
        }
    }

    fn append(&mut self, contents: &mut Contents, log: Key, entries: Vec<Bytes>) {
        if entries.is_empty() {
            return;
        }
        if contents.log(&log).is_some_and(|kept| expired(kept.expiry, self.at)) {
            self.delete_log(contents, &log);
        }
        let at = contents.place(&log).unwrap_or_else(|at| {
            contents.logs.reserve_exact(1);
            contents.logs.insert(at, (log, Kept::default()));
            at
        });
        contents.logs[at].1.log.append(entries);
    }

    fn delete_log(&mut self, contents: &mut Contents, log: &Key) {
        if let Some(kept) = contents.remove_log(log) {
            self.expiries.cancel(kept.expiry);
            self.garbage.push(kept.log);
        }
    }

    fn expire_log(&mut self, contents: &mut Contents, log: Key, ttl: Duration) {
        let at = self.at.checked_add(ttl);
        if let Ok(place) = contents.place(&log)
            && let (_, found) = &mut contents.logs[place]
            && !expired(found.expiry, self.at)
        {
            // Most logs that expire are those of runs that ended: nothing more is appended, and few of them are read.
            self.garbage.push(found.log.pack(self.packer));
            self.expiries.cancel(found.expiry);
            found.expiry = at.map(|at| self.expiries.add(at, self.partition, Thing::Log(log)));
        }
    }

    fn add(&mut self, contents: &mut Contents, counter: Key, delta: i64) {
        // Counters end where numbers do rather than fail the transaction half way.
        let value = contents.counter(&counter, self.at).saturating_add(delta);
        match contents.counters.get_mut(&counter) {
            Some(found) if value != 0 && !expired(found.expiry, self.at) => found.value = value,
            Some(_) | None => {
                self.delete_counter(contents, &counter);
                if value != 0 {
                    contents.counters.insert(counter, Counter { value, expiry: None });
                }
            }
        }
    }

    fn delete_counter(&mut self, contents: &mut Contents, counter: &Key) {
        if let Some(counter) = contents.counters.remove(counter) {
            self.expiries.cancel(counter.expiry);
        }
    }

    fn expire_counter(&mut self, contents: &mut Contents, counter: Key, ttl: Duration) {
        let at = self.at.checked_add(ttl);
        if let Some(found) = contents.counters.get_mut(&counter)
            && !expired(found.expiry, self.at)
        {
            self.expiries.cancel(found.expiry);
            found.expiry = at.map(|at| self.expiries.add(at, self.partition, Thing::Counter(counter)));
        }
    }
}

/// What a transaction is decided against.
struct MemoryState<'a> {
    now: &'a Moment<'a>,
    contents: &'a Contents,
}

impl CurrentState for MemoryState<'_> {
    fn version(&self, key: &Key) -> Result<u64, Unavailable> {
        Ok(self.contents.document(key, self.now.at).map_or(0, |document| document.version))
    }

    fn head(&self, log: &Key) -> Result<u64, Unavailable> {
        Ok(self.contents.log_at(log, self.now.at).map_or(0, |log| log.len() as u64))
    }

    fn counter(&self, counter: &Key) -> Result<i64, Unavailable> {
        Ok(self.contents.counter(counter, self.now.at))
    }

    fn holds(&self, lease: &Key, fence: Fence) -> bool {
        self.now.leases.holds(self.now.partition, lease, fence)
    }
}

impl Contents {
    pub(super) fn is_empty(&self) -> bool {
        self.documents.is_empty() && self.logs.is_empty() && self.counters.is_empty()
    }

    pub(super) fn document(&self, key: &Key, now: Instant) -> Option<&Document> {
        self.documents.get(key).filter(|stored| !expired(stored.expiry, now)).map(|stored| &stored.document)
    }

    pub(super) fn counter(&self, counter: &Key, now: Instant) -> i64 {
        self.counters.get(counter).filter(|counter| !expired(counter.expiry, now)).map_or(0, |counter| counter.value)
    }

    pub(super) fn page(&self, log: &Key, after: u64, limit: usize, now: Instant) -> LogPage {
        let first = after.saturating_add(1);
        let Some(log) = self.log_at(log, now) else { return LogPage { first, ..LogPage::default() } };
        let skipped = usize::try_from(after).unwrap_or(usize::MAX);
        LogPage { first, entries: bounded(log.entries(skipped).take(limit)).collect(), head: log.len() as u64 }
    }

    pub(super) fn scan(&self, scan: &Scan, now: Instant) -> Vec<(String, Document)> {
        let Some((lower, upper)) = scan.range() else { return Vec::new() };
        let range = (as_str(&lower), as_str(&upper));
        let found = self
            .documents
            .range::<str, _>(range)
            .filter(|(_, stored)| !expired(stored.expiry, now))
            .map(|(key, stored)| (key.to_string(), stored.document.clone()));
        match scan.order {
            Order::Ascending => found.take(scan.limit).collect(),
            Order::Descending => found.rev().take(scan.limit).collect(),
        }
    }

    /// Removes something whose ticket is spent.
    pub(super) fn remove(&mut self, thing: &Thing, garbage: &mut Garbage) {
        match thing {
            Thing::Document(key) => {
                self.documents.remove(key);
            }
            Thing::Log(log) => garbage.extend(self.remove_log(log).map(|kept| kept.log)),
            Thing::Counter(counter) => {
                self.counters.remove(counter);
            }
        }
    }

    /// Where the log with this key is, or would be.
    fn place(&self, log: &Key) -> Result<usize, usize> {
        self.logs.binary_search_by(|(key, _)| key.cmp(log))
    }

    fn log(&self, log: &Key) -> Option<&Kept> {
        self.place(log).ok().map(|at| &self.logs[at].1)
    }

    fn log_at(&self, log: &Key, now: Instant) -> Option<&Log> {
        self.log(log).filter(|kept| !expired(kept.expiry, now)).map(|kept| &kept.log)
    }

    fn remove_log(&mut self, log: &Key) -> Option<Kept> {
        self.place(log).ok().map(|at| self.logs.remove(at).1)
    }
}

fn expired(ticket: Option<Ticket>, now: Instant) -> bool {
    ticket.is_some_and(|(at, _)| at <= now)
}

fn as_str(bound: &Bound<String>) -> Bound<&str> {
    bound.as_ref().map(String::as_str)
}
