//! Many who change one session at once, over a store that answers as slowly as one in another data centre.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use tokio::time::Instant;

use super::replicas::{shared, tenant};
use super::support::{Say, TestAgent, outcome, request, watch};
use crate::agent::NewRun;
use crate::agent::session::{NewSession, SessionPatch};
use crate::store::layer::StoreLayer;
use crate::store::{Partition, Store, Unavailable};
use crate::types::run::OnConflict;
use crate::types::{Event, RunStatus, SessionId};

/// How long an answer takes.
const LATENCY: Duration = Duration::from_millis(8);
/// How many come at once.
const MANY: usize = 60;
/// How long a client waits.
const DEADLINE: Duration = Duration::from_secs(15);

/// The way to a store that is far away.
#[derive(Debug)]
pub(super) struct Distant(pub(super) Arc<dyn Store>);

#[async_trait]
impl StoreLayer for Distant {
    fn inner(&self) -> &dyn Store {
        &*self.0
    }

    async fn pass(&self, _partition: Option<&Partition>) -> Result<(), Unavailable> {
        tokio::time::sleep(LATENCY).await;
        Ok(())
    }

    fn has_others(&self) -> bool {
        true
    }
}

/// A replica that is far away from its store.
fn distant(store: &Arc<dyn Store>) -> TestAgent {
    TestAgent::builder().store(Arc::new(Distant(store.clone()))).turns(vec![Say::Text(&["done"])]).begin()
}

fn session() -> SessionId {
    SessionId::parse("s").unwrap()
}

#[tokio::test(start_paused = true)]
async fn all_of_many_starts_at_once_in_one_session_succeed_and_end_where_they_began() {
    for on_conflict in [OnConflict::Concurrent, OnConflict::Enqueue] {
        let store = shared();
        let replicas = [(); 2].map(|()| distant(&store));
        let starts = (0..MANY).map(|number| {
            let new = NewRun { session: Some(session()), on_conflict, ..request() };
            let agent = replicas[number % 2].clone();
            async move {
                let since = Instant::now();
                let started = agent.start(new, None).await;
                (started, since.elapsed())
            }
        });
        let mut runs = Vec::new();
        for (started, took) in join_all(starts).await {
            assert!(took < DEADLINE, "{on_conflict:?}: it took {took:?}");
            runs.push(watch(started.unwrap()));
        }
        for records in join_all(runs).await {
            assert_eq!(outcome(&records).status(), RunStatus::Completed);
            let resumed = records.iter().filter(|record| matches!(record.event, Event::RunResumed { .. })).count();
            assert_eq!(resumed, 0, "{on_conflict:?}: no driver gave up");
        }
        let session = replicas[0].sessions().get(&tenant(), &session()).await.unwrap().session;
        assert_eq!((session.runs, session.message_count), (MANY as u64, 2 * MANY as u64));
    }
}

#[tokio::test(start_paused = true)]
async fn all_of_many_interruptions_at_once_are_accepted_and_the_last_one_is_answered() {
    let store = shared();
    let replicas = [(); 2].map(|()| distant(&store));
    let starts = (0..16).map(|number| {
        let new = NewRun { session: Some(session()), on_conflict: OnConflict::Interrupt, ..request() };
        let agent = replicas[number % 2].clone();
        async move { agent.start(new, None).await }
    });
    let runs = join_all(starts).await.into_iter().map(|started| watch(started.unwrap()));
    let ended = join_all(runs).await;
    let statuses: Vec<_> = ended.iter().map(|records| outcome(records).status()).collect();
    let is_answered = |status: &&RunStatus| **status == RunStatus::Completed;
    assert!(
        statuses.iter().all(|status| matches!(status, RunStatus::Completed | RunStatus::Cancelled)),
        "{statuses:?}"
    );
    assert!(statuses.iter().filter(is_answered).count() > 0, "{statuses:?}");
    assert!(replicas[0].sessions().get(&tenant(), &session()).await.unwrap().session.active_run.is_none());
}

#[tokio::test(start_paused = true)]
async fn all_of_many_patches_at_once_are_made() {
    let replica = distant(&shared());
    let agent = &replica;
    agent.sessions().create(&tenant(), NewSession { id: Some(session()), ..NewSession::default() }).await.unwrap();
    let patches = (0..MANY).map(|number| async move {
        let metadata = [(format!("key-{}", number % 16), Some(number.to_string()))].into();
        agent.sessions().patch(&tenant(), &session(), SessionPatch { metadata, ..SessionPatch::default() }).await
    });
    for patched in join_all(patches).await {
        patched.unwrap();
    }
    let metadata = agent.sessions().get(&tenant(), &session()).await.unwrap().session.metadata;
    assert_eq!(metadata.len(), 16);
}
