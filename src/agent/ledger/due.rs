//! The due index: what must happen at a given time, ordered by time.
//!
//! An entry names a run and what is due for it: of messages to hooks, also which one, as several of one run may be due in the
//! same millisecond. The index lies in a partition of its own, so an entry cannot change
//! in one commit with its run: it is a hint. The entry is put before the commit of the run that it belongs to, so
//! nothing is due without an entry. It is removed after the run was resumed. So an entry may belong to something that
//! never happened or is over. The sweep that finds an entry compares it with the run, under the run's lease, and
//! removes the entry if nothing is due.

use serde::{Deserialize, Serialize};

use crate::agent::error::unavailable;
use crate::agent::ledger::document::{decode, encode};
use crate::agent::ledger::keys;
use crate::store::pages::scan_pages;
use crate::store::{Key, Order, Scan, Store, Tx, Unavailable, Write};
use crate::types::{RunId, RunSpec, SessionId, Tenant};

/// Entries read at a time.
const PAGE: usize = 256;

/// What happens when the time comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DueKind {
    /// A run has waited for its client as long as it may.
    WaitOver,
    /// A message about a run is to be sent to a hook.
    Message,
    /// The service of a call has answered, and the run may wait.
    ToolAnswered,
}

impl DueKind {
    const ALL: [Self; 3] = [Self::WaitOver, Self::Message, Self::ToolAnswered];

    /// The kind in an entry's key. It may not contain a slash.
    fn name(self) -> &'static str {
        match self {
            Self::WaitOver => "wait-over",
            Self::Message => "message",
            Self::ToolAnswered => "tool-answered",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Something that must happen to a run at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// When, in Unix milliseconds.
    pub at_ms: u64,
    /// What.
    pub kind: DueKind,
    /// To which run.
    pub run: RunId,
    /// Which message is to be sent; the first of those that are stored together stands for all of them. `None` for what is no
    /// message.
    pub message: Option<Box<str>>,
    /// Where the run lies.
    pub owner: Owner,
}

/// Whose a run is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The run's tenant.
    pub tenant: Tenant,
    /// The run's session.
    pub session: Option<SessionId>,
}

impl Due {
    /// The end of a run's wait for its client.
    pub fn wait_over(spec: &RunSpec, at_ms: u64) -> Self {
        Self::of(spec, DueKind::WaitOver, at_ms)
    }

    /// That the message of this id about a run is to be sent, and those that are stored with it.
    pub fn message(spec: &RunSpec, at_ms: u64, id: &str) -> Self {
        Self { message: Some(id.into()), ..Self::of(spec, DueKind::Message, at_ms) }
    }

    /// That a run is to go on whose service answers a call now, should nothing else see to it.
    pub fn tool_answered(owner: Owner, run: RunId, at_ms: u64) -> Self {
        Self { at_ms, kind: DueKind::ToolAnswered, run, message: None, owner }
    }

    fn of(spec: &RunSpec, kind: DueKind, at_ms: u64) -> Self {
        let owner = Owner { tenant: spec.tenant.clone(), session: spec.session.clone() };
        Self { at_ms, kind, run: spec.id.clone(), message: None, owner }
    }

    /// That the message of this id about the same run is to be sent then.
    pub fn of_message(&self, at_ms: u64, id: &str) -> Self {
        Self { at_ms, message: Some(id.into()), ..self.clone() }
    }

    /// Whether an entry with this key tells of a run that waits for its client.
    pub fn is_of_wait(key: &str) -> bool {
        key.split('/').nth(1) == Some(DueKind::WaitOver.name())
    }

    /// Puts the entry: to be committed before the run's change.
    pub fn put(&self) -> Tx {
        let put = Write::Put { key: self.key(), value: encode(&self.owner), ttl: None };
        Tx::new(keys::due_partition()).write(put)
    }

    /// Removes the entry, once the run was resumed. An entry that does not exist is no error.
    pub async fn remove(&self, store: &dyn Store) -> Result<(), Unavailable> {
        let tx = Tx::new(keys::due_partition()).write(Write::Delete { key: self.key() });
        store.commit(tx).await.map_err(unavailable)
    }

    fn key(&self) -> Key {
        let Self { at_ms, kind, run, message, owner: _ } = self;
        let kind = kind.name();
        match message {
            Some(message) => format!("{at_ms:020}/{kind}/{run}/{message}").into(),
            None => format!("{at_ms:020}/{kind}/{run}").into(),
        }
    }

    /// `None` for a kind that this version does not know: another replica's version does.
    fn parse(key: &str, value: &[u8]) -> Option<Result<Self, Unavailable>> {
        let mut parts = key.splitn(4, '/');
        let (at, kind, run, message) = (parts.next()?, parts.next()?, parts.next()?, parts.next().map(Box::from));
        let (at_ms, kind, run) = (at.parse().ok()?, DueKind::parse(kind)?, RunId::parse(run)?);
        Some(decode(value).map(|owner| Self { at_ms, kind, run, message, owner }))
    }
}

/// Most messages of which one look returns the entries. The next look finds those that are left.
const MOST_MESSAGES: usize = 1_024;

/// What is due at `now_ms` or was due before, earliest first. While nothing is, this reads one entry at most.
pub async fn until(store: &dyn Store, now_ms: u64) -> Result<Vec<Due>, Unavailable> {
    let partition = keys::due_partition();
    let is_due = |key: &str| key.split('/').next().and_then(|at| at.parse::<u64>().ok()).is_some_and(|at| at <= now_ms);
    let scan = |limit| Scan { prefix: String::new(), after: None, limit, order: Order::Ascending };
    if !store.scan(&partition, scan(1)).await?.first().is_some_and(|(key, _)| is_due(key)) {
        return Ok(Vec::new());
    }
    let mut pages = std::pin::pin!(scan_pages(store, &partition, scan(PAGE)));
    let (mut found, mut messages) = (Vec::new(), 0);
    while let Some(page) = futures_util::TryStreamExt::try_next(&mut pages).await? {
        for (key, document) in page {
            if !is_due(&key) {
                return Ok(found);
            }
            match Due::parse(&key, &document.value) {
                Some(Ok(due)) => {
                    messages += usize::from(due.kind == DueKind::Message);
                    if due.kind != DueKind::Message || messages <= MOST_MESSAGES {
                        found.push(due);
                    }
                }
                Some(Err(error)) => tracing::error!(%key, %error, "an entry of the due index is damaged"),
                None => {}
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::store::embedded::EmbeddedStore;
    use crate::store::memory::MemoryStore;
    use crate::store::redis::RedisStore;
    use crate::store::redis::tests::servers::RedisServer;

    fn due(at_ms: u64, session: Option<&str>) -> Due {
        let owner =
            Owner { tenant: Tenant::default_tenant(), session: session.map(|id| SessionId::parse(id).unwrap()) };
        Due { at_ms, kind: DueKind::WaitOver, run: RunId::mint(), message: None, owner }
    }

    /// What every backend must do with the index.
    async fn holds(store: &dyn Store) {
        assert_eq!(until(store, u64::MAX).await, Ok(vec![]));
        let (late, early, same) = (due(2_000_000, None), due(999, Some("s")), due(999, None));
        for due in [&late, &early, &same] {
            store.commit(due.put()).await.unwrap();
            // Put again, as after an answer that was lost.
            store.commit(due.put()).await.unwrap();
        }
        assert_eq!(until(store, 998).await, Ok(vec![]));
        let mut found = until(store, 999).await.unwrap();
        found.sort_by(|one, other| one.run.cmp(&other.run));
        let mut expected = vec![early.clone(), same.clone()];
        expected.sort_by(|one, other| one.run.cmp(&other.run));
        assert_eq!(found, expected);
        assert_eq!(until(store, u64::MAX).await.unwrap().last(), Some(&late), "the latest is last");
        for _ in 0..2 {
            early.remove(store).await.unwrap();
        }
        same.remove(store).await.unwrap();
        assert_eq!(until(store, u64::MAX).await, Ok(vec![late.clone()]));
        late.remove(store).await.unwrap();

        // Of two messages of one run at one time, each has an entry of its own.
        let one = Due { kind: DueKind::Message, ..due(7, Some("s")) }.of_message(7, "msg_1");
        let other = one.of_message(7, "msg_2");
        for due in [&one, &other] {
            store.commit(due.put()).await.unwrap();
        }
        one.remove(store).await.unwrap();
        assert_eq!(until(store, u64::MAX).await, Ok(vec![other.clone()]));
        other.remove(store).await.unwrap();

        // More than a page of them, and one of another version's kind.
        let strange = Write::Put { key: "00000000000000000001/other/x".into(), value: "{}".into(), ttl: None };
        store.commit(Tx::new(keys::due_partition()).write(strange)).await.unwrap();
        let many: Vec<Due> = (0..600).map(|at_ms| due(at_ms, None)).collect();
        for due in &many {
            store.commit(due.put()).await.unwrap();
        }
        assert_eq!(until(store, 499).await.unwrap(), many[..500]);

        // Of many messages, no more than so many at a time, and none hides that a wait is over.
        for at_ms in 0..MOST_MESSAGES + 10 {
            let message = Due { kind: DueKind::Message, ..due(10_000 + at_ms as u64, None) };
            store.commit(message.put()).await.unwrap();
        }
        let found = until(store, u64::MAX).await.unwrap();
        let messages = found.iter().filter(|due| due.kind == DueKind::Message).count();
        assert_eq!((messages, found.len() - messages), (MOST_MESSAGES, 600));
    }

    #[tokio::test]
    async fn memory_keeps_the_index() {
        holds(&MemoryStore::default()).await;
    }

    #[tokio::test]
    async fn embedded_store_keeps_the_index() {
        let dir = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(dir.path()).await.unwrap();
        holds(&store).await;
        drop(store);
        let again = EmbeddedStore::open(dir.path()).await.unwrap();
        assert_eq!(until(&again, 499).await.unwrap().len(), 500);
    }

    #[tokio::test]
    async fn redis_keeps_the_index() {
        let server = RedisServer::start().await;
        let store: Arc<dyn Store> = Arc::new(RedisStore::open(&server.url().parse().unwrap()).await.unwrap());
        holds(&*store).await;
    }
}
