//! A stored response, as its run's log has it.

use std::sync::Arc;

use crate::agent::Head;
use crate::agent::error::LookupError;
use crate::agent::follow::Follower;
use crate::api::auth::Caller;
use crate::api::error::ApiError;
use crate::api::responses::no_response;
use crate::api::state::Api;
use crate::api::wire::RunNames;
use crate::api::wire::responses::events::{ResponseEvents, Shown};
use crate::api::wire::responses::id::read_response;
use crate::types::response::ResponseTerms;
use crate::types::{Event, Message, RunId, RunSpec};

/// A response that can be read by its id.
pub struct Stored {
    /// Its run.
    pub head: Head,
    /// What that was asked to do.
    pub spec: RunSpec,
    /// Which of the run's responses it is.
    pub leg: u32,
    /// What the request that began the run asks of its response.
    pub terms: Arc<ResponseTerms>,
}

impl Stored {
    /// The response of this id, if the caller may read it.
    pub async fn find(api: &Api, caller: &Caller, id: &str) -> Result<Self, ApiError> {
        let (run, leg) = read_response(id).ok_or_else(|| no_response(id))?;
        Self::of_run(api, caller, (&run, leg)).await?.ok_or_else(|| no_response(id))
    }

    /// The run's response of this number; `None` if there is none that the caller may read.
    pub async fn of_run(api: &Api, caller: &Caller, (run, leg): (&RunId, u32)) -> Result<Option<Self>, ApiError> {
        let (head, spec) = match api.agent.runs().specified(caller.requester(), run).await {
            Ok(found) => found,
            Err(LookupError::RunNotFound(_) | LookupError::AgentForbidden { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let Some(spec) = spec.filter(|spec| spec.options.keeps_response() && leg <= head.leg) else { return Ok(None) };
        let terms = spec.options.response.clone().unwrap_or_default();
        Ok(Some(Self { head, spec, leg, terms }))
    }

    /// Its records from the first on, and those of the run's earlier responses.
    pub async fn follow(&self, api: &Api, caller: &Caller) -> Result<Follower, ApiError> {
        let following = api.agent.runs().follow(caller.requester(), &self.head.id, 0).await?;
        following.follower.ok_or_else(|| ApiError::internal(&"a run's log is empty"))
    }

    /// An encoder for it.
    pub fn events(&self, from: Option<u64>) -> ResponseEvents {
        let shown = Shown { leg: Some(self.leg), from, with_agent: true, with_report: true };
        ResponseEvents::new(RunNames::from(&self.head), self.terms.clone(), shown)
    }

    /// An encoder for all responses of its run, one after another, without their frames.
    pub fn all_events(&self) -> ResponseEvents {
        let shown = Shown { leg: None, from: None, with_agent: false, with_report: false };
        ResponseEvents::new(RunNames::from(&self.head), self.terms.clone(), shown)
    }

    /// The response as far as it came.
    pub async fn read(&self, api: &Api, caller: &Caller, id: &str) -> Result<ResponseEvents, ApiError> {
        let mut follower = self.follow(api, caller).await?;
        let mut events = self.events(None);
        loop {
            let page = follower.available_page().await?;
            if page.is_empty() {
                break;
            }
            for record in &page {
                events.take(record);
            }
        }
        if events.has_begun() { Ok(events) } else { Err(no_response(id)) }
    }

    /// The messages that came with its request.
    pub async fn input(&self, api: &Api, caller: &Caller, id: &str) -> Result<Vec<Message>, ApiError> {
        if self.leg == 0 {
            let inherited = usize::try_from(self.terms.inherited).unwrap_or(usize::MAX);
            return Ok(self.spec.input.iter().skip(inherited).cloned().collect());
        }
        let mut follower = self.follow(api, caller).await?;
        loop {
            let page = follower.available_page().await?;
            if page.is_empty() {
                return Err(no_response(id));
            }
            for record in &page {
                if let Event::RunResumed { leg: Some(leg) } = &record.event
                    && leg.number == self.leg
                {
                    return Ok(leg.answers.clone());
                }
            }
        }
    }
}
