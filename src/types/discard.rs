//! Why what a model said is void.

use serde::{Deserialize, Serialize};

/// Why a step's text became void.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiscardReason {
    /// The model's stream broke after text went out.
    StreamBroke,
    /// The server was interrupted while the model spoke.
    Interrupted,
    /// The model said nothing.
    EmptyResponse,
    /// The upstream took the request and failed before it said anything.
    NoAnswer,
}

impl DiscardReason {
    /// The reason as it is written on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::StreamBroke => "stream_broke",
            Self::Interrupted => "interrupted",
            Self::EmptyResponse => "empty_response",
            Self::NoAnswer => "no_answer",
        }
    }
}
