//! How often a run waits for the disk.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::support::{Say, TestAgent, outcome, request, watch};
use crate::store::embedded::tests::counted;
use crate::store::faulty::{Fate, Faulty};
use crate::store::{Durability, Tx};
use crate::types::Effect;

/// What a run of one round or none is synced for.
const RUN: usize = 2;
/// Calls of such a tool, each in a round of its own.
const ROUNDS: usize = 3;

#[tokio::test]
async fn a_loop_waits_for_few_syncs_and_only_for_those_of_the_journal() {
    // The begin of a call that may change something is synced as well.
    for (effect, round) in [(Effect::Write, 2), (Effect::Read, 1)] {
        waits_for_syncs(effect, RUN + ROUNDS * round).await;
    }
}

/// A loop with calls of a tool of this effect makes so many commits that are synced.
async fn waits_for_syncs(effect: Effect, synced: usize) {
    let dir = tempfile::tempdir().unwrap();
    let (store, files) = counted(dir.path()).await;
    let commits: Arc<Mutex<Vec<Tx>>> = Arc::default();
    let seen = commits.clone();
    let store = Faulty::new(Arc::new(store), move |tx| {
        if tx.durability == Durability::Synced && !tx.writes.is_empty() {
            seen.lock().push(tx.clone());
        }
        Fate::Happens
    });
    let mut turns = vec![Say::Calls("", vec![("echo", r#"{"n":1}"#)]); ROUNDS];
    turns.push(Say::Text(&["done"]));
    let agent = TestAgent::builder().store(store).echo(effect).turns(turns).build();
    // The first run of a replica with these tools also stores their definitions, which later runs share.
    watch(agent.start(request(), None).await.unwrap()).await;
    agent.idle(Duration::from_secs(30)).await;
    commits.lock().clear();
    let (database, journal) = (files.database.syncs(), files.journal.syncs());
    let records = watch(agent.start(request(), None).await.unwrap()).await;
    assert_eq!(outcome(&records).output_text, "done");
    agent.idle(Duration::from_secs(30)).await;
    assert_eq!(files.database.syncs() - database, 0);
    // Commits of several tasks may share a sync.
    let (syncs, commits) = (files.journal.syncs() - journal, commits.lock());
    assert!(syncs <= commits.len(), "{syncs} syncs for {} commits", commits.len());
    assert_eq!(commits.len(), synced, "{effect:?}: {commits:#?}");
}
