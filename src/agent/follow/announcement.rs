//! Marks in the store that a run has a reader in this process.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::agent::ledger::keys;
use crate::store::{Durability, Partition, Store, Tx, Write};
use crate::types::RunId;

/// How often this replica marks in the store that it has a reader of a run, and how long the mark counts.
pub(in crate::agent) const ANNOUNCE_EVERY: Duration = Duration::from_secs(5);
const ANNOUNCED_FOR: Duration = Duration::from_secs(15);

/// Marks in the store that the run has a reader in this process, for as long as it is polled.
pub(super) async fn announce(store: Arc<dyn Store>, partition: Partition, run: RunId) {
    loop {
        let put = Write::Put { key: keys::reader(&run), value: Bytes::new(), ttl: Some(ANNOUNCED_FOR) };
        let tx = Tx { durability: Durability::Written, ..Tx::new(partition.clone()).write(put) };
        if let Err(error) = store.commit(tx).await {
            tracing::debug!(%run, %error, "could not say that the run has a reader here");
        }
        tokio::time::sleep(ANNOUNCE_EVERY).await;
    }
}
