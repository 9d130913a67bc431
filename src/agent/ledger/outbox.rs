//! Messages that are kept until a hook took them: documents in the partition of the run that they tell of.
//!
//! A message is put in the commit of what it tells, so neither is there without the other. An entry of the due index is put
//! before that commit, and again before each attempt to send the message, so no message is there without an entry of its own.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt;
use serde::{Deserialize, Serialize};

use crate::agent::error::unavailable;
use crate::agent::ledger::document::encode;
use crate::agent::ledger::keys;
use crate::hooks::delivery::Progress;
use crate::store::pages::scan_pages;
use crate::store::{Key, Order, Partition, Scan, Store, Tx, Unavailable, Write};
use crate::types::RunId;
use crate::types::json::RawValueEq;

/// Messages read at a time: each may have 256 KiB.
pub const PAGE: usize = 4;
/// Most messages that are deleted together with something else.
const MOST_DELETED: usize = 128;
/// How much longer a message is kept than it is sent: by then it was given up, unless no replica was there.
const KEPT_BEYOND: Duration = Duration::from_secs(7 * 86_400);

/// A message that is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptMessage {
    /// Its id, which its receiver knows it by.
    pub id: String,
    /// The hook that it is for.
    pub hook: String,
    /// What it says.
    pub body: RawValueEq,
    /// When it was written, Unix milliseconds.
    pub written_ms: u64,
    /// How many attempts to send it were begun.
    #[serde(default)]
    pub attempts: u32,
    /// When the next attempt is due, Unix milliseconds.
    pub next_ms: u64,
}

impl KeptMessage {
    /// How far its delivery is.
    pub fn progress(&self) -> Progress {
        Progress { written_ms: self.written_ms, attempts: self.attempts }
    }

    /// As the store holds it.
    pub fn encoded(&self) -> Bytes {
        encode(self)
    }

    /// Puts it, as a message about the event of this number of its run.
    pub fn put(&self, run: &RunId, seq: u64, sent_for: Duration) -> Write {
        Write::Put { key: keys::message(run, seq, &self.id), value: self.encoded(), ttl: Some(ttl(sent_for)) }
    }
}

/// Deletes all messages in this partition that are of this run, or of any: those about runs that are deleted are not sent any more.
pub async fn delete_messages(store: &dyn Store, partition: &Partition, run: Option<&RunId>) -> Result<(), Unavailable> {
    let prefix = run.map_or_else(|| keys::OUTBOX.to_owned(), keys::messages_of);
    let mut pages = std::pin::pin!(scan_pages(store, partition, all(prefix)));
    while let Some(page) = pages.try_next().await? {
        delete(store, partition, page.iter().map(|(key, _)| key.as_str())).await?;
    }
    Ok(())
}

/// Deletes the messages in this partition that are of one of these runs. Returns the keys of others, as many as one change may
/// delete.
pub async fn delete_messages_of(
    store: &dyn Store,
    partition: &Partition,
    runs: &HashSet<&str>,
) -> Result<Vec<Key>, Unavailable> {
    let mut others: Vec<Key> = Vec::new();
    let mut pages = std::pin::pin!(scan_pages(store, partition, all(keys::OUTBOX.to_owned())));
    while let Some(page) = pages.try_next().await? {
        let is_of_them = |key: &&str| keys::run_of_message(key).is_some_and(|run| runs.contains(run));
        let (own, foreign): (Vec<_>, Vec<_>) = page.iter().map(|(key, _)| key.as_str()).partition(is_of_them);
        let room = MOST_DELETED.saturating_sub(others.len());
        others.extend(foreign.into_iter().take(room).map(Key::from));
        if !own.is_empty() {
            delete(store, partition, own.into_iter()).await?;
        }
    }
    Ok(others)
}

fn all(prefix: String) -> Scan {
    Scan { prefix, after: None, limit: PAGE, order: Order::Ascending }
}

async fn delete<'k>(
    store: &dyn Store,
    partition: &Partition,
    keys: impl Iterator<Item = &'k str>,
) -> Result<(), Unavailable> {
    let delete = |tx: Tx, key: &str| tx.write(Write::Delete { key: key.into() });
    store.commit(keys.fold(Tx::new(partition.clone()), delete)).await.map_err(unavailable)
}

/// How long a message is kept that is sent for so long.
pub fn ttl(sent_for: Duration) -> Duration {
    sent_for.saturating_add(KEPT_BEYOND)
}
