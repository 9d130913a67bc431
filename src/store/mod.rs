//! The store of runs and sessions: five kinds of things, and one way to change them together.
//!
//! | thing | for | operations |
//! | --- | --- | --- |
//! | log | a run's events, a session's messages | append at an expected length, read, expire |
//! | document | session, run, index entry | get, put at an expected version, delete, scan by prefix, expire |
//! | counter | tokens and money of a session | add within a ceiling, read, expire |
//! | lease | who drives a run | acquire, renew, release; another may acquire it once it expired |
//! | bucket | how often a caller may send requests | take a token |
//!
//! Everything lives in a [`Partition`]; what changes together lies in one partition and is changed by
//! one [`Tx`], all or nothing. A backend maps a partition to whatever it can change atomically: a hash
//! slot, a transaction, a mutex. Values are opaque bytes: a store knows nothing of events or messages.
//!
//! `conformance` says in code what every backend promises.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

#[cfg(test)]
pub(crate) mod conformance;
mod decide;
pub mod embedded;
#[cfg(test)]
pub(crate) mod faulty;
#[cfg(test)]
pub(crate) mod layer;
mod lease;
pub mod measured;
pub mod memory;
mod open;
mod open_error;
pub mod pages;
mod rate;
pub mod redis;
pub mod retry;
mod scan;
mod watch;

pub use open::open;
pub use open_error::OpenError;
pub use rate::{Rate, RateDecision};
pub use watch::{Topic, Watch};

/// The unit of atomic change, named by its owner: `acme/session/sess_42`.
///
/// Its text is the owner's choice; it begins with the tenant, so that no tenant can name another's.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Partition(Arc<str>);

impl Partition {
    /// A partition of this name. The parts must be validated ids.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a thing within its partition. Logs, documents, counters and leases each have their own
/// name space.
pub type Key = Arc<str>;

/// A change of one partition: all checks hold and all writes happen, or nothing does.
///
/// The first expectation that does not hold is the error. The checks come first, in their order, against the state
/// before the change; then the writes, in their order, each against the state that the writes before it leave behind.
#[derive(Debug, Clone)]
pub struct Tx {
    /// The partition of everything named below.
    pub partition: Partition,
    /// What must hold besides what the writes themselves expect.
    pub checks: Vec<Check>,
    /// What happens, in order.
    pub writes: Vec<Write>,
    /// A lease that is released with the change, as by [`Store::release`].
    pub releases: Option<Box<(Key, Fence)>>,
    /// What must be true when `commit` returns.
    pub durability: Durability,
    /// The topic to nudge afterwards.
    pub notify: Option<Topic>,
}

impl Tx {
    /// A change without checks and writes, to be synced.
    #[must_use]
    pub fn new(partition: Partition) -> Self {
        Self {
            partition,
            checks: Vec::new(),
            writes: Vec::new(),
            releases: None,
            durability: Durability::Synced,
            notify: None,
        }
    }

    /// The same, if the machine may lose it with its power: what is synced later syncs it as well.
    #[must_use]
    pub fn written(self) -> Self {
        Self { durability: Durability::Written, ..self }
    }

    /// Adds a check.
    #[must_use]
    pub fn check(mut self, check: Check) -> Self {
        self.checks.push(check);
        self
    }

    /// Adds a write.
    #[must_use]
    pub fn write(mut self, write: Write) -> Self {
        self.writes.push(write);
        self
    }

    /// Puts a document whose version must be `version`, or 0 if it must not exist. Its version is then `version + 1`.
    #[must_use]
    pub fn put_at(self, key: Key, version: u64, value: Bytes, ttl: Option<Duration>) -> Self {
        self.check(Check::Version { key: key.clone(), version }).write(Write::Put { key, value, ttl })
    }
}

/// How much a commit must survive before it is acknowledged. A backend without a disk has one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// The process may be killed: enough for a piece of streamed text.
    Written,
    /// The machine may lose power.
    Synced,
}

/// Something that must hold for a [`Tx`] to happen.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the fields are named for what they are")]
pub enum Check {
    /// The document has this version; 0 means that it must not exist.
    Version { key: Key, version: u64 },
    /// The lease is still this holder's: no other holder acquired it, and it was not released. It may have expired.
    Fence { lease: Key, fence: Fence },
}

/// One change within a [`Tx`].
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the fields are named for what they are")]
pub enum Write {
    /// Puts a document, whether or not it exists; its version grows by one. It expires after `ttl`, or never,
    /// whatever an earlier put said. A document that expired is gone: the next one starts at version 1.
    Put { key: Key, value: Bytes, ttl: Option<Duration> },
    /// Removes a document, if it exists.
    Delete { key: Key },
    /// Appends to a log whose last entry must be number `after` (0: it is empty). Entries are
    /// numbered from 1.
    Append { log: Key, after: u64, entries: Vec<Bytes> },
    /// Removes a log, if it exists.
    DeleteLog { log: Key },
    /// Makes a log expire after `ttl`, if it exists; later appends do not change that.
    ExpireLog { log: Key, ttl: Duration },
    /// Adds to a counter that starts at 0. With a ceiling, the sum must not pass it when `delta` is
    /// positive.
    Add { counter: Key, delta: i64, ceiling: Option<i64> },
    /// Removes a counter, if it exists.
    DeleteCounter { counter: Key },
    /// Makes a counter expire after `ttl`, if it exists; later additions do not change that. A counter at 0 does not
    /// exist.
    ExpireCounter { counter: Key, ttl: Duration },
}

/// Why a [`Tx`] did not happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are named for what they are")]
pub enum CommitError {
    /// A document has another version.
    #[error("document {key} stands at version {actual}")]
    VersionConflict { key: Key, actual: u64 },
    /// A log is of another length.
    #[error("log {log} ends at {actual}")]
    SequenceConflict { log: Key, actual: u64 },
    /// A counter would pass its ceiling.
    #[error("counter {counter} stands at {value}")]
    CeilingReached { counter: Key, value: i64 },
    /// Another holder acquired the lease, or it was released.
    #[error("lease {lease} was taken over")]
    Fenced { lease: Key },
    /// The backend did not answer or failed.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// The backend did not answer or failed. A write may have happened or not, or happen a moment later, when a server that
/// hung reads what it was sent: the versions, lengths and fences that a write names decide then as before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("store unavailable: {0}")]
pub struct Unavailable(pub String);

/// A document and the number of times it was put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// 1 after the first put.
    pub version: u64,
    /// What was put.
    pub value: Bytes,
}

/// Part of a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogPage {
    /// The number of the first of `entries`, one above the number they were asked for after.
    pub first: u64,
    /// Consecutive entries, oldest first.
    pub entries: Vec<Bytes>,
    /// The number of the log's last entry; 0 for an empty or unknown log.
    pub head: u64,
}

/// Which documents a [`Store::scan`] returns.
#[derive(Debug, Clone)]
pub struct Scan {
    /// Keys begin with this.
    pub prefix: String,
    /// Only keys beyond this one, in the scan's order.
    pub after: Option<String>,
    /// At most this many.
    pub limit: usize,
    /// By key.
    pub order: Order,
}

/// Direction of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// From the lowest key.
    Ascending,
    /// From the highest key.
    Descending,
}

/// Proof of holding a lease: greater than every fence the same lease gave out before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fence {
    /// Grows with every acquisition, even if the backend forgot the last one.
    pub token: u64,
    /// Random if the backend can forget what it granted. It then distinguishes two holders that were granted the
    /// same token. 0 if the backend cannot forget.
    pub nonce: u64,
}

/// A page of a log ends with the entry that takes it to so many bytes. Not a setting: it bounds what one reader makes
/// this process and the store hold at a time, and how long others wait for a store that answers it.
pub const PAGE_BYTES: usize = 256 << 10;

/// The pace of a store in the same process: faster than people read.
const LOCAL_PACE: Duration = Duration::from_millis(25);

/// A backend. Cheap to share; every method may be called from any task at any time.
#[async_trait]
pub trait Store: Send + Sync + fmt::Debug + 'static {
    /// Makes a change, all or nothing, with the durability that it asks for.
    async fn commit(&self, tx: Tx) -> Result<(), CommitError>;

    /// Up to `limit` entries with numbers above `after`, fewer where they have [`PAGE_BYTES`] together, but at least one
    /// where there is one.
    async fn read_log(
        &self,
        partition: &Partition,
        log: &Key,
        after: u64,
        limit: usize,
    ) -> Result<LogPage, Unavailable>;

    /// A document; `None` if it does not exist or has expired.
    async fn get(&self, partition: &Partition, key: &Key) -> Result<Option<Document>, Unavailable>;

    /// Documents by key prefix, without expired ones.
    async fn scan(&self, partition: &Partition, scan: Scan) -> Result<Vec<(String, Document)>, Unavailable>;

    /// A counter's value; 0 for an unknown one.
    async fn counter(&self, partition: &Partition, key: &Key) -> Result<i64, Unavailable>;

    /// Acquires a lease that is free or has expired; `None` while another holder has it.
    async fn acquire(&self, partition: &Partition, lease: &Key, ttl: Duration) -> Result<Option<Fence>, Unavailable>;

    /// Makes a lease end `ttl` from now, even if it has expired. Returns the length of `log`, so that the holder
    /// need not ask whether others appended to it; `None` if the lease was acquired by another or released.
    async fn renew(
        &self,
        partition: &Partition,
        lease: &Key,
        fence: Fence,
        ttl: Duration,
        log: &Key,
    ) -> Result<Option<u64>, Unavailable>;

    /// Releases a lease; nothing happens if it is no longer this holder's.
    async fn release(&self, partition: &Partition, lease: &Key, fence: Fence) -> Result<(), Unavailable>;

    /// Takes a token from a bucket, if there is one.
    async fn take(&self, partition: &Partition, bucket: &Key, rate: Rate) -> Result<RateDecision, Unavailable>;

    /// Whether other processes may use the same store at the same time.
    fn is_shared(&self) -> bool;

    /// The interval at which small appends, such as pieces of streamed text, are worth a commit.
    fn pace(&self) -> Duration;

    /// Unix milliseconds by the clock that all processes go by that share the store: what several of them must agree on,
    /// such as when a day begins, is decided by this one. Where the store is this process's own, its wall clock.
    fn now_ms(&self) -> u64;

    /// A hint that something under `topic` changed. A lost hint costs time, never correctness: a task that waits
    /// for one also looks at intervals.
    fn watch(&self, topic: &Topic) -> Watch;

    /// Fails if commits cannot succeed now.
    async fn health(&self) -> Result<(), Unavailable>;

    /// Makes everything acknowledged durable before the process ends.
    async fn close(&self);
}
