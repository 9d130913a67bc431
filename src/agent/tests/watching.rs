//! How soon replicas find that others died, by watching each other.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::dead_replicas::{dead_with, entry, is_registered, named, replica, resumptions, shared};
use super::link::Link;
use super::support::{Say, TestAgent, request};

/// A replica that dies, be it alone or together with those that watch it, loses its run to another within the time
/// that a lease lasts and two looks.
#[tokio::test(start_paused = true)]
async fn runs_of_dead_replicas_go_on_soon_however_many_replicas_there_are() {
    for (replicas, dead) in [(2, 1), (8, 1), (8, 3), (20, 1), (20, 10)] {
        let store = shared();
        let mut all: Vec<(Arc<Link>, TestAgent)> = Vec::new();
        for _ in 0..replicas {
            let way = Link::to(&store);
            all.push((way.clone(), replica(way, vec![Say::Stall(&["x"])])));
        }
        // They know of each other after a while.
        tokio::time::sleep(Duration::from_secs(60)).await;
        all.sort_by(|(_, one), (_, other)| one.replica().id().cmp(other.replica().id()));
        let mut runs = Vec::new();
        for (_, agent) in &all[..dead] {
            runs.push(agent.start(request(), None).await.unwrap().head.id);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        for (way, _) in &all[..dead] {
            way.cut(true);
        }
        let since = Instant::now();
        for run in &runs {
            while resumptions(&store, run).await == 0 {
                tokio::time::sleep(Duration::from_millis(50)).await;
                assert!(since.elapsed() < Duration::from_secs(12), "{dead} of {replicas}: {:?}", since.elapsed());
            }
        }
    }
}

/// A replica that keeps its lease but watches no other hides the dead replica behind it only for a while.
#[tokio::test(start_paused = true)]
async fn a_dead_replica_behind_one_that_does_not_look_is_found() {
    let store = shared();
    let watchful = replica(Link::to(&store), vec![]);
    let idle = TestAgent::builder().store(Link::to(&store)).build();
    idle.rooms.ownership.join().await.unwrap();
    let leases = idle.clone();
    idle.rooms.lifecycle.spawn_until_leaving(async move { leases.rooms.ownership.leases.keep().await });
    // Long after each looked first.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let dead = dead_with(&store, 1, &entry(Duration::ZERO)).await;
    let id = |agent: &TestAgent| agent.replica().id().to_owned();
    assert!(id(&watchful) < id(&idle) && id(&idle) < dead, "in this order they watch each other");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!((named(&store, &dead).await, is_registered(&store, &dead).await), (0, false));
    assert!(is_registered(&store, &id(&idle)).await);
}
