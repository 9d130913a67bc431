//! A run as the stream of a chat interface.

use axum::response::Response;
use http::{HeaderName, HeaderValue};

use crate::agent::follow::{FollowError, Follower};
use crate::api::sse;
use crate::api::wire::ui::act::Dialect;
use crate::api::wire::ui::events::UiEvents;

/// By which the AI SDK's clients know the version of its stream.
const UI_MESSAGE_STREAM: HeaderName = HeaderName::from_static("x-vercel-ai-ui-message-stream");

/// Streams a run. A reader that was not there from the beginning is not told what became void before it came.
pub async fn respond<D: Dialect>(
    follower: Follower,
    mut events: UiEvents<D>,
    is_late: bool,
) -> Result<Response, FollowError> {
    if is_late {
        let void = follower.void_steps().await?;
        events = events.without(void.iter().filter(|step| step.may_be_left_out(0)).map(|step| step.step));
    }
    let names = events.names().clone();
    let mut response = sse::stream(follower, events, &names);
    if let Some(version) = D::UI_MESSAGE_STREAM {
        response.headers_mut().insert(UI_MESSAGE_STREAM, HeaderValue::from_static(version));
    }
    Ok(response)
}
