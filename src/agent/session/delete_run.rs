//! Deletes a single run that has ended.

use std::slice;

use crate::agent::error::{LookupError, unavailable};
use crate::agent::ledger::commits::delete_run;
use crate::agent::ledger::head::Head;
use crate::agent::ledger::outbox;
use crate::agent::session::Sessions;
use crate::store::{Partition, Tx};
use crate::types::Tenant;

impl Sessions {
    /// Deletes a run that has ended, once it is counted. What was to be told of it is told no more, and what its session
    /// has of it stays. Should the process die in between, the entry that led to the run expires.
    pub(in crate::agent) async fn delete_run(
        &self,
        tenant: &Tenant,
        partition: &Partition,
        head: Head,
    ) -> Result<(), LookupError> {
        if !head.status.is_final() {
            return Err(LookupError::NotLive(head.id));
        }
        let heads = slice::from_ref(&head);
        self.usage.count_before_deletion(tenant, partition, heads).await?;
        outbox::delete_messages(&**self.ledger.store(), partition, Some(&head.id)).await?;
        self.ledger.commit(delete_run(Tx::new(partition.clone()), &head.id)).await.map_err(unavailable)?;
        Ok(self.unindex_runs(tenant, heads).await?)
    }
}
