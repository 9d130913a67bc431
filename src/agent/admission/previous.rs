//! Continues a response: the request's messages follow the conversation as it stood at the end of that, or answer its run if
//! that waits.
//!
//! A response is a place in the log of its run, which never changes. So any number of requests may continue the same one,
//! and none of them is in the way of another.

use std::sync::Arc;

use crate::agent::admission::claims::HeldClaim;
use crate::agent::admission::{Admission, Started};
use crate::agent::error::{LookupError, PreviousError, StartError};
use crate::agent::ledger::ReadError;
use crate::agent::machine::Run;
use crate::agent::request::{NewRun, PreviousResponse};
use crate::types::{CallId, Event, Message, Record, RunSpec, RunStatus};

/// A run up to the end of one of its legs.
struct Node {
    run: Run,
    leg: u32,
    /// Whether its client has continued it.
    is_older: bool,
}

impl Node {
    fn new(spec: RunSpec, leg: u32) -> Self {
        Self { run: Run::new(Arc::new(spec)), leg, is_older: false }
    }

    fn take(&mut self, record: &Record) {
        if let Event::RunResumed { leg: Some(leg) } = &record.event {
            self.is_older |= leg.number > self.leg;
        }
        if !self.is_older {
            self.run.apply(record);
        }
    }

    /// Whether its run waits there for what the request brings.
    fn waits(&self) -> bool {
        self.run.status() == RunStatus::RequiresAction && !self.is_older
    }

    /// What was said up to its end, once the request has answered its calls.
    fn messages(&self, answered: &[CallId]) -> Result<Vec<Message>, PreviousError> {
        if self.run.approval_requests().next().is_some() {
            return Ok(self.run.final_messages());
        }
        check_answered(&self.run, answered)?;
        Ok(self.run.messages_so_far())
    }
}

impl Admission {
    /// Starts a run, or continues a waiting one, and with the conversation of the response that the request continues, if
    /// it names one.
    pub(super) async fn start_after(&self, new: &NewRun, claim: Option<&mut HeldClaim>) -> Result<Started, StartError> {
        let Some(previous) = &new.previous else { return self.start_under(new, claim).await };
        // Boxed, as most requests continue no response.
        Box::pin(async move {
            let new = self.after_previous(new, previous).await?;
            self.start_under(&new, claim).await
        })
        .await
    }

    /// The request with what it continues: it names the run, if that waits for it, or has the conversation.
    pub(super) async fn after_previous(
        &self,
        new: &NewRun,
        previous: &PreviousResponse,
    ) -> Result<Box<NewRun>, StartError> {
        let node = self.node(new, previous).await?;
        let mut new = Box::new(new.clone());
        if node.waits() {
            check_waiting(&node.run, &new, &previous.id)?;
            new.run = Some(previous.run.clone());
            return Ok(new);
        }
        let earlier = self.sessions.whole_history_of(node.run.spec()).await?;
        let mut messages: Vec<_> = earlier.iter().cloned().chain(node.messages(&new.answered)?).collect();
        let inherited = messages.len();
        messages.append(&mut new.messages);
        new.messages = messages;
        new.answers_from += inherited;
        if let Some(terms) = &mut new.options.response {
            Arc::make_mut(terms).inherited = inherited as u64;
        }
        Ok(new)
    }

    /// The response that a request continues, if it has ended.
    async fn node(&self, new: &NewRun, previous: &PreviousResponse) -> Result<Node, StartError> {
        let missing = || PreviousError::NotFound(previous.id.clone());
        let (partition, head) = match self.ledger.find_run(&new.tenant, &previous.run).await {
            Ok(found) => found,
            Err(LookupError::Store(error)) => return Err(error.into()),
            Err(_) => return Err(missing().into()),
        };
        let spec = self.ledger.spec(&partition, &head.id).await?.filter(|spec| spec.options.keeps_response());
        let spec = spec.filter(|_| new.requester().may_use(&head.agent)).ok_or_else(missing)?;
        let mut node = Node::new(spec, previous.leg);
        match self.ledger.read_log(&partition, &head.id, |record, _| node.take(&record)).await {
            Ok(()) => {}
            Err(ReadError::Store(error)) => return Err(error.into()),
            Err(ReadError::Damaged(_)) => return Err(missing().into()),
        }
        if node.run.leg() != previous.leg {
            return Err(missing().into());
        }
        let goes_on = matches!(node.run.status(), RunStatus::Queued | RunStatus::InProgress);
        if goes_on || node.run.pending_calls().next().is_some() {
            return Err(PreviousError::NotReady(previous.id.clone()).into());
        }
        Ok(node)
    }
}

/// Refuses a request that does not bring what the run waits for.
fn check_waiting(run: &Run, new: &NewRun, id: &str) -> Result<(), PreviousError> {
    let waits_for_approval = run.approval_requests().next().is_some();
    match (waits_for_approval, new.approvals.is_empty()) {
        (true, true) => Err(PreviousError::WaitsForApproval(id.to_owned())),
        // Whether they are all is decided under the lease of the run.
        (_, false) => Ok(()),
        (false, true) => check_answered(run, &new.answered),
    }
}

/// The first of these calls that a request does not decide, or, if each of them awaits others, of all.
pub(super) fn first_left(calls: impl Iterator<Item = CallId>, new: &NewRun) -> CallId {
    let calls: Vec<_> = calls.collect();
    let is_left = |call: &&CallId| !new.approvals.iter().any(|approval| approval.call == **call);
    let left = calls.iter().find(is_left).or(calls.first());
    left.cloned().unwrap_or_else(|| new.approvals[0].call.clone())
}

/// Refuses answers to other calls than those that the run waits with. What it asks the user may be answered in words.
fn check_answered(run: &Run, answered: &[CallId]) -> Result<(), PreviousError> {
    let required = run.required_calls();
    let questions = run.questions();
    let is_answered = |id: &CallId| answered.contains(id) || (answered.is_empty() && questions.contains(id));
    if let Some(required) = required.iter().find(|required| !is_answered(&required.call.id)) {
        return Err(PreviousError::Unanswered(required.call.id.clone()));
    }
    match answered.iter().find(|id| !required.iter().any(|required| required.call.id == **id)) {
        Some(id) => Err(PreviousError::NoSuchCall(id.clone())),
        None => Ok(()),
    }
}
