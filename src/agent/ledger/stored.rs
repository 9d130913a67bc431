//! How much of the store a tenant takes: a counter in its index, and the bound on it.
//!
//! Bytes that a request brings are added before they are written, and subtracted after they were deleted. Nothing is
//! subtracted when something expires. So the counter may be too high. When it reaches the bound, everything that the
//! tenant's index names is counted anew, and the counter is corrected. A run counts as its head says, and with what was
//! sent to it, until it ends. Claims of callers' keys outlive what they lead to, and no index names them: they are counted
//! by the span of time in which they expire.

use std::pin::pin;
use std::time::Duration;

use futures_util::TryStreamExt;
use futures_util::future::try_join_all;
use tokio::time::Instant;

use crate::agent::error::{StorageError, unavailable};
use crate::agent::ledger::collection::{CollectionEntry, CollectionHead};
use crate::agent::ledger::document::decode;
use crate::agent::ledger::head::Head;
use crate::agent::ledger::{Ledger, keys};
use crate::agent::machine::budget::signed;
use crate::store::pages::scan_pages;
use crate::store::{Check, CommitError, Document, Key, Order, Partition, Scan, Tx, Unavailable, Write};
use crate::types::clock::now_ms;
use crate::types::session::Session;
use crate::types::{RunId, SessionId, Tenant};

/// What is counted for a run's log when the run is created. If it comes to more, the rest is counted once the run ends
/// or waits, or whenever the log has grown by [`UNCOUNTED`]: the counter lies in another partition than the log, so counting
/// each commit would take one more.
const LOG: u64 = 8 << 10;
/// How much a run's log may grow before its driver counts it.
pub(in crate::agent) const UNCOUNTED: u64 = 256 << 10;
/// What a new session may take beside its messages.
const SESSION: u64 = 8 << 10;
/// What a run takes beside its log, about.
const OVERHEAD: u64 = 2 << 10;
/// What is counted for a claim of a caller's key, or for the note that a request under a key has sent its message.
const CLAIM: u64 = 512;
/// Claims that expire within so much time are counted together, until the end of it.
const CLAIM_SPAN: Duration = Duration::from_secs(6 * 3600);
/// Claims are made for a day, a run's time and its wait; one that is made for longer is counted for no more than this
/// beyond the wait.
const LONGEST_CLAIM: Duration = Duration::from_secs(32 * 24 * 3600);
/// The head of a collection is there by so long after its entry.
const NEW_ENTRY: Duration = Duration::from_secs(3_600);
/// Entries of an index read at a time, and documents that are read at the same time.
const PAGE: usize = 512;
const AT_ONCE: usize = 32;
/// Recounting takes at most one part in so many of the time.
const SELDOM: u32 = 20;
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Counts bytes that a tenant is about to store, which must not pass the `limit`.
pub(super) fn count(bytes: u64, limit: u64) -> Write {
    Write::Add { counter: keys::stored(), delta: signed(bytes), ceiling: Some(signed(limit)) }
}

/// Subtracts bytes that a tenant no longer stores.
pub(in crate::agent) fn uncount(bytes: u64) -> Write {
    Write::Add { counter: keys::stored(), delta: -signed(bytes), ceiling: None }
}

/// Counts bytes that a tenant stores already, even beyond the bound.
pub(in crate::agent) fn add(tenant: &Tenant, delta: i64) -> Tx {
    Tx::new(keys::tenant_partition(tenant)).write(Write::Add { counter: keys::stored(), delta, ceiling: None })
}

/// A claim that expires so many milliseconds after the epoch, and after this time from now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::agent) struct ClaimEnd {
    at_ms: u64,
    ttl: Duration,
}

impl ClaimEnd {
    /// How many bytes are counted for the claim.
    pub(in crate::agent) const BYTES: u64 = CLAIM;

    /// Adds the claim to those that are counted; its bytes are counted beside that.
    pub(in crate::agent) fn count(self, index: Tx) -> Tx {
        self.add(index, 1)
    }

    /// Takes the claim from those that are counted; its bytes are subtracted beside that.
    fn uncount(self, index: Tx) -> Tx {
        self.add(index, -1)
    }

    fn add(self, index: Tx, delta: i64) -> Tx {
        let counter = keys::claims(span(self.at_ms));
        index
            .write(Write::Add { counter: counter.clone(), delta, ceiling: None })
            .write(Write::ExpireCounter { counter, ttl: self.ttl.saturating_add(CLAIM_SPAN) })
    }
}

/// The span of time in which this moment lies.
fn span(at_ms: u64) -> u64 {
    at_ms / millis(CLAIM_SPAN)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// What is counted for a new run whose specification has so many bytes.
pub(super) fn of_new_run(spec: usize) -> u64 {
    spec as u64 + LOG
}

/// What is counted for a new session beside all but this many bytes of its messages.
pub(in crate::agent) fn of_new_session(messages: u64) -> u64 {
    messages + SESSION
}

/// What a run takes that ended.
pub(super) fn of_ended_run(log: u64) -> u64 {
    log + OVERHEAD
}

/// What is counted for a run that has not ended, which keeps its specification of so many bytes. That is never less than
/// was `counted` before, as the log of the run may go on.
pub(in crate::agent) fn of_unfinished_run(spec: usize, log: u64, counted: u64) -> u64 {
    counted.max(spec as u64 + of_ended_run(log))
}

/// All that these changes append.
pub(in crate::agent) fn appended(tx: &Tx) -> u64 {
    let bytes = tx.writes.iter().map(|write| match write {
        Write::Append { entries, .. } => entries.iter().map(|entry| entry.len() as u64).sum(),
        Write::Put { .. }
        | Write::Delete { .. }
        | Write::DeleteLog { .. }
        | Write::ExpireLog { .. }
        | Write::Add { .. }
        | Write::DeleteCounter { .. }
        | Write::ExpireCounter { .. } => 0,
    });
    bytes.sum()
}

impl Ledger {
    /// When a claim expires that is made now for `ttl`.
    pub(in crate::agent) fn claim_end(&self, ttl: Duration) -> ClaimEnd {
        let ttl = ttl.min(LONGEST_CLAIM.saturating_add(self.retention.wait));
        ClaimEnd { at_ms: self.store.now_ms().saturating_add(millis(ttl)), ttl }
    }

    /// Counts bytes that a tenant is about to store.
    pub(in crate::agent) async fn take_storage(&self, tenant: &Tenant, bytes: u64) -> Result<(), StorageError> {
        self.take_storage_with(tenant, bytes, None).await
    }

    /// Counts bytes that a tenant is about to store, and a claim if there is one, whose bytes are among them.
    pub(in crate::agent) async fn take_storage_with(
        &self,
        tenant: &Tenant,
        bytes: u64,
        claim: Option<ClaimEnd>,
    ) -> Result<(), StorageError> {
        self.fits_storage(bytes)?;
        let mut tx = Tx::new(keys::tenant_partition(tenant)).write(count(bytes, self.retention.tenant_bytes));
        if let Some(claim) = claim {
            tx = claim.count(tx);
        }
        match self.commit(tx.clone()).await {
            Err(CommitError::CeilingReached { .. }) => self.recount(tenant, bytes).await?,
            result => return Ok(result.map_err(unavailable)?),
        }
        match self.commit(tx).await {
            Err(CommitError::CeilingReached { value, .. }) => Err(self.storage_full(bytes, value, LONGEST_PAUSE)),
            result => Ok(result.map_err(unavailable)?),
        }
    }

    /// Subtracts bytes that a tenant no longer stores. If that fails, the next recount corrects it.
    pub(in crate::agent) async fn return_storage(&self, tenant: &Tenant, bytes: u64) {
        self.return_storage_with(tenant, bytes, None).await;
    }

    /// Subtracts bytes that a tenant does not store after all, and a claim if there is one, whose bytes are among them.
    pub(in crate::agent) async fn return_storage_with(&self, tenant: &Tenant, bytes: u64, claim: Option<ClaimEnd>) {
        if bytes == 0 {
            return;
        }
        let mut tx = Tx::new(keys::tenant_partition(tenant)).write(uncount(bytes));
        if let Some(claim) = claim {
            tx = claim.uncount(tx);
        }
        if let Err(error) = self.commit(tx).await {
            tracing::debug!(%tenant, %error, "storage that is free again is not counted as such yet");
        }
    }

    /// Refuses more bytes than a tenant may ever store.
    pub(in crate::agent) fn fits_storage(&self, bytes: u64) -> Result<(), StorageError> {
        let limit = self.retention.tenant_bytes;
        if bytes > limit { Err(StorageError::TooLarge { bytes, limit }) } else { Ok(()) }
    }

    /// Recounts what a tenant stores if its counter has no room for so many bytes; an error if there is no room then.
    /// One replica at a time does this, and seldom, because it reads all heads of the tenant's runs and sessions.
    pub(in crate::agent) async fn recount(&self, tenant: &Tenant, bytes: u64) -> Result<(), StorageError> {
        self.fits_storage(bytes)?;
        let _alone = self.recounting.lock().await;
        let partition = keys::tenant_partition(tenant);
        let key = keys::stored();
        let counter = || self.store.counter(&partition, &key);
        let before = counter().await?;
        let (wanted, limit) = (signed(bytes), signed(self.retention.tenant_bytes));
        if before.saturating_add(wanted) <= limit {
            return Ok(());
        }
        let lease = keys::recounting();
        let Some(fence) = self.store.acquire(&partition, &lease, LONGEST_PAUSE).await? else {
            return Err(self.storage_full(bytes, before, LONGEST_PAUSE));
        };
        let began = Instant::now();
        let stored = self.stored(tenant).await?;
        let add = Write::Add { counter: keys::stored(), delta: signed(stored).saturating_sub(before), ceiling: None };
        self.commit(Tx::new(partition.clone()).write(add)).await.map_err(unavailable)?;
        let pause = (began.elapsed() * SELDOM).clamp(Duration::from_secs(1), LONGEST_PAUSE);
        // The lease is not released: it keeps all replicas from recounting for that long.
        self.store.renew(&partition, &lease, fence, pause, &keys::messages()).await?;
        let stored = counter().await?;
        tracing::warn!(%tenant, stored, limit, "counted what a tenant stores that had no room left");
        if stored.saturating_add(wanted) <= limit { Ok(()) } else { Err(self.storage_full(bytes, stored, pause)) }
    }

    fn storage_full(&self, bytes: u64, stored: i64, recount_in: Duration) -> StorageError {
        let (stored, limit) = (u64::try_from(stored).unwrap_or(0), self.retention.tenant_bytes);
        StorageError::Full { bytes, stored, limit, recount_in }
    }

    /// What a tenant stores.
    pub(in crate::agent) async fn stored(&self, tenant: &Tenant) -> Result<u64, Unavailable> {
        let partition = keys::tenant_partition(tenant);
        let mut sum = 0_u64;
        for prefix in [keys::RUNS, keys::SESSIONS, keys::OFFERS, keys::COLLECTIONS] {
            let scan = Scan { prefix: prefix.to_owned(), after: None, limit: PAGE, order: Order::Ascending };
            let mut pages = pin!(scan_pages(&*self.store, &partition, scan));
            while let Some(page) = pages.try_next().await? {
                for few in page.chunks(AT_ONCE) {
                    let weighed = few.iter().map(|(key, document)| self.weigh(tenant, key, document));
                    sum += try_join_all(weighed).await?.iter().sum::<u64>();
                }
            }
        }
        Ok(sum.saturating_add(self.claims(tenant).await?.saturating_mul(CLAIM)))
    }

    /// How many claims a tenant has.
    async fn claims(&self, tenant: &Tenant) -> Result<u64, Unavailable> {
        let (partition, now_ms) = (keys::tenant_partition(tenant), self.store.now_ms());
        let last = self.claim_end(Duration::MAX).at_ms;
        let spans: Vec<_> = (span(now_ms)..=span(last)).map(keys::claims).collect();
        let mut sum = 0_u64;
        for few in spans.chunks(AT_ONCE) {
            let counts = try_join_all(few.iter().map(|key| self.store.counter(&partition, key))).await?;
            sum += counts.into_iter().filter_map(|count| u64::try_from(count).ok()).sum::<u64>();
        }
        Ok(sum)
    }

    /// What is stored of what an entry of a tenant's index names.
    async fn weigh(&self, tenant: &Tenant, key: &str, entry: &Document) -> Result<u64, Unavailable> {
        if let Some(id) = key.strip_prefix(keys::RUNS).and_then(RunId::parse) {
            return self.weigh_run(tenant, &id, decode(&entry.value)?).await;
        }
        if let Some(id) = key.strip_prefix(keys::SESSIONS).and_then(SessionId::parse) {
            let found = self.store.get(&keys::session_partition(tenant, &id), &keys::session()).await?;
            let Some(found) = found else { return Ok(0) };
            let session = decode::<Session>(&found.value)?;
            return Ok(session.all_bytes() + found.value.len() as u64);
        }
        if key.starts_with(keys::COLLECTIONS) {
            return self.weigh_collection(tenant, key, entry).await;
        }
        decode(&entry.value)
    }

    /// What a collection takes. The entry of one that is gone for good is removed, unless it may be about to be made.
    async fn weigh_collection(&self, tenant: &Tenant, key: &str, entry: &Document) -> Result<u64, Unavailable> {
        let of: CollectionEntry = decode(&entry.value)?;
        let (partition, head) = of.head(tenant);
        if let Some(found) = self.store.get(&partition, &head).await? {
            return Ok(decode::<CollectionHead>(&found.value)?.stored());
        }
        if of.put_ms.saturating_add(millis(NEW_ENTRY)) < now_ms() {
            let key: Key = key.into();
            let tx = Tx::new(keys::tenant_partition(tenant));
            let tx = tx.check(Check::Version { key: key.clone(), version: entry.version }).write(Write::Delete { key });
            match self.commit(tx).await {
                // It was put anew.
                Ok(()) | Err(CommitError::VersionConflict { .. }) => {}
                Err(error) => return Err(unavailable(error)),
            }
        }
        Ok(0)
    }

    /// How many bytes were sent to a run that has not ended.
    pub(in crate::agent) async fn inbox_bytes(&self, partition: &Partition, head: &Head) -> Result<u64, Unavailable> {
        if head.status.is_final() {
            return Ok(0);
        }
        let bytes = self.store.counter(partition, &keys::inbox_bytes(&head.id)).await?;
        Ok(u64::try_from(bytes).unwrap_or(0))
    }

    async fn weigh_run(&self, tenant: &Tenant, id: &RunId, session: Option<SessionId>) -> Result<u64, Unavailable> {
        let partition = keys::run_partition(tenant, session.as_ref(), id);
        let Some(head) = self.head(&partition, id).await? else { return Ok(0) };
        Ok(head.bytes + self.inbox_bytes(&partition, &head).await?)
    }
}
