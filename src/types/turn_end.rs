//! Why a model's turn ended.

use serde::{Deserialize, Serialize};

/// Why a model's turn ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnEnd {
    /// The model had said what it wanted to say.
    #[default]
    Stop,
    /// It reached its output limit.
    Length,
    /// It waits for the results of its calls.
    ToolCalls,
    /// The upstream held the rest back.
    ContentFilter,
    /// The upstream paused: asked again with what was said so far, the model goes on.
    Paused,
    /// The run broke it off.
    Interrupted,
    /// Something else, in the upstream's own word.
    Other(String),
}
