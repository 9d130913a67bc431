//! What a replica leaves that dies.

use std::sync::Arc;

use crate::agent::ledger::{keys, log};
use crate::store::{Store, Tx, Write};
use crate::types::clock::now_ms;
use crate::types::{Event, RunId, StopReason, Tenant};

/// Has the log of a run without a session say that it is to stop, and not that it has.
pub(crate) async fn tell_to_stop(store: &Arc<dyn Store>, run: &RunId) {
    let (partition, events) = (keys::run_partition(&Tenant::default_tenant(), None, run), keys::events(run));
    let entries = store.read_log(&partition, &events, 0, 1_000).await.unwrap().entries;
    let mut seq = log::decode(entries.last().unwrap()).unwrap().seq;
    let (_, stop) = log::encode(&mut seq, now_ms(), Event::stop(StopReason::Cancelled));
    let append = Write::Append { log: events, after: entries.len() as u64, entries: vec![stop] };
    store.commit(Tx::new(partition).write(append)).await.unwrap();
}
