//! Where runs and sessions are kept: four plain things and one way to change them together.
//!
//! | thing | for | operations |
//! | --- | --- | --- |
//! | log | a run's events, a session's messages | append at an expected length, read, expire |
//! | document | session, run, index entry | get, put at an expected version, delete, scan by prefix, expire |
//! | counter | tokens and money of a session | add within a ceiling, read, expire |
//! | lease | who drives a run | acquire, renew, release; taken over once it ran out |
//! | bucket | how often a caller may knock | take one |
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
pub mod memory;
mod open;
mod rate;
pub mod redis;
mod scan;
mod watch;

pub use open::{OpenError, open};
pub use rate::{Rate, Taken};
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
/// The first thing that does not hold is the error: the checks in their order, against what stood
/// before; then the writes in theirs, each against what those before it leave behind.
#[derive(Debug, Clone)]
pub struct Tx {
    /// Where everything named below lies.
    pub partition: Partition,
    /// What must hold, beside what the writes themselves expect.
    pub checks: Vec<Check>,
    /// What happens, in order.
    pub writes: Vec<Write>,
    /// What must be true when `commit` returns.
    pub durability: Durability,
    /// Whom to nudge afterwards.
    pub notify: Option<Topic>,
}

impl Tx {
    /// A change of nothing yet, synced.
    #[must_use]
    pub fn new(partition: Partition) -> Self {
        Self { partition, checks: Vec::new(), writes: Vec::new(), durability: Durability::Synced, notify: None }
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

    /// Puts a document that must stand at `version`, 0 for one that must not exist; it then stands at
    /// `version + 1`.
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
    /// The document stands at this version; 0 means that there is none.
    Version { key: Key, version: u64 },
    /// The lease is still this holder's: nobody took it over, nor was it given back. It may have run
    /// out.
    Fence { lease: Key, fence: Fence },
}

/// One change within a [`Tx`].
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the fields are named for what they are")]
pub enum Write {
    /// Puts a document whatever stands there; its version grows by one. It expires after `ttl`, or
    /// never, whatever was said before. What expired is gone: a new one starts at version 1.
    Put { key: Key, value: Bytes, ttl: Option<Duration> },
    /// Removes a document, if it is there.
    Delete { key: Key },
    /// Appends to a log whose last entry must be number `after` (0: it is empty). Entries are
    /// numbered from 1.
    Append { log: Key, after: u64, entries: Vec<Bytes> },
    /// Removes a log, if it is there.
    DeleteLog { log: Key },
    /// Lets a log expire after `ttl`, if it is there; appending later does not change that.
    ExpireLog { log: Key, ttl: Duration },
    /// Adds to a counter that starts at 0. With a ceiling, the sum must not pass it when `delta` is
    /// positive.
    Add { counter: Key, delta: i64, ceiling: Option<i64> },
    /// Removes a counter, if it is there.
    DeleteCounter { counter: Key },
    /// Lets a counter expire after `ttl`, if it is there; adding later does not change that. One that
    /// stands at 0 is not there.
    ExpireCounter { counter: Key, ttl: Duration },
}

/// Why a [`Tx`] did not happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are named for what they are")]
pub enum CommitError {
    /// A document stands at another version.
    #[error("document {key} stands at version {actual}")]
    VersionConflict { key: Key, actual: u64 },
    /// A log is of another length.
    #[error("log {log} ends at {actual}")]
    SequenceConflict { log: Key, actual: u64 },
    /// A counter would pass its ceiling.
    #[error("counter {counter} stands at {value}")]
    CeilingReached { counter: Key, value: i64 },
    /// The lease was taken over.
    #[error("lease {lease} was taken over")]
    Fenced { lease: Key },
    /// The backend did not answer or failed.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// The backend did not answer or failed; nobody can say whether a write happened.
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
    /// Grows with every acquisition, also where the last one was forgotten.
    pub token: u64,
    /// Random where a backend can lose what it granted: tells a holder apart from one that was granted
    /// the same token by a backend that had forgotten the first. 0 where it cannot.
    pub nonce: u64,
}

/// The pace of a store in the same process: faster than anyone reads.
const LOCAL_PACE: Duration = Duration::from_millis(25);

/// A backend. Cheap to share; every method may be called from any task at any time.
#[async_trait]
pub trait Store: Send + Sync + fmt::Debug + 'static {
    /// Makes a change, all or nothing, with the durability it asks for.
    async fn commit(&self, tx: Tx) -> Result<(), CommitError>;

    /// Up to `limit` entries with numbers above `after`.
    async fn read_log(
        &self,
        partition: &Partition,
        log: &Key,
        after: u64,
        limit: usize,
    ) -> Result<LogPage, Unavailable>;

    /// A document, unless it expired.
    async fn get(&self, partition: &Partition, key: &Key) -> Result<Option<Document>, Unavailable>;

    /// Documents by key prefix, expired ones left out.
    async fn scan(&self, partition: &Partition, scan: Scan) -> Result<Vec<(String, Document)>, Unavailable>;

    /// A counter's value; 0 for an unknown one.
    async fn counter(&self, partition: &Partition, key: &Key) -> Result<i64, Unavailable>;

    /// Takes a lease that nobody holds or whose holder let it run out; `None` while somebody holds it.
    async fn acquire(&self, partition: &Partition, lease: &Key, ttl: Duration) -> Result<Option<Fence>, Unavailable>;

    /// Prolongs a lease to `ttl` from now and tells how long `log` is, which saves its holder from
    /// asking for what others leave there; `None` if the lease was taken over or released.
    async fn renew(
        &self,
        partition: &Partition,
        lease: &Key,
        fence: Fence,
        ttl: Duration,
        log: &Key,
    ) -> Result<Option<u64>, Unavailable>;

    /// Gives a lease back; nothing happens if it is no longer this holder's.
    async fn release(&self, partition: &Partition, lease: &Key, fence: Fence) -> Result<(), Unavailable>;

    /// Takes one from a bucket, if there is one.
    async fn take(&self, partition: &Partition, bucket: &Key, rate: Rate) -> Result<Taken, Unavailable>;

    /// Whether other processes work with the same store at the same time.
    fn is_shared(&self) -> bool {
        false
    }

    /// How often it pays to send small appends, such as pieces of a text that is being written.
    fn pace(&self) -> Duration;

    /// A hint that something under `topic` changed. Losing one costs latency, never correctness: who
    /// waits also looks from time to time.
    fn watch(&self, topic: &Topic) -> Watch;

    /// Whether commits can succeed now.
    async fn health(&self) -> Result<(), Unavailable>;

    /// Brings everything acknowledged to rest before the process ends.
    async fn close(&self);
}
