//! A conversation that outlives its runs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::types::usage::{Micros, Usage};
use crate::types::{RunId, SessionId};

/// What is known of a session besides its messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// The session.
    pub id: SessionId,
    /// When it was created, Unix milliseconds.
    pub created_ms: u64,
    /// When a run last changed it, Unix milliseconds.
    pub updated_ms: u64,
    /// The agent that requests without a `model` of their own run as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The caller's own notes.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    /// How long it is kept after its last change, in seconds; `None` means the server's setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_s: Option<u64>,
    /// Most tokens of all its runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_budget: Option<u64>,
    /// Most money of all its runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_budget: Option<Micros>,
    /// Messages in its history.
    pub message_count: u64,
    /// Tokens of all its ended runs.
    pub usage: Usage,
    /// Cost of all its ended runs.
    pub cost: Micros,
    /// Runs that ended in it.
    pub runs: u64,
    /// The run that holds it now: live, or waiting for its client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_run: Option<RunId>,
}
