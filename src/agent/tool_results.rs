//! Takes what the services of tools answer later.
//!
//! An answer becomes a command in the run's inbox, whatever the run is doing: driven by some replica, interrupted by a crash, or
//! waiting without a driver. The commit of the command decides: the first answer of a call counts, and a run cannot begin to
//! wait, end or give the call up behind one. Knows nothing of how an answer arrives.

use std::sync::Arc;

use crate::agent::error::{ClaimError, LookupError};
use crate::agent::inbox::{self, Command, Delivery};
use crate::agent::launch::Launcher;
use crate::agent::ledger::callback::Callback;
use crate::agent::ledger::due::{Due, Owner};
use crate::agent::ledger::{Ledger, ReadError, keys};
use crate::agent::request_key::{RequestKey, RequestKeyKind};
use crate::failpoint;
use crate::store::{Partition, Unavailable};
use crate::tools::fit::settle;
use crate::types::{CallId, Event, RunId, ToolOutcome};

/// How long after an answer the due index resumes the run, should nothing else have.
const SEEN_TO_MS: u64 = 2_000;

/// A call that an answer is meant for, as its token shows.
#[derive(Debug)]
pub struct AddressedCall {
    call: CallId,
    run: RunId,
    owner: Owner,
}

/// What became of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It is the call's.
    Now,
    /// The same answer came before.
    Before,
}

/// Why an answer is not taken.
#[derive(Debug, thiserror::Error)]
pub enum ToolResultError {
    /// There is no such call, or the token is not its.
    #[error("there is no such call, or this is not its token")]
    NoSuchCall,
    /// Another answer came before.
    #[error("the call {0} was answered before, and otherwise: the first answer counts")]
    AnsweredOtherwise(CallId),
    /// The call or its run has ended.
    #[error("the call {0} is no longer waited for: its time is up, it was answered at once, or its run has ended")]
    TooLate(CallId),
    /// What is to be sent to the run cannot be.
    #[error(transparent)]
    NotSent(LookupError),
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] Unavailable),
}

/// How far a call is by the log of its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Its service was not asked.
    NotMade,
    /// Its service was asked, and may answer until then if that is known: Unix milliseconds.
    Asked(Option<u64>),
    /// It has its answer.
    Answered,
}

/// Takes what the services of tools answer later.
#[derive(Debug)]
pub struct ToolResults {
    ledger: Ledger,
    launcher: Arc<Launcher>,
}

impl ToolResults {
    /// For the runs of this launcher.
    pub(super) fn new(launcher: &Arc<Launcher>) -> Self {
        Self { ledger: launcher.ledger.clone(), launcher: launcher.clone() }
    }

    /// The call that who has this token may answer.
    pub async fn find(&self, call: &str, token: &str) -> Result<AddressedCall, ToolResultError> {
        let call = CallId::foreign(call);
        let run = call.run().ok_or(ToolResultError::NoSuchCall)?;
        let known = Callback::find(&**self.ledger.store(), &run).await?;
        let known = known.filter(|known| known.is_token(&call, token)).ok_or(ToolResultError::NoSuchCall)?;
        Ok(AddressedCall { call, run, owner: known.owner })
    }

    /// Takes an answer, of which `fingerprint` is a hash: the same one again changes nothing.
    pub async fn take(
        &self,
        AddressedCall { call, run, owner }: AddressedCall,
        mut outcome: ToolOutcome,
        fingerprint: String,
    ) -> Result<Taken, ToolResultError> {
        let partition = keys::run_partition(&owner.tenant, owner.session.as_ref(), &run);
        let too_late = || ToolResultError::TooLate(call.clone());
        let key = RequestKey { name: call.to_string(), fingerprint, kind: RequestKeyKind::Key };
        let due = Due::tool_answered(owner, run.clone(), self.ledger.store().now_ms().saturating_add(SEEN_TO_MS));
        let tenant = due.owner.tenant.clone();
        let head = self.ledger.head(&partition, &run).await?.ok_or_else(too_late)?;
        match inbox::was_sent(&self.ledger, &partition, &run, &key).await {
            Ok(true) => {
                self.launcher.wake_soon(due);
                return Ok(Taken::Before);
            }
            Ok(false) => {}
            Err(error) => return Err(refusal(error, &call)),
        }
        let spec =
            self.ledger.spec(&partition, &run).await?.filter(|_| !head.status.is_final()).ok_or_else(too_late)?;
        match self.stage(&partition, &run, &call).await? {
            Stage::NotMade => return Err(ToolResultError::NoSuchCall),
            Stage::Asked(until_ms) if until_ms.is_none_or(|until| self.ledger.store().now_ms() < until) => {}
            Stage::Asked(_) | Stage::Answered => return Err(too_late()),
        }
        settle(&mut outcome, spec.guards.results.within(spec.context_window));
        // Put before, so that no crash leaves the run waiting behind its answer.
        self.ledger.commit(due.put()).await.map_err(crate::agent::error::unavailable)?;
        failpoint::hit("pending.answer_indexed");
        let command = Command::ToolResult { call_id: call.clone(), outcome: Box::new(outcome) };
        let taken = match inbox::send(&self.ledger, &tenant, &run, &command, Some(&key)).await {
            Ok(Delivery::Delivered) => Ok(Taken::Now),
            Ok(Delivery::Repeated) => Ok(Taken::Before),
            Ok(Delivery::Ended(_)) => Err(too_late()),
            Err(error) => Err(refusal(error, &call)),
        };
        failpoint::hit("pending.answer_stored");
        self.launcher.wake_soon(due);
        taken
    }

    /// How far a call is.
    async fn stage(&self, partition: &Partition, run: &RunId, call: &CallId) -> Result<Stage, Unavailable> {
        let mut stage = Stage::NotMade;
        let read = self.ledger.read_log(partition, run, |record, _| stage = stage.after(&record.event, call));
        match read.await {
            Ok(()) => Ok(stage),
            Err(error @ ReadError::Damaged(_)) => Err(error.into()),
            Err(ReadError::Store(error)) => Err(error),
        }
    }
}

impl Stage {
    /// How far the call is once this happened.
    fn after(self, event: &Event, call: &CallId) -> Self {
        let is_call = |id: &CallId| id == call;
        if let Event::ToolStarted { call, .. } = event
            && is_call(&call.id)
        {
            Self::Asked(None)
        } else if let Event::ToolPending(pending) = event
            && is_call(&pending.call_id)
        {
            Self::Asked(Some(pending.expires_ms))
        } else if let Event::ToolAnswered { call_id, .. } | Event::ToolFinished { call_id, .. } = event
            && is_call(call_id)
        {
            Self::Answered
        } else {
            self
        }
    }
}

/// Why an answer was not sent to its run.
fn refusal(error: LookupError, call: &CallId) -> ToolResultError {
    match error {
        LookupError::Claim(ClaimError::Reused) => ToolResultError::AnsweredOtherwise(call.clone()),
        LookupError::Store(error) => ToolResultError::Store(error),
        LookupError::RunNotFound(_) => ToolResultError::TooLate(call.clone()),
        other @ (LookupError::Claim(_)
        | LookupError::AgentForbidden { .. }
        | LookupError::SessionNotFound(_)
        | LookupError::SessionExists(_)
        | LookupError::SessionBusy { .. }
        | LookupError::TooMuchMetadata(_)
        | LookupError::VersionConflict(_)
        | LookupError::EventsExpired(_)
        | LookupError::EventIdAhead { .. }
        | LookupError::CommandTooLarge { .. }
        | LookupError::InboxFull(_)
        | LookupError::NotLive(_)
        | LookupError::InputBlocked { .. }
        | LookupError::PartRefused { .. }
        | LookupError::Storage(_)) => ToolResultError::NotSent(other),
    }
}
