//! A message that paused, because a call waits for an approval, and whose client asks for the rest of it.
//!
//! The decision is made at `/v1/runs/{id}/approvals`. Where it was made, the rest is the leg that it began, told from the
//! run's log; where not, the request waits for it a while and pauses again.

use std::time::Duration;

use axum::response::Response;
use tokio::time::{Instant, sleep};

use crate::agent::Head;
use crate::agent::error::LookupError;
use crate::agent::follow::Follower;
use crate::agent::follow::page_memory::PageMemory;
use crate::api::auth::Caller;
use crate::api::error::ApiError;
use crate::api::identity::RequestIdentity;
use crate::api::messages::json;
use crate::api::messages::unstreamed::answer;
use crate::api::sse;
use crate::api::state::Api;
use crate::api::wire::messages::events::{MessageEvents, Shown};
use crate::api::wire::{Encoder, RunNames};
use crate::config::Scope;
use crate::types::{CallId, Event, Outcome, Record, RunStatus, StopReason, Usage};

/// How long a request waits for a decision: shorter than proxies leave a connection in silence.
const LONGEST_WAIT: Duration = Duration::from_secs(50);
/// How often it looks.
const POLL: Duration = Duration::from_millis(500);

/// A run that paused with a call.
pub(super) struct Paused {
    head: Head,
    call: CallId,
}

/// The run that waited, or waits, for an approval of this call; `None` if there is none that the caller may read.
pub(super) async fn find(api: &Api, caller: &Caller, call: &CallId) -> Result<Option<Paused>, ApiError> {
    let Some(run) = call.run() else { return Ok(None) };
    let head = match api.agent.runs().get(caller.requester(), &run).await {
        Ok(view) => view.head,
        Err(LookupError::RunNotFound(_) | LookupError::AgentForbidden { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let Some(mut follower) = follow(api, caller, &head).await? else { return Ok(None) };
    if head.key_name != caller.key_name {
        // What others began is read by those that may read.
        caller.check(Scope::Read)?;
    }
    loop {
        let page = follower.available_page().await?;
        if page.is_empty() {
            return Ok(None);
        }
        if page.iter().any(|record| waits_with(&record.event, call).is_some()) {
            return Ok(Some(Paused { head, call: call.clone() }));
        }
    }
}

/// The records of a run from the first on; `None` if they are no longer kept.
async fn follow(api: &Api, caller: &Caller, head: &Head) -> Result<Option<Follower>, ApiError> {
    match api.agent.runs().follow(caller.requester(), &head.id, 0).await {
        Ok(following) => Ok(following.follower),
        Err(LookupError::EventsExpired(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// How a run waits, if it waits from here on for an approval of this call.
fn waits_with<'e>(event: &'e Event, call: &CallId) -> Option<&'e Outcome> {
    let Event::RunFinished(outcome) = event else { return None };
    let waits = outcome.reason == StopReason::Approval;
    let has = outcome.required_calls.iter().any(|required| required.call.id == *call);
    (waits && has).then_some(outcome)
}

impl Paused {
    /// The rest of the message, or the pause once more.
    pub(super) async fn respond(
        self,
        api: &Api,
        caller: &Caller,
        (identity, memory): (&RequestIdentity, Option<PageMemory>),
        shown: Shown,
    ) -> Result<Response, ApiError> {
        let names = RunNames::from(&self.head);
        if let Some(outcome) = self.wait(api, caller).await? {
            return Ok(again(outcome, MessageEvents::new(names, shown.clone()), &shown));
        }
        let follower = follow(api, caller, &self.head).await?;
        let follower = follower.ok_or_else(|| ApiError::from(LookupError::EventsExpired(self.head.id.clone())))?;
        let streams = shown.frames;
        let events = MessageEvents::new(names.clone(), Shown { after: Some(self.call), ..shown });
        if streams {
            // What became void meanwhile was read by nobody on this connection.
            let void = follower.void_steps().await?;
            let events = events.without(void.iter().filter(|step| step.may_be_left_out(0)).map(|step| step.step));
            return Ok(sse::stream(follower.with_memory(memory), events, &names));
        }
        answer(follower, events, identity).await
    }

    /// Waits until the run goes on; how it waits, if it does not.
    async fn wait(&self, api: &Api, caller: &Caller) -> Result<Option<Outcome>, ApiError> {
        let end = Instant::now() + LONGEST_WAIT;
        loop {
            let view = api.agent.runs().get(caller.requester(), &self.head.id).await?;
            let waits = view.head.status == RunStatus::RequiresAction;
            let outcome = view.outcome.filter(|outcome| {
                let has = outcome.required_calls.iter().any(|required| required.call.id == self.call);
                waits && outcome.reason == StopReason::Approval && has
            });
            let Some(outcome) = outcome else { return Ok(None) };
            if Instant::now() >= end {
                return Ok(Some(outcome));
            }
            sleep(POLL).await;
        }
    }
}

/// The pause once more: nothing was done meanwhile, and nothing was taken.
fn again(outcome: Outcome, mut events: MessageEvents, shown: &Shown) -> Response {
    let outcome = Outcome { leg_usage: Some(Usage::default()), ..outcome };
    let record = Record { seq: 1, at_ms: 0, event: Event::RunFinished(Box::new(outcome)) };
    let mut out = bytes::BytesMut::new();
    events.encode(&record, &mut out);
    let mut response = if shown.frames { sse::whole(out.freeze()) } else { json(&events.object()) };
    sse::name_run(&mut response, events.names());
    response
}
