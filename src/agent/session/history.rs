//! The histories of sessions, as runs read them, and a cache of them that is kept in memory from run to run.
//!
//! Of a history that a summary stands for a run reads only what comes after it, and the few messages that are shown all the
//! same. Messages are only appended, so a run reads only those that came after the ones in the cache. So the cost of a new
//! message does not grow with the session. The session's document, which is read from the store each time, shows
//! whether the cache is still right: its digest differs if the session was deleted and created anew, or if the store
//! lost its last writes.

use bytes::Bytes;
use futures_util::{Stream, TryStreamExt};
use moka::policy::EvictionPolicy;
use moka::sync::Cache;

use crate::agent::ledger::document::{decode, encode};
use crate::agent::ledger::keys;
use crate::store::pages::log_pages;
use crate::store::{Partition, Store, Unavailable};
use crate::types::context::View;
use crate::types::session::{Digest, Session};
use crate::types::{History, Message};

/// Messages read from the store at a time.
const PAGE: usize = 512;
/// What an entry takes beside its messages, about.
const OVERHEAD: usize = 256;

/// The histories of the sessions that had runs here lately.
#[derive(Debug)]
pub struct Histories(Cache<Partition, Known>);

/// A history that was read, and what stood for it then.
#[derive(Debug, Clone, Default)]
struct Known {
    history: History,
    digest: Digest,
}

impl Histories {
    /// None yet; at most so many bytes.
    pub fn new(most_bytes: u64) -> Self {
        let weigh = |_: &Partition, known: &Known| u32::try_from(OVERHEAD + known.history.memory()).unwrap_or(u32::MAX);
        let cache = Cache::builder().max_capacity(most_bytes).weigher(weigh);
        // The sessions that were used last are those that will be used next.
        Self(cache.eviction_policy(EvictionPolicy::lru()).build())
    }

    /// The messages that `session` counts, as far as this view shows them: those that are known, and those that came since.
    pub(super) async fn read(
        &self,
        store: &dyn Store,
        partition: &Partition,
        (session, view): (&Session, &View),
    ) -> Result<History, Unavailable> {
        let count = session.message_count;
        if let Some(known) = self.0.get(partition)
            && known.history.count() <= count
            && known.has(view)
        {
            let read = known.read_on(store, partition, count).await?;
            if read.history.count() == count && read.digest == session.digest {
                let history = read.history.without_first(view.covers, &view.kept);
                self.0.insert(partition.clone(), Known { history: history.clone(), digest: read.digest });
                return Ok(history);
            }
        }
        let kept = kept(store, partition, view).await?;
        let begins = Known { history: History::from(view.covers, kept), digest: session.digest };
        let known = begins.read_on(store, partition, count).await?;
        if known.history.count() == count {
            self.0.insert(partition.clone(), Known { digest: session.digest, ..known.clone() });
        }
        Ok(known.history)
    }
}

impl Known {
    /// Whether all that this view shows is there.
    fn has(&self, view: &View) -> bool {
        self.history.begins() <= view.covers && view.kept.iter().all(|place| self.history.has(*place))
    }

    /// Reads the messages up to number `count`, as far as they are there.
    async fn read_on(mut self, store: &dyn Store, partition: &Partition, count: u64) -> Result<Self, Unavailable> {
        let mut pages = std::pin::pin!(pages(store, partition, self.history.count(), count));
        while let Some(page) = pages.try_next().await? {
            self.digest = self.digest.with(&page);
            self.history.append(decoded(&page)?);
        }
        Ok(self)
    }
}

/// The messages that a view shows although they are replaced, with their places. Those that stand in a row are read together.
async fn kept(store: &dyn Store, partition: &Partition, view: &View) -> Result<Vec<(u64, Message)>, Unavailable> {
    let mut found = Vec::with_capacity(view.kept.len());
    for row in view.kept.chunk_by(|before, after| before + 1 == *after) {
        let [Some(first), Some(last)] = [row.first(), row.last()] else { continue };
        let mut pages = std::pin::pin!(pages(store, partition, *first, last + 1));
        let mut place = *first;
        while let Some(page) = pages.try_next().await? {
            for message in decoded(&page)? {
                found.push((place, message));
                place += 1;
            }
        }
    }
    Ok(found)
}

/// A session's stored messages above number `after`, up to number `count`, as far as they are there.
pub(in crate::agent) fn pages<'a>(
    store: &'a dyn Store,
    partition: &'a Partition,
    after: u64,
    count: u64,
) -> impl Stream<Item = Result<Vec<Bytes>, Unavailable>> + 'a {
    log_pages(store, partition, keys::messages(), after..count, PAGE)
}

/// Messages that are at hand, in pages such as [`pages`] has.
pub(in crate::agent) fn in_pages<E>(messages: &[Message]) -> impl Stream<Item = Result<Vec<Bytes>, E>> {
    futures_util::stream::iter(messages.chunks(PAGE).map(|page| Ok(page.iter().map(encode).collect())))
}

/// The messages of a page. Neighbours are mostly of one run, whose id they share.
pub(in crate::agent) fn decoded(page: &[Bytes]) -> Result<Vec<Message>, Unavailable> {
    let mut messages: Vec<Message> = Vec::with_capacity(page.len());
    for stored in page {
        let mut message: Message = decode(stored)?;
        if let Some(before) = messages.last() {
            message.origin.share_run_with(&before.origin);
        }
        messages.push(message);
    }
    Ok(messages)
}
