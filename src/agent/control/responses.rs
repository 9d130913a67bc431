//! What responses are read by: runs whose specification is kept beside their log.

use crate::agent::control::Control;
use crate::agent::error::LookupError;
use crate::agent::ledger::head::Head;
use crate::agent::requester::Requester;
use crate::types::{RunId, RunSpec};

impl Control {
    /// A run that the requester may read, with its specification: that of a run that ended is kept if its response is stored.
    pub async fn specified(
        &self,
        requester: Requester<'_>,
        id: &RunId,
    ) -> Result<(Head, Option<RunSpec>), LookupError> {
        let (partition, head) = self.find(requester, id).await?;
        let spec = self.ledger.spec(&partition, id).await?;
        Ok((head, spec))
    }

    /// Deletes a run that has ended, with its log; what its session has of it stays.
    pub async fn delete(&self, requester: Requester<'_>, id: &RunId) -> Result<(), LookupError> {
        let (partition, head) = self.find(requester, id).await?;
        self.sessions.delete_run(requester.tenant, &partition, head).await
    }
}
