//! Changes of documents: at once, again after a crash, and all of a user's at once.

use std::collections::HashSet;

use futures_util::future::join_all;

use super::*;
use crate::agent::documents::limits::memory_limits;
use crate::agent::documents::{Change, DocumentError, Limits};
use crate::store::memory::MemoryStore;

pub(super) fn limits() -> Limits {
    Limits { bytes: 4 << 20, documents: 1_000, ..memory_limits(&MemoryConfig::default()) }
}

fn tenant() -> Tenant {
    Tenant::default_tenant()
}

async fn put(agent: &TestAgent, of: &Collection, name: &str, change: &Change<'_>) -> Result<Named, DocumentError> {
    agent.documents().put(&tenant(), of, name, (change, &limits())).await
}

pub(super) fn adds<'a>(content: &'a str, once: Option<&'a str>) -> Change<'a> {
    Change { content, appends: true, once, ..Change::default() }
}

#[tokio::test(start_paused = true)]
async fn writers_at_several_replicas_lose_nothing_of_each_other() {
    let store = memory();
    let replicas: Vec<TestAgent> = (0..4).map(|_| agent(&store, Vec::new())).collect();
    let of = of(Some("ann"));
    let lines: Vec<String> = (0..40).map(|number| format!("line {number}")).collect();
    let writing = lines.iter().enumerate().map(|(number, line)| {
        let (replica, of) = (&replicas[number % 4], &of);
        async move {
            put(replica, of, "log", &adds(line, None)).await.unwrap();
            put(replica, of, &format!("n{}", number % 7), &adds(line, None)).await.unwrap();
        }
    });
    join_all(writing).await;
    let log = note(&replicas[0], Some("ann"), "log").await.unwrap();
    let written: HashSet<&str> = log.text.content.lines().collect();
    assert_eq!((log.version, written.len()), (40, 40), "{}", log.text.content);
    let (head, version) = replicas[1].documents().head(&tenant(), &of).await.unwrap().unwrap();
    let all = replicas[2].documents().list(&tenant(), &of, None, 99).await.unwrap();
    let bytes: u64 = all.iter().map(|note| note.text.bytes(&note.name)).sum();
    assert_eq!((head.documents, head.bytes, version), (8, bytes, 80));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_made_again_after_a_crash_changes_nothing_more() {
    let agent = agent(&memory(), Vec::new());
    let of = of(Some("ann"));
    put(&agent, &of, "log", &adds("once", Some("call_1"))).await.unwrap();
    put(&agent, &of, "log", &Change { content: "other", ..Change::default() }).await.unwrap();
    let again = put(&agent, &of, "log", &adds("once", Some("call_1"))).await.unwrap();
    assert_eq!((again.text.content.as_str(), again.version), ("other", 2));
}

#[tokio::test(start_paused = true)]
async fn everything_of_a_user_goes_in_one_request_and_nothing_of_another() {
    let store = memory();
    let (here, there) = (agent(&store, Vec::new()), agent(&store, Vec::new()));
    let mut all = Vec::new();
    for user in [Some("ann"), Some("bob"), None] {
        for scope in [MemoryScope::AgentAndUser, MemoryScope::User] {
            for agent in ["a", "b"] {
                let of = memory_of(scope, agent, user);
                if !all.contains(&of) {
                    all.push(of);
                }
            }
        }
    }
    for of in &all {
        for number in 0..70 {
            put(&here, of, &format!("n{number}"), &adds("x", None)).await.unwrap();
        }
    }
    let of_ann = here.documents().collections_of(&tenant(), "ann").await.unwrap();
    assert_eq!(of_ann.len(), 3);
    // What is at hand at the other replica must not outlive it.
    assert!(there.documents().searchable(&tenant(), &of_ann[0]).await.unwrap().is_some());
    let before = stored(&here).await;
    assert_eq!(here.documents().erase(&tenant(), of_ann.clone()).await, Ok(3 * 70));
    assert!(stored(&here).await < before, "it is no longer counted");
    assert_eq!(here.documents().collections_of(&tenant(), "ann").await.unwrap(), []);
    for of in &all {
        let left = there.documents().searchable(&tenant(), of).await.unwrap().map(|entry| entry.documents().len());
        assert_eq!(left, (!of_ann.contains(of)).then_some(70), "{of:?}");
    }
    assert_eq!(here.documents().erase(&tenant(), of_ann.clone()).await, Ok(0), "it may be repeated");
    put(&here, &of_ann[0], "new", &adds("x", None)).await.unwrap();
    let found = there.documents().searchable(&tenant(), &of_ann[0]).await.unwrap().unwrap();
    assert_eq!(found.documents().len(), 1);
}

/// How much is counted as stored, and counted anew.
async fn stored(agent: &TestAgent) -> u64 {
    let ledger = &agent.rooms.ledger;
    let index = crate::agent::ledger::keys::tenant_partition(&tenant());
    let counted = ledger.store().counter(&index, &"stored".into()).await.unwrap();
    let counted = u64::try_from(counted).unwrap();
    assert_eq!(ledger.stored(&tenant()).await.unwrap(), counted);
    counted
}

#[tokio::test(start_paused = true)]
async fn documents_count_for_what_a_tenant_may_store() {
    let retention = crate::agent::Retention { tenant_bytes: 2_000, ..RETENTION };
    let agent = TestAgent::builder().store(Arc::new(MemoryStore::default())).retention(retention).begin();
    let of = of(None);
    put(&agent, &of, "a", &adds(&"x".repeat(900), None)).await.unwrap();
    let full = put(&agent, &of, "b", &adds(&"x".repeat(900), None)).await;
    assert!(matches!(full, Err(DocumentError::Storage(_))), "{full:?}");
    agent.documents().delete(&tenant(), &of, "a").await.unwrap();
    put(&agent, &of, "b", &adds(&"x".repeat(900), None)).await.unwrap();
    assert_eq!(agent.documents().delete(&tenant(), &of, "a").await, Err(DocumentError::NotFound("a".into())));
}
