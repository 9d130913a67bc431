//! Lists of which little matches.

use std::sync::Arc;

use super::support::{TestAgent, request, watch};
use crate::agent::control::Filter;
use crate::agent::ledger::document::encode;
use crate::agent::ledger::keys;
use crate::agent::listed::MOST_LOOKED_AT;
use crate::store::memory::MemoryStore;
use crate::store::{Order, Store, Tx, Write};
use crate::types::{RunId, RunStatus, SessionId, Tenant};

#[tokio::test(start_paused = true)]
async fn a_list_looks_at_so_many_entries_a_request_and_says_where_to_go_on() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let agent = TestAgent::builder().store(store.clone()).begin();
    let tenant = Tenant::default_tenant();
    let kept = agent.start(request(), None).await.unwrap();
    let oldest = kept.head.id.clone();
    watch(kept).await;
    let gone = 2 * MOST_LOOKED_AT + 7;
    let partition = keys::tenant_partition(&tenant);
    let mut tx = Tx::new(partition);
    for number in 0..gone {
        let session = SessionId::parse(&format!("gone-{number:05}")).unwrap();
        let run = Write::Put { key: keys::run_entry(&RunId::mint()), value: encode(&None::<SessionId>), ttl: None };
        tx = tx.write(run).write(Write::Put { key: keys::session_entry(&session), value: encode(&()), ttl: None });
    }
    store.commit(tx).await.unwrap();
    let mut filter = Filter { status: Some(RunStatus::Completed), limit: 10, ..Filter::default() };
    let mut found = Vec::new();
    for page in 1.. {
        let listed = agent.runs().list(&tenant, &filter).await.unwrap();
        found.extend(listed.found.into_iter().map(|head| head.id));
        assert_eq!(listed.searched_to.is_some(), page < 3, "page {page}");
        let Some(last) = listed.searched_to else { break };
        filter.after = Some(last);
    }
    assert_eq!(found, [oldest]);
    let sessions = agent.sessions().list(&tenant, None, 10, Order::Ascending).await.unwrap();
    assert_eq!(sessions.searched_to, SessionId::parse(&format!("gone-{:05}", MOST_LOOKED_AT - 1)));
}
