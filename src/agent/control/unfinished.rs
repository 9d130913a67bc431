//! Runs of a session that have not ended, as copies of the session tell of them.

use std::sync::Arc;

use crate::agent::control::Control;
use crate::agent::error::LookupError;
use crate::agent::ledger::ReadError;
use crate::agent::ledger::head::Head;
use crate::agent::machine::Run;
use crate::agent::requester::Requester;
use crate::types::outcome::RequiredCall;
use crate::types::{Message, RunId, RunStatus};

/// A run that has not ended.
#[derive(Debug)]
pub struct Unfinished {
    /// Where it stands.
    pub head: Head,
    /// The calls that it waits for, if it waits.
    pub calls: Vec<RequiredCall>,
    /// What its session would have of it if it were cancelled now, if it waits: each of its calls has a result.
    pub messages: Vec<Message>,
}

impl Control {
    /// A run as it stands, unless it ended; of one that the requester may not read, only that it is there.
    pub async fn unfinished(&self, requester: Requester<'_>, id: &RunId) -> Result<Option<Unfinished>, LookupError> {
        let (partition, head) = match self.ledger.find_run(requester.tenant, id).await {
            Ok(found) => found,
            // It expired meanwhile.
            Err(LookupError::RunNotFound(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        // One that only shortens what models are shown says nothing.
        if head.status.is_final() || head.compacts {
            return Ok(None);
        }
        let is_told = head.status == RunStatus::RequiresAction && requester.may_use(&head.agent);
        let spec = if is_told { self.ledger.spec(&partition, id).await? } else { None };
        let bare = |head| Some(Unfinished { head, calls: Vec::new(), messages: Vec::new() });
        let Some(spec) = spec else { return Ok(bare(head)) };
        let mut run = Run::new(Arc::new(spec));
        match self.ledger.read_log(&partition, id, |record, _| run.apply(&record)).await {
            Ok(()) => {}
            Err(ReadError::Damaged(_)) => return Ok(bare(head)),
            Err(ReadError::Store(error)) => return Err(error.into()),
        }
        let outcome = self.ledger.outcome(&partition, id).await?;
        let calls = outcome.map_or_else(Vec::new, |outcome| outcome.required_calls);
        Ok(Some(Unfinished { head, calls, messages: run.final_messages() }))
    }
}
