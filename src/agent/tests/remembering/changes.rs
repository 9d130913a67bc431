//! Changes of documents: at once, again after a crash, and all of a user's at once.

use std::collections::HashSet;

use futures_util::future::join_all;

use super::*;
use crate::agent::documents::limits::memory_limits;
use crate::agent::documents::{Change, DocumentError, Limits};
use crate::agent::tests::contention::Distant;
use crate::store::faulty::{Fate, Faulty};
use crate::store::memory::MemoryStore;
use crate::store::{Tx, Write};

pub(super) fn limits() -> Limits {
    Limits { bytes: 4 << 20, documents: 1_000, ..memory_limits(&MemoryConfig::default()) }
}

fn tenant() -> Tenant {
    Tenant::default_tenant()
}

async fn put(agent: &TestAgent, of: &Collection, name: &str, change: &Change<'_>) -> Result<Named, DocumentError> {
    agent.documents().put(&tenant(), of, name, (change, &limits())).await
}

async fn delete(agent: &TestAgent, of: &Collection, name: &str, once: Option<&str>) -> Result<(), DocumentError> {
    agent.documents().delete(&tenant(), of, (name, once)).await
}

pub(super) fn adds<'a>(content: &'a str, once: Option<&'a str>) -> Change<'a> {
    Change { content, appends: true, once, ..Change::default() }
}

#[tokio::test(start_paused = true)]
async fn writers_at_several_replicas_lose_nothing_of_each_other() {
    let store = memory();
    let far = || -> Arc<dyn Store> { Arc::new(Distant(store.clone())) };
    let replicas: Vec<TestAgent> = (0..4).map(|_| agent(&far(), Vec::new())).collect();
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
    for number in 2..60 {
        put(&agent, &of, "more", &adds("x", Some(&format!("call_{number}")))).await.unwrap();
    }
    let again = put(&agent, &of, "log", &adds("once", Some("call_1"))).await.unwrap();
    assert_eq!((again.text.content.as_str(), again.version), ("other", 2));
    delete(&agent, &of, "log", None).await.unwrap();
    let again = put(&agent, &of, "log", &adds("once", Some("call_1"))).await.unwrap();
    assert_eq!(again.version, 0, "what a user deleted does not come back");
    assert_eq!(note(&agent, Some("ann"), "log").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_is_made_again_after_a_crash_deletes_nothing_more() {
    let agent = agent(&memory(), Vec::new());
    let of = of(Some("ann"));
    put(&agent, &of, "log", &adds("old", None)).await.unwrap();
    delete(&agent, &of, "log", Some("call_1")).await.unwrap();
    assert_eq!(delete(&agent, &of, "log", Some("call_1")).await, Ok(()), "it is known that it was deleted");
    put(&agent, &of, "log", &adds("of another", Some("call_2"))).await.unwrap();
    assert_eq!(delete(&agent, &of, "log", Some("call_1")).await, Ok(()));
    assert_eq!(note(&agent, Some("ann"), "log").await.unwrap().text.content, "of another");
}

#[tokio::test(start_paused = true)]
async fn no_version_of_a_document_comes_again() {
    let agent = agent(&memory(), Vec::new());
    let of = of(Some("ann"));
    let first = put(&agent, &of, "log", &adds("a", None)).await.unwrap().version;
    delete(&agent, &of, "log", None).await.unwrap();
    let second = put(&agent, &of, "log", &adds("b", None)).await.unwrap().version;
    assert_eq!(agent.documents().erase(&tenant(), vec![of.clone()]).await, Ok(1));
    let third = put(&agent, &of, "log", &adds("c", None)).await.unwrap().version;
    assert_eq!((first, second, third), (1, 2, 3));
    let stale = Change { version: Some(first), ..adds("d", None) };
    let refused = put(&agent, &of, "log", &stale).await;
    assert_eq!(refused, Err(DocumentError::Changed { name: "log".into(), actual: 3 }));
}

/// A replica that read before an erasure writes nothing of what was erased.
#[tokio::test(start_paused = true)]
async fn an_append_from_before_an_erasure_brings_nothing_back() {
    let store = memory();
    let slow = Faulty::new(store.clone(), |_| Fate::Happens);
    let (here, there) = (agent(&store, Vec::new()), agent(&(slow.clone() as Arc<dyn Store>), Vec::new()));
    let of = of(Some("ann"));
    put(&here, &of, "log", &adds("secret", None)).await.unwrap();
    let key = of.document("log");
    let writes =
        move |tx: &Tx| tx.writes.iter().any(|write| matches!(write, Write::Put { key: put, .. } if *put == key));
    slow.next(writes, Fate::Hangs);
    let erase_meanwhile = async {
        slow.reached().await;
        here.documents().erase(&tenant(), vec![of.clone()]).await.unwrap();
        put(&here, &of, "log", &adds("new", None)).await.unwrap();
        slow.go_on();
    };
    let change = adds("more", None);
    let (appended, ()) = tokio::join!(put(&there, &of, "log", &change), erase_meanwhile);
    assert_eq!(appended.unwrap().text.content, "new\nmore");
    let (head, _) = here.documents().head(&tenant(), &of).await.unwrap().unwrap();
    assert_eq!((head.documents, head.bytes), (1, 11));
}

#[tokio::test(start_paused = true)]
async fn what_is_left_of_an_empty_memory_names_nobody_and_is_counted() {
    let agent = agent(&memory(), Vec::new());
    for number in 0..20 {
        let of = memory_of(MemoryScope::AgentAndUser, "default", Some(&format!("ann-{number}")));
        put(&agent, &of, "log", &adds("x", None)).await.unwrap();
        delete(&agent, &of, "log", None).await.unwrap();
        let head = agent.rooms.ledger.store().get(&of.partition(&tenant()), &of.head()).await.unwrap().unwrap();
        assert!(!String::from_utf8_lossy(&head.value).contains("ann-"), "{head:?}");
        assert_eq!(agent.documents().collections_of(&tenant(), &format!("ann-{number}")).await.unwrap(), []);
    }
    assert_eq!(stored(&agent).await, 20 * 512);
}

/// The entry of what is gone for good is removed as soon as a tenant's bytes are counted anew.
#[tokio::test(start_paused = true)]
async fn an_entry_that_leads_nowhere_is_removed_when_bytes_are_counted() {
    let agent = agent(&memory(), Vec::new());
    let (index, ledger) = (crate::agent::ledger::keys::tenant_partition(&tenant()), &agent.rooms.ledger);
    let now_ms = crate::types::clock::now_ms();
    for (user, put_ms) in [("old", 0), ("new", now_ms)] {
        let of = of(Some(user));
        let value = crate::agent::ledger::document::encode(&of.entry(put_ms));
        let tx = Tx::new(index.clone()).write(Write::Put { key: of.entry_key(), value, ttl: None });
        ledger.commit(tx).await.unwrap();
    }
    assert_eq!(ledger.stored(&tenant()).await.unwrap(), 0);
    for (user, is_there) in [("old", false), ("new", true)] {
        let entry = ledger.store().get(&index, &of(Some(user)).entry_key()).await.unwrap();
        assert_eq!(entry.is_some(), is_there, "{user}");
    }
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
    let retention = crate::agent::Retention { tenant_bytes: 2_600, ..RETENTION };
    let agent = TestAgent::builder().store(Arc::new(MemoryStore::default())).retention(retention).begin();
    let of = of(None);
    put(&agent, &of, "a", &adds(&"x".repeat(900), None)).await.unwrap();
    let full = put(&agent, &of, "b", &adds(&"x".repeat(900), None)).await;
    assert!(matches!(full, Err(DocumentError::Storage(_))), "{full:?}");
    agent.documents().delete(&tenant(), &of, ("a", None)).await.unwrap();
    put(&agent, &of, "b", &adds(&"x".repeat(900), None)).await.unwrap();
    assert_eq!(agent.documents().delete(&tenant(), &of, ("a", None)).await, Err(DocumentError::NotFound("a".into())));
}
