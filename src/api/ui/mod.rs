//! Runs for chat interfaces: the AI SDK's chats, and agents of AG-UI.

pub mod ag_ui;
pub mod chat;

use std::sync::Arc;

use axum::response::Response;
use http::HeaderMap;

use crate::agent::{NewRun, Started};
use crate::api::agent_header::AGENT_HEADER;
use crate::api::auth::{Caller, forbidden};
use crate::api::completions::{request_context, start, write_budgets_left};
use crate::api::error::ApiError;
use crate::api::extract::JsonText;
use crate::api::identity::{RequestIdentity, mark_replayed};
use crate::api::page_starts::{OptionsPlace, bind_chat, claimed_route};
use crate::api::readers::ReaderShare;
use crate::api::state::Api;
use crate::api::ui_stream;
use crate::api::wire::RunNames;
use crate::api::wire::agent::options::EventsMode;
use crate::api::wire::asked::RequestContext;
use crate::api::wire::ui::act::Dialect;
use crate::api::wire::ui::events::UiEvents;
use crate::config::Scope;
use crate::types::run::{OnConflict, OnDisconnect};

/// A request, as it arrived.
struct Asking<'a> {
    api: &'a Api,
    caller: Caller,
    identity: &'a RequestIdentity,
    route: &'static str,
    options: OptionsPlace,
    body: JsonText,
    memory: ReaderShare,
}

/// What came with a request beside its body. A chat comes back for the answer: a connection that ends is not the wish to stop.
fn context(
    caller: &Caller,
    identity: &RequestIdentity,
    headers: &HeaderMap,
    events: EventsMode,
) -> Result<RequestContext, ApiError> {
    if caller.token.is_some() && headers.contains_key(AGENT_HEADER) {
        let message = "x-loopgate-agent is for the holder of a key; with a token, the body has the options";
        return Err(forbidden(message).at(AGENT_HEADER));
    }
    let context = request_context(caller, identity, headers, None, events)?;
    Ok(RequestContext { default_on_disconnect: OnDisconnect::Continue, ..context })
}

impl Asking<'_> {
    /// Starts or continues the run that was asked for, and streams it.
    async fn run<D: Dialect>(self, mut new: NewRun, dialect: D) -> Result<Response, ApiError> {
        let Self { api, caller, identity, route, options, body, memory: ReaderShare(memory) } = self;
        if let Some(token) = &caller.token {
            // Boxed, as most callers have a key.
            Box::pin(bind_chat(token, &api.agent, (body.as_str()?, options), &mut new)).await?;
        }
        if new.on_conflict == OnConflict::Interrupt {
            caller.check(Scope::Cancel)?;
        }
        if !new.approvals.is_empty() {
            caller.check(Scope::Approvals)?;
        }
        let route = claimed_route(route, caller.token.as_deref());
        let key = identity.request_key(&route, &caller, body.as_str()?, None)?;
        new.memory = Arc::new(body.into_memory());
        let started = match start(api, &caller, new, key.as_ref(), std::convert::identity).await {
            Ok(started) => started,
            Err(refusal) => return Ok(*refusal),
        };
        let Started { head, follower, session, joined, replayed, .. } = started;
        let events = UiEvents::of_request(dialect, RunNames::from(&head));
        let mut response = ui_stream::respond(follower.with_memory(memory), events, joined || replayed).await?;
        write_budgets_left(api, &caller, session.as_ref(), &mut response).await;
        if replayed {
            mark_replayed(response.headers_mut());
        }
        Ok(response)
    }
}
