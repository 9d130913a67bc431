//! A message as one answer.

use std::ops::ControlFlow;

use axum::response::{IntoResponse, Response};

use crate::agent::follow::Follower;
use crate::api::at_end::{BrokenOff, take_all};
use crate::api::error::ApiError;
use crate::api::identity::RequestIdentity;
use crate::api::log_fields::LogFields;
use crate::api::messages::json;
use crate::api::sse;
use crate::api::wire::Encoder;
use crate::api::wire::messages::events::MessageEvents;
use crate::types::Record;

/// The message once its run has ended or waits.
pub(super) async fn answer(
    follower: Follower,
    mut events: MessageEvents,
    identity: &RequestIdentity,
) -> Result<Response, ApiError> {
    let mut take = |record: &Record| {
        events.take(record);
        if events.has_ended() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    if let Err(error) = take_all(follower, &mut take).await {
        let mut response = error.into_response();
        response.extensions_mut().insert(BrokenOff);
        sse::name_run(&mut response, events.names());
        return Ok(response);
    }
    let Some(outcome) = events.outcome() else {
        return Err(ApiError::internal(&"a run's log ended without its last event"));
    };
    let mut response = match &outcome.error {
        Some(error) => {
            let error = ApiError::from(error).in_messages();
            if identity.may_try_again(outcome) { error } else { error.permanent() }.into_response()
        }
        None => json(&events.object()),
    };
    sse::name_run(&mut response, events.names());
    let logged = LogFields::of(&mut response);
    (logged.tokens, logged.cost_usd) = (Some(outcome.usage.total()), Some(outcome.cost.as_usd()));
    Ok(response)
}
