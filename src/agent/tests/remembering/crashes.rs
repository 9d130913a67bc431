//! Crashes while a model writes what it remembers, and every kind of store.

use std::time::Duration;

use tokio::time::Instant;

use super::super::fencing::records as recording;
use super::super::link::Link;
use super::changes::{adds, limits};
use super::*;
use crate::agent::documents::Documents;
use crate::store::embedded::EmbeddedStore;
use crate::store::faulty::{Fate, Faulty};
use crate::store::redis::RedisStore;
use crate::store::redis::tests::servers::RedisServer;

/// The first replica dies after the note was written and before that is recorded; the second makes the call again.
#[tokio::test(start_paused = true)]
async fn a_note_is_written_once_although_the_replica_dies_before_it_has_said_so() {
    let store = memory();
    let writes = ("memory_write", r#"{"name": "log", "content": "line", "mode": "append"}"#);
    let turns = vec![Say::Calls("", vec![writes]), Say::Text(&["done"])];
    let mortal = Faulty::new(Link::to(&store), {
        let is_told = recording(|event| matches!(event, Event::ToolFinished { .. }));
        move |tx| if is_told(tx) { Fate::DiesBefore } else { Fate::Happens }
    });
    let builder = || TestAgent::builder().memory(MemoryConfig::default()).rules(recalling());
    let first = builder().store(mortal.clone()).turns(turns.clone()).begin();
    let new = says(Some("ann"), "note it");
    let (tenant, run) = (new.tenant.clone(), new.id.clone());
    drop(first.start(new, None).await.unwrap());
    mortal.reached().await;
    let second = builder().store(Link::to(&store)).turns(turns).begin();
    assert_eq!(note(&second, Some("ann"), "log").await.unwrap().text.content, "line", "it was written");
    let since = Instant::now();
    while !second.runs().get(&tenant, &run).await.unwrap().head.status.is_final() {
        assert!(since.elapsed() < Duration::from_secs(60), "nobody goes on with the run");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let found = note(&second, Some("ann"), "log").await.unwrap();
    assert_eq!((found.text.content.as_str(), found.version), ("line", 1), "and not twice");
    assert!(mortal.is_dead() && second.model.requests.lock().len() == 1);
}

/// The same with a deletion: what somebody writes after it is not deleted when the call is made again.
#[tokio::test(start_paused = true)]
async fn a_note_is_deleted_once_although_the_replica_dies_before_it_has_said_so() {
    let store = memory();
    let turns = vec![Say::Calls("", vec![("memory_delete", r#"{"name": "log"}"#)]), Say::Text(&["done"])];
    let mortal = Faulty::new(Link::to(&store), {
        let is_told = recording(|event| matches!(event, Event::ToolFinished { .. }));
        move |tx| if is_told(tx) { Fate::DiesBefore } else { Fate::Happens }
    });
    let builder = || TestAgent::builder().memory(MemoryConfig::default()).rules(recalling());
    let first = builder().store(mortal.clone()).turns(turns.clone()).begin();
    let new = says(Some("ann"), "forget it");
    let (tenant, run) = (new.tenant.clone(), new.id.clone());
    let write = async |documents: &Arc<Documents>, content: &str| {
        documents.put(&tenant, &of(Some("ann")), "log", (&adds(content, None), &limits())).await.unwrap();
    };
    write(first.documents(), "old").await;
    drop(first.start(new, None).await.unwrap());
    mortal.reached().await;
    let second = builder().store(Link::to(&store)).turns(turns).begin();
    assert_eq!(note(&second, Some("ann"), "log").await, None, "it was deleted");
    write(second.documents(), "new").await;
    let since = Instant::now();
    while !second.runs().get(&tenant, &run).await.unwrap().head.status.is_final() {
        assert!(since.elapsed() < Duration::from_secs(60), "nobody goes on with the run");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(note(&second, Some("ann"), "log").await.unwrap().text.content, "new");
    assert!(sent(&second).contains("was deleted."), "{}", sent(&second));
}

/// What every store must do alike.
async fn a_store_keeps_documents(store: Arc<dyn Store>) {
    let (here, there) = (agent(&store, Vec::new()), agent(&store, Vec::new()));
    let (tenant, of) = (Tenant::default_tenant(), of(Some("Ann {é}/..")));
    let put = async |documents: &Arc<Documents>, name: &str, line: &str| {
        documents.put(&tenant, &of, name, (&adds(line, None), &limits())).await.unwrap();
    };
    for number in 0..150 {
        let documents = if number % 2 == 0 { here.documents() } else { there.documents() };
        put(documents, &format!("n{}", number % 75), &format!("line {number}")).await;
    }
    let entry = here.documents().searchable(&tenant, &of).await.unwrap().unwrap();
    assert_eq!((entry.documents().len(), entry.find("line 149", 1).next().unwrap().name), (75, "n74"));
    put(there.documents(), "new", "zebra").await;
    let entry = here.documents().searchable(&tenant, &of).await.unwrap().unwrap();
    assert_eq!(entry.find("zebras", 1).next().unwrap().name, "new", "what another replica wrote is found at once");
    let of_user = here.documents().collections_of(&tenant, "Ann {é}/..").await.unwrap();
    assert_eq!(of_user, std::slice::from_ref(&of));
    assert_eq!(there.documents().erase(&tenant, of_user).await, Ok(76));
    assert!(here.documents().searchable(&tenant, &of).await.unwrap().is_none());
}

#[tokio::test]
async fn a_file_keeps_documents() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(EmbeddedStore::open(directory.path()).await.unwrap());
    a_store_keeps_documents(store.clone()).await;
    store.close().await;
}

#[tokio::test]
async fn redis_keeps_documents() {
    let server = RedisServer::start().await;
    let store = RedisStore::open(&server.url().parse().unwrap()).await.unwrap();
    a_store_keeps_documents(Arc::new(store)).await;
}
