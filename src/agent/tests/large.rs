//! Large messages and records are held and read in pieces.

use std::sync::Arc;

use super::support::{Say, TestAgent, request, watch};
use crate::agent::session::NewSession;
use crate::store::memory::MemoryStore;
use crate::store::{Order, PAGE_BYTES, Store};
use crate::types::{Event, Message, Role, SessionId, Tenant};

fn tenant() -> Tenant {
    Tenant::default_tenant()
}

#[tokio::test(start_paused = true)]
async fn a_reader_goes_on_behind_a_record_that_is_larger_than_a_page() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let large: &[&str] = vec![&*"x".repeat(2 * PAGE_BYTES).leak()].leak();
    let agent = TestAgent::builder().store(store.clone()).turns(vec![Say::Text(large)]).build();
    let started = agent.start(request(), None).await.unwrap();
    let run = started.head.id.clone();
    let watched = watch(started).await;
    let other = TestAgent::builder().store(store).build();
    let mut follower = other.runs().follow(&tenant(), &run, 0).await.unwrap().follower.unwrap();
    let records = follower.available().await.unwrap();
    assert_eq!(records.last().unwrap().seq, watched.last().unwrap().seq);
    assert!(matches!(records.last().unwrap().event, Event::RunFinished(_)));
}

#[tokio::test(start_paused = true)]
async fn a_list_of_large_messages_is_short_and_covers_all_in_both_orders() {
    let agent = TestAgent::builder().build();
    let id = SessionId::parse("s").unwrap();
    let text = "x".repeat(400 << 10);
    let messages = (0..10).map(|number| Message::text(Role::User, &format!("{number}{text}"))).collect();
    agent
        .sessions()
        .create(&tenant(), NewSession { id: Some(id.clone()), messages, ..NewSession::default() })
        .await
        .unwrap();
    let (first, before) = agent.sessions().messages(&tenant(), &id, 0, 10, Order::Ascending).await.unwrap();
    assert_eq!((first.len(), before), (3, 0), "they have a MiB together");
    let (last, before) = agent.sessions().messages(&tenant(), &id, 0, 10, Order::Descending).await.unwrap();
    assert_eq!((last.len(), before), (3, 7));
    let (few, before) = agent.sessions().messages(&tenant(), &id, 4, 2, Order::Descending).await.unwrap();
    assert_eq!((few.len(), before), (2, 4));
}
