//! Handoffs: a model has another agent go on with its run.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::types::json::{RawValueEq, is_default};
use crate::types::policy::Policy;

/// The tool by which a model hands its run off.
pub const HANDOFF: &str = "handoff";

/// To whom an agent hands its runs off: pinned with a run's specification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HandoffRules {
    /// The agents that its model may have go on.
    pub to: Vec<String>,
    /// How often a run may be handed off in all.
    pub most: u32,
    /// What of the conversation the next agent is shown.
    pub history: HandedHistory,
}

impl Default for HandoffRules {
    fn default() -> Self {
        Self { to: Vec::new(), most: 3, history: HandedHistory::All }
    }
}

/// What of the conversation the agent is shown that a run is handed to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandedHistory {
    /// All that the agent before it was shown.
    #[default]
    All,
    /// What the user said last, and what was done and said since.
    LastTurn,
}

/// How often a run was handed off, and whether it may be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandoffState {
    /// How often it was handed off before it became what it is.
    #[serde(default, skip_serializing_if = "is_default")]
    pub before: u32,
    /// What it keeps so that it can go on as another agent; `None` if its model cannot hand it off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terms: Option<Arc<HandoffTerms>>,
}

/// What a run that may be handed off keeps of how it came to be, so that it is specified anew for another agent as its request
/// asked for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandoffTerms {
    /// The agents that the key may use with which it was begun; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_agents: Option<Vec<String>>,
    /// What the calls of the run above it are judged by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above: Option<Arc<Policy>>,
    /// How the request narrows what agents have, as the admission of runs writes it.
    pub asked: RawValueEq,
    /// Whether its request named servers of tools, which stay with the first agent.
    #[serde(default, skip_serializing_if = "is_default")]
    pub names_servers: bool,
}
