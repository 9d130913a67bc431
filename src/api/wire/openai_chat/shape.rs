//! How the response to a request is to be written.

use serde::Deserialize;
use utoipa::ToSchema;

use crate::agent::Head;
use crate::api::wire::agent::options::{AgentOptions, EventsMode};
use crate::api::wire::json_object::JsonObject;

/// OpenAI's `stream_options`.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub struct StreamOptions {
    /// Whether the chat endpoint's stream ends with a usage chunk.
    pub include_usage: Option<bool>,
}

/// How the response is to be written.
#[derive(Debug, Clone, Copy)]
pub struct ResponseShape {
    /// Server-sent events instead of one JSON object; `None` for what the agent says.
    pub stream: Option<bool>,
    /// What the stream shows beside text.
    pub events: EventsMode,
    /// Whether a chunk stream ends with a usage chunk.
    pub include_usage: bool,
    /// Whether the last event bears the report.
    pub include_report: bool,
    /// Whether the stream shows what happens in the runs below; `None` for what the agent says.
    pub delegate_events: Option<bool>,
    /// Whether to answer at once.
    pub background: bool,
    /// Whether nothing is to run.
    pub dry_run: bool,
}

impl ResponseShape {
    /// Whether what a model said can be taken back: no client reads it, or its reader is told.
    pub(super) fn can_void(self) -> bool {
        let is_told = !matches!(self.events, EventsMode::Extension | EventsMode::None);
        self.stream == Some(false) || is_told || self.background
    }

    /// Whether the response to a request for this run is a stream.
    pub fn is_stream_of(&self, head: &Head) -> bool {
        self.stream.unwrap_or(head.streams)
    }

    /// What the request asks for, and what is usual where it does not say, at the endpoint whose streams show this.
    pub(super) fn asked(
        stream: Option<bool>,
        options: Option<JsonObject<StreamOptions>>,
        agent: &AgentOptions,
        events: EventsMode,
    ) -> Self {
        let names_chunks = matches!(agent.events, Some(EventsMode::Extension | EventsMode::None));
        Self {
            // A client of OpenAI's expects JSON where it asks for no stream, and so does one that names chunks alone.
            stream: stream.or((events != EventsMode::Native || names_chunks).then_some(false)),
            events: agent.events.unwrap_or(events),
            include_usage: options.and_then(|options| options.0.include_usage).unwrap_or(false),
            include_report: agent.include_report.unwrap_or(true),
            delegate_events: agent.delegate_events,
            background: agent.background.unwrap_or(false),
            dry_run: agent.dry_run.unwrap_or(false),
        }
    }
}
