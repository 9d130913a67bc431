//! Deleting a session that had many runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use async_trait::async_trait;

use super::support::{Say, TestAgent, request, watch};
use crate::agent::NewRun;
use crate::agent::control::Filter;
use crate::agent::error::LookupError;
use crate::agent::session::delete::PAGE;
use crate::store::layer::StoreLayer;
use crate::store::memory::MemoryStore;
use crate::store::{CommitError, Store, Tx};
use crate::types::{SessionId, Tenant};

/// Notes the largest change.
#[derive(Debug, Default)]
struct Measured {
    inner: MemoryStore,
    largest: AtomicUsize,
}

#[async_trait]
impl StoreLayer for Measured {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    async fn on_commit(&self, tx: Tx) -> Result<(), CommitError> {
        self.largest.fetch_max(tx.writes.len(), Relaxed);
        self.inner.commit(tx).await
    }
}

#[tokio::test(start_paused = true)]
async fn no_change_of_a_deletion_grows_with_the_session() {
    let store = Arc::new(Measured::default());
    let agent = TestAgent::builder().store(store.clone()).turns(vec![Say::Text(&["done"])]).build();
    let (tenant, session) = (Tenant::default_tenant(), SessionId::parse("s").unwrap());
    let mut first = None;
    for _ in 0..2 * PAGE + 10 {
        let started = agent.start(NewRun { session: Some(session.clone()), ..request() }, None).await.unwrap();
        first.get_or_insert(started.head.id.clone());
        watch(started).await;
    }
    let filter = Filter { limit: 3 * PAGE, ..Filter::default() };
    assert_eq!(agent.runs().list(&tenant, &filter).await.unwrap().found.len(), 2 * PAGE + 10);
    agent.sessions().delete(&tenant, &session).await.unwrap();
    assert!(store.largest.load(Relaxed) <= 4 * PAGE, "{store:?}");
    assert_eq!(agent.runs().list(&tenant, &filter).await.unwrap().found, []);
    let gone = agent.runs().get(&tenant, &first.unwrap()).await.unwrap_err();
    assert!(matches!(gone, LookupError::RunNotFound(_)), "{gone}");
    let gone = agent.sessions().delete(&tenant, &session).await.unwrap_err();
    assert!(matches!(gone, LookupError::SessionNotFound(_)), "{gone}");
}
