//! Continues a response: the request's messages follow the conversation as it stood at the end of that, or answer its run if
//! that waits.
//!
//! A response is a place in the log of its run, which never changes. So any number of requests may continue the same one,
//! and none of them is in the way of another.

use std::sync::Arc;

use crate::agent::admission::claims::HeldClaim;
use crate::agent::admission::{Admission, Started, named};
use crate::agent::error::{LookupError, PreviousError, StartError};
use crate::agent::ledger::ReadError;
use crate::agent::ledger::head::Head;
use crate::agent::machine::Run;
use crate::agent::request::{NewRun, PreviousResponse};
use crate::types::offer::ToolDefinition;
use crate::types::{CallId, Event, Message, Record, RunSpec, RunStatus};

/// What a client should know whose request answers a run and asks for other tools or another model.
const ANOTHER_RUN: &str =
    "the run that waited has other tools or another model: it is over, and another run goes on with the conversation";

/// A run up to the end of one of its legs.
struct Node {
    run: Run,
    leg: u32,
    /// Whether its client has continued it.
    is_older: bool,
    /// Whether the leg has ended.
    has_ended: bool,
    /// Whether the run waits there no longer, although nobody answered it: it was cancelled.
    is_over: bool,
}

/// What a request that continues a response comes to.
struct Continued {
    /// The request with what it continues: it names the run, if that waits for it, or has the conversation.
    new: Box<NewRun>,
    /// The waiting run whose place the new one takes.
    replaced: Option<Box<Head>>,
}

impl Node {
    fn new(spec: RunSpec, leg: u32) -> Self {
        Self { run: Run::new(Arc::new(spec)), leg, is_older: false, has_ended: false, is_over: false }
    }

    fn take(&mut self, record: &Record) {
        if let Event::RunResumed { leg } = &record.event {
            self.is_older |= leg.as_ref().is_some_and(|leg| leg.number > self.leg);
            self.has_ended = false;
        }
        self.is_over |= self.has_ended && stops(&record.event);
        if self.is_older || self.is_over {
            return;
        }
        self.run.apply(record);
        if let Event::RunFinished(outcome) = &record.event {
            self.has_ended = !outcome.stays_open;
        }
    }

    /// Whether its run waits there for what the request brings.
    fn waits(&self) -> bool {
        self.run.status() == RunStatus::RequiresAction && !self.is_older && !self.is_over
    }

    /// Whether the request asks for something that the waiting run cannot do: another one takes its place. A request that
    /// says something else than what becomes of calls denies them.
    fn is_replaced_by(&self, new: &NewRun) -> bool {
        let waits_for_approval = self.run.approval_requests().next().is_some();
        new.approvals.is_empty() && (waits_for_approval || offers_others(new, self.run.spec()))
    }

    /// What was said up to its end, once the request has answered its calls. Those that nobody can answer are closed.
    fn messages(&self, answered: &[CallId]) -> Result<Vec<Message>, PreviousError> {
        if self.run.approval_requests().next().is_some() {
            return match answered.first() {
                Some(call) => Err(PreviousError::NoSuchCall(call.clone())),
                None => Ok(self.run.final_messages()),
            };
        }
        if self.is_over && answered.is_empty() {
            return Ok(self.run.final_messages());
        }
        check_answered(&self.run, answered)?;
        Ok(self.run.messages_so_far())
    }
}

/// Whether a run that waits ends with this event.
fn stops(event: &Event) -> bool {
    matches!(event, Event::StopRequested { .. })
        || matches!(event, Event::RunFinished(outcome) if outcome.status().is_final())
}

impl Admission {
    /// Starts a run, or continues a waiting one, and with the conversation of the response that the request continues, if
    /// it names one.
    pub(super) async fn start_after(&self, new: &NewRun, claim: Option<&mut HeldClaim>) -> Result<Started, StartError> {
        let Some(previous) = &new.previous else { return self.start_with_transcript(new, claim).await };
        // Boxed, as most requests continue no response.
        Box::pin(async move {
            let Continued { new, replaced } = self.after_previous(new, previous).await?;
            let started = self.start_under(&new, claim).await?;
            if let Some(head) = replaced {
                self.end_replaced(&new, &head).await;
            }
            Ok(started)
        })
        .await
    }

    /// Starts a run, or continues a waiting one. Where a transcript asks for what the waiting run cannot do, another run goes on
    /// with it and takes the place of that.
    async fn start_with_transcript(&self, new: &NewRun, claim: Option<&mut HeldClaim>) -> Result<Started, StartError> {
        let Some(head) = self.replaced_by(new).await? else { return self.start_under(new, claim).await };
        Box::pin(async move {
            let warnings = new.warnings.iter().cloned().chain([ANOTHER_RUN.to_owned()]).collect();
            // It answers nobody: the results stand behind their calls.
            let instead = NewRun { warnings, answered: Vec::new(), ..new.clone() };
            let started = self.start_under(&instead, claim).await?;
            self.end_replaced(new, &head).await;
            Ok(started)
        })
        .await
    }

    /// The waiting run whose calls a transcript answers, and which another run is to replace.
    async fn replaced_by(&self, new: &NewRun) -> Result<Option<Box<Head>>, StartError> {
        let answered = new.answered.first().filter(|_| new.sends_all && new.run.is_none() && new.answers_from > 0);
        let Some(run) = answered.and_then(CallId::run) else { return Ok(None) };
        Box::pin(async move {
            let (partition, head) = match self.ledger.find_run(&new.tenant, &run).await {
                Ok(found) => found,
                Err(LookupError::Store(error)) => return Err(error.into()),
                Err(_) => return Ok(None),
            };
            if head.status != RunStatus::RequiresAction || !new.requester().may_use(&head.agent) {
                return Ok(None);
            }
            let spec = self.ledger.spec(&partition, &head.id).await?;
            Ok(spec.filter(|spec| offers_others(new, spec)).map(|_| Box::new(head)))
        })
        .await
    }

    /// Ends a waiting run whose place another one has taken. If that fails, the run ends once its wait is over.
    async fn end_replaced(&self, new: &NewRun, head: &Head) {
        if let Err(error) = self.launcher.stop(&new.tenant, head).await {
            tracing::warn!(run = %head.id, %error, "could not end a waiting run whose place another one has taken");
        }
    }

    /// A request and what it continues.
    async fn after_previous(&self, new: &NewRun, previous: &PreviousResponse) -> Result<Continued, StartError> {
        let (node, head) = self.node(new, previous).await?;
        if node.waits() && !node.is_replaced_by(new) {
            check_waiting(&node.run, new)?;
            let new = Box::new(NewRun { run: Some(previous.run.clone()), ..new.clone() });
            return Ok(Continued { new, replaced: None });
        }
        let warning = (node.waits() && !new.answered.is_empty()).then(|| ANOTHER_RUN.to_owned());
        let mut new = Box::new(self.after_node(new, &node, previous).await?);
        new.warnings.extend(warning);
        Ok(Continued { new, replaced: node.waits().then_some(head) })
    }

    /// The request with the conversation that it continues, as if no run waited for it.
    pub(super) async fn with_previous(
        &self,
        new: &NewRun,
        previous: &PreviousResponse,
    ) -> Result<Box<NewRun>, StartError> {
        let (node, _) = self.node(new, previous).await?;
        let new = self.after_node(new, &node, previous).await?;
        Ok(Box::new(NewRun { run: None, approvals: Vec::new(), ..new }))
    }

    async fn after_node(&self, new: &NewRun, node: &Node, previous: &PreviousResponse) -> Result<NewRun, StartError> {
        let (mut new, spec) = (new.clone(), node.run.spec());
        if self.is_rewritten(spec).await? {
            return Err(PreviousError::Rewritten(previous.id.clone()).into());
        }
        let earlier = self.sessions.whole_history_of(spec).await?;
        let mut messages: Vec<_> = earlier.iter().cloned().chain(node.messages(&new.answered)?).collect();
        let inherited = messages.len();
        messages.append(&mut new.messages);
        // It answers nobody: the results stand behind their calls.
        (new.messages, new.answered) = (messages, Vec::new());
        new.answers_from += inherited;
        if let Some(terms) = &mut new.options.response {
            Arc::make_mut(terms).inherited = inherited as u64;
        }
        Ok(new)
    }

    /// Whether messages of a run's session were replaced after it was accepted: what it began with is no longer known.
    async fn is_rewritten(&self, spec: &RunSpec) -> Result<bool, StartError> {
        let Some(id) = spec.session.as_ref().filter(|_| spec.history_len > 0) else { return Ok(false) };
        let Some(found) = self.ledger.find_session(&spec.tenant, id).await? else { return Ok(false) };
        Ok(found.session.spliced().times != spec.splices)
    }

    /// The response that a request continues, if it has ended.
    async fn node(&self, new: &NewRun, previous: &PreviousResponse) -> Result<(Node, Box<Head>), StartError> {
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
        // Over the wait for an approval, too, the response may go on.
        let waits_openly = node.waits() && !node.has_ended && new.approvals.is_empty();
        if goes_on || waits_openly || node.run.pending_calls().next().is_some() {
            return Err(PreviousError::NotReady(previous.id.clone()).into());
        }
        Ok((node, Box::new(head)))
    }
}

/// Whether a request that answers calls of a run offers its model other tools, or asks for another model.
fn offers_others(new: &NewRun, spec: &RunSpec) -> bool {
    let is_clients = |tool: &Arc<ToolDefinition>| spec.client_tools.contains(tool);
    !new.answered.is_empty()
        && (new.model.as_ref().is_some_and(|model| *model != spec.model)
            || !new.client_tools.iter().all(is_clients)
            || named::differ(new, spec).servers)
}

/// Refuses a request that does not bring what the run waits for.
fn check_waiting(run: &Run, new: &NewRun) -> Result<(), PreviousError> {
    // Whether they decide all calls is found out under the lease of the run.
    if new.approvals.is_empty() { check_answered(run, &new.answered) } else { Ok(()) }
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
