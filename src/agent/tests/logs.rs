//! What a replica logs.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::link::Link;
use super::support::{Say, TestAgent, request};
use crate::agent::NewRun;
use crate::agent::ledger::keys;
use crate::store::Store;
use crate::store::faulty::{Fate, Faulty};
use crate::store::memory::MemoryStore;
use crate::types::SessionId;
use crate::types::run::OnConflict;

/// What this thread logs.
#[derive(Debug, Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// A log, and what lets this thread write to it for as long as it is kept.
    pub(super) fn begin() -> (Self, tracing::subscriber::DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    /// How often it has these words.
    pub(super) fn count(&self, words: &str) -> usize {
        String::from_utf8_lossy(&self.0.lock()).matches(words).count()
    }
}

/// A replica dies, and the one that finds its runs reads nothing of them.
#[tokio::test(start_paused = true)]
async fn that_runs_cannot_be_resumed_is_said_once_a_minute() {
    const SENTENCE: &str = "could not resume the run";
    let (log, _guard) = Log::begin();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let mortal = Faulty::new(store.clone(), |_| Fate::Happens);
    let first = TestAgent::builder().store(mortal.clone()).turns(vec![Say::Stall(&["x"])]).begin();
    let session = SessionId::mint();
    for _ in 0..3 {
        let session = Some(session.clone());
        first.start(NewRun { session, on_conflict: OnConflict::Concurrent, ..request() }, None).await.unwrap();
    }
    mortal.die();
    let link = Link::to(&store);
    link.cut_off(keys::session_partition(&request().tenant, &session));
    let second = TestAgent::builder().store(link).turns(vec![Say::Text(&["done"])]).begin();
    let since = Instant::now();
    while log.count(SENTENCE) == 0 {
        assert!(since.elapsed() < Duration::from_secs(60), "the runs are not found");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert_eq!(log.count(SENTENCE), 1);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(log.count(SENTENCE), 2);
    drop(second);
}
