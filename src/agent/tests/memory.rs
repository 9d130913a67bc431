//! How much of ended runs is kept in memory.

use std::time::Duration;

use super::support::{RETENTION, Say, TestAgent, outcome, request, watch};
use crate::agent::Retention;
use crate::agent::control::Filter;
use crate::agent::error::LookupError;
use crate::types::{StopReason, Tenant};

#[tokio::test(start_paused = true)]
async fn the_oldest_ended_runs_make_room_for_new_ones() {
    const EACH: usize = 100 << 10;
    let text: &[&str] = vec![&*"x".repeat(EACH).leak()].leak();
    let limit = 10 * EACH as u64;
    let retention = Retention { ended_bytes: Some(limit), ..RETENTION };
    let agent = TestAgent::builder().turns(vec![Say::Text(text)]).retention(retention).build();
    let mut runs = Vec::new();
    for _ in 0..40 {
        let started = agent.start(request(), None).await.unwrap();
        runs.push(started.head.id.clone());
        assert_eq!(outcome(&watch(started).await).reason, StopReason::Done);
        // Its driver leaves it.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let tenant = Tenant::default_tenant();
    let oldest = agent.runs().get(&tenant, &runs[0]).await.map(|view| view.head);
    assert!(matches!(oldest, Err(LookupError::RunNotFound(_))), "{oldest:?}");
    assert!(agent.runs().get(&tenant, runs.last().unwrap()).await.unwrap().outcome.is_some());
    let listed = agent.runs().list(&tenant, &Filter { limit: 100, ..Filter::default() }).await.unwrap().found;
    // The text of a run is in its log twice or three times: streamed, in its turn, and in its outcome.
    assert!((2..=5).contains(&listed.len()), "{} are left", listed.len());
    let ids: Vec<_> = listed.iter().rev().map(|head| head.id.clone()).collect();
    assert_eq!(ids, runs[runs.len() - ids.len()..], "the newest");
}
