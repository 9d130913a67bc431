//! A session's messages as model requests hold them, kept in memory from run to run.
//!
//! Messages are only ever appended, so a run reads those that came since the last one; what a new
//! message costs the store does not grow with the session. Whether what is kept is still what the
//! session says is for the session's own document to tell, which is read from the store each time: its
//! digest differs once the session was deleted and created anew, or the store lost its last writes.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, TryStreamExt};
use moka::policy::EvictionPolicy;
use moka::sync::Cache;

use crate::agent::Agent;
use crate::agent::ledger::keys;
use crate::store::{Partition, Store, Unavailable};
use crate::types::session::{Digest, Session};
use crate::types::{Message, RunSpec, Tenant};

/// Messages read from the store at a time.
const PAGE: usize = 512;
/// What an entry takes beside its text, about.
const OVERHEAD: usize = 256;

impl Agent {
    /// All of a session's messages, as its document counts them.
    pub(in crate::agent) async fn history(&self, tenant: &Tenant, session: &Session) -> Result<History, Unavailable> {
        self.histories.read(&*self.store, &keys::session_partition(tenant, &session.id), session).await
    }

    /// The messages that a run began with; none for a run without a session.
    pub(in crate::agent) async fn history_of(&self, spec: &RunSpec) -> Result<History, Unavailable> {
        let Some(id) = &spec.session else { return Ok(History::default()) };
        match self.find_session(&spec.tenant, id).await? {
            Some(found) => Ok(self.history(&spec.tenant, &found.session).await?.first(spec.history_len)),
            None => Ok(History::default()),
        }
    }
}

/// Messages, encoded. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct History(Vec<Arc<Piece>>);

/// Consecutive messages, separated by commas.
#[derive(Debug, Default)]
struct Piece {
    text: String,
    /// Where in `text` each message ends.
    ends: Vec<usize>,
}

impl History {
    /// How many messages there are.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|piece| piece.ends.len() as u64).sum()
    }

    /// How long the messages are, joined with commas.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|piece| piece.text.len() + 1).sum::<usize>().saturating_sub(1)
    }

    /// The messages, several to a text; joined with commas, they are all of them.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|piece| piece.text.as_str())
    }

    /// Adds messages. Pieces at least double in length from the last to the first, so that there are
    /// few of them and each message is copied few times, however many come one by one.
    fn append(&mut self, messages: &[Bytes]) {
        if messages.is_empty() {
            return;
        }
        let mut last = Piece::default();
        for message in messages {
            last.push(&String::from_utf8_lossy(message));
        }
        while let Some(before) = self.0.pop_if(|before| before.text.len() < 2 * last.text.len()) {
            last = Piece::joined(&before, &last);
        }
        self.0.push(Arc::new(last));
    }

    /// The first `count` messages.
    fn first(mut self, count: u64) -> Self {
        let mut excess = self.count().saturating_sub(count);
        while excess > 0
            && let Some(last) = self.0.pop()
        {
            let kept = last.ends.len().saturating_sub(usize::try_from(excess).unwrap_or(usize::MAX));
            excess = excess.saturating_sub(last.ends.len() as u64);
            if let Some(end) = kept.checked_sub(1).map(|index| last.ends[index]) {
                self.0.push(Arc::new(Piece { text: last.text[..end].to_owned(), ends: last.ends[..kept].to_vec() }));
            }
        }
        self
    }

    /// What it takes in memory, about.
    fn weight(&self) -> usize {
        let pieces = self.0.iter().map(|piece| piece.text.capacity() + piece.ends.capacity() * size_of::<usize>());
        OVERHEAD + pieces.sum::<usize>()
    }
}

impl Piece {
    fn push(&mut self, message: &str) {
        if !self.ends.is_empty() {
            self.text.push(',');
        }
        self.text.push_str(message);
        self.ends.push(self.text.len());
    }

    fn joined(first: &Self, second: &Self) -> Self {
        let text = [first.text.as_str(), second.text.as_str()].join(",");
        let shift = first.text.len() + 1;
        let ends = first.ends.iter().copied().chain(second.ends.iter().map(|end| end + shift)).collect();
        Self { text, ends }
    }
}

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
        let weigh = |_: &Partition, known: &Known| u32::try_from(known.history.weight()).unwrap_or(u32::MAX);
        let cache = Cache::builder().max_capacity(most_bytes).weigher(weigh);
        // The sessions that were used last are those that will be used next.
        Self(cache.eviction_policy(EvictionPolicy::lru()).build())
    }

    /// The messages that `session` counts: those that are known, and those that came since.
    async fn read(&self, store: &dyn Store, partition: &Partition, session: &Session) -> Result<History, Unavailable> {
        let count = session.message_count;
        if let Some(known) = self.0.get(partition)
            && known.history.count() <= count
        {
            let read = known.read_on(store, partition, count).await?;
            if read.history.count() == count && read.digest == session.digest {
                self.0.insert(partition.clone(), read.clone());
                return Ok(read.history);
            }
        }
        let Known { history, .. } = Known::default().read_on(store, partition, count).await?;
        if history.count() == count {
            self.0.insert(partition.clone(), Known { history: history.clone(), digest: session.digest });
        }
        Ok(history)
    }
}

impl Known {
    /// Reads the messages up to number `count`, as far as they are there.
    async fn read_on(mut self, store: &dyn Store, partition: &Partition, count: u64) -> Result<Self, Unavailable> {
        let mut pages = std::pin::pin!(pages(store, partition, self.history.count(), count));
        while let Some(page) = pages.try_next().await? {
            self.digest = self.digest.with(&page);
            self.history.append(&page);
        }
        Ok(self)
    }
}

/// A session's stored messages above number `after`, up to number `count`, as far as they are there.
pub(in crate::agent) fn pages<'a>(
    store: &'a dyn Store,
    partition: &'a Partition,
    after: u64,
    count: u64,
) -> impl Stream<Item = Result<Vec<Bytes>, Unavailable>> + 'a {
    async_stream::try_stream! {
        let mut read = after;
        while read < count {
            let limit = usize::try_from(count - read).map_or(PAGE, |left| left.min(PAGE));
            let page = store.read_log(partition, &keys::messages(), read, limit).await?;
            if page.entries.is_empty() {
                return;
            }
            read += page.entries.len() as u64;
            yield page.entries;
        }
    }
}

/// Messages that are at hand, in pages such as [`pages`] has.
pub(in crate::agent) fn in_pages<E>(messages: &[Message]) -> impl Stream<Item = Result<Vec<Bytes>, E>> {
    let encoded = |message: &Message| Bytes::copy_from_slice(message.json().as_bytes());
    futures_util::stream::iter(messages.chunks(PAGE).map(move |page| Ok(page.iter().map(encoded).collect())))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn joined(history: &History) -> String {
        history.texts().collect::<Vec<_>>().join(",")
    }

    proptest! {
        #[test]
        fn pieces_are_the_messages_and_a_prefix_is_the_first_of_them(
            pages in prop::collection::vec(prop::collection::vec("[a-zü]{0,9}", 0..4), 0..40),
            count in 0_usize..100,
        ) {
            let all: Vec<String> = pages.concat();
            let mut history = History::default();
            for page in pages {
                history.append(&page.into_iter().map(Bytes::from).collect::<Vec<_>>());
                for pair in history.0.windows(2) {
                    prop_assert!(pair[0].text.len() >= 2 * pair[1].text.len());
                }
            }
            prop_assert_eq!(joined(&history), all.join(","));
            prop_assert_eq!((history.count(), history.bytes()), (all.len() as u64, all.join(",").len()));
            let count = count.min(all.len());
            let first = history.first(count as u64);
            prop_assert_eq!((first.count(), joined(&first)), (count as u64, all[..count].join(",")));
        }
    }
}
