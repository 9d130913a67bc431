//! A run's head: its status in one small document beside its log.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::telemetry::traces::{Content, Subject};
use crate::types::json::is_default;
use crate::types::lineage::Parent;
use crate::types::user::clip_user;
use crate::types::{RunId, RunSpec, RunStatus, RunTrace, SessionId, StopReason};

/// The status of a run, as lists show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The run.
    pub id: RunId,
    /// Its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The model or agent as the caller named it.
    pub model: String,
    /// The agent that it runs as: a key that may not use this agent may do nothing to the run.
    pub agent: String,
    /// The version of that agent, if it is one of the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<u64>,
    /// The upstream and its model.
    pub called_model: String,
    /// The name of the key that began it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_name: Option<String>,
    /// The end user, as the request that began it named them, cut to what its tenant's usage tells apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The caller's notes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// When it was accepted, Unix milliseconds.
    pub created_ms: u64,
    /// When it ended or began to wait, Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// Its status.
    pub status: RunStatus,
    /// Why it ended or waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<StopReason>,
    /// While it waits: when its wait is over, Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_until_ms: Option<u64>,
    /// How many bytes of it are counted as stored by its tenant.
    pub bytes: u64,
    /// How often its client has continued it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub leg: u32,
    /// The trace that it belongs to, if it has spans or its caller names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<RunTrace>,
    /// The run that began it, and waits for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Arc<Parent>>,
    /// Whether its streams show what happens in the runs below it, unless their reader asks for it otherwise.
    #[serde(default, skip_serializing_if = "is_default")]
    pub shows_delegates: bool,
    /// Whether a request for it that does not say how it is to be answered is answered with a stream, where it may be either.
    #[serde(default, skip_serializing_if = "is_default")]
    pub streams: bool,
    /// Whether all that it does is to shorten what models are shown of its session.
    #[serde(default, skip_serializing_if = "is_default")]
    pub compacts: bool,
}

impl Head {
    /// Whether it has neither ended nor waits for its client.
    pub fn is_under_way(&self) -> bool {
        matches!(self.status, RunStatus::Queued | RunStatus::InProgress)
    }

    /// Whether it waits for services that answer calls of it later.
    pub fn waits_for_services(&self) -> bool {
        self.status == RunStatus::RequiresAction && self.reason == Some(StopReason::ToolPending)
    }

    /// Whether it goes on by itself, so that readers wait with it: services answer without its client.
    pub fn goes_on(&self) -> bool {
        self.is_under_way() || self.waits_for_services()
    }

    /// The run as its spans tell it, without what was said.
    pub fn subject(&self) -> Subject {
        Subject {
            run: self.id.clone(),
            session: self.session.clone(),
            agent: self.agent.clone(),
            model: self.model.clone(),
            created_ms: self.created_ms,
            trace: self.trace.clone(),
            is_composite: false,
            content: Content::Off,
            asked: None,
        }
    }

    /// The head of a run that begins.
    pub fn new(spec: &RunSpec) -> Self {
        Self {
            id: spec.id.clone(),
            session: spec.session.clone(),
            model: spec.model.clone(),
            agent: spec.agent.clone(),
            agent_version: spec.agent_version,
            called_model: [spec.upstream.as_str(), "/", &spec.upstream_model].concat(),
            key_name: spec.key_name.clone(),
            user: spec.options.sampling.user.as_deref().map(clip_user),
            metadata: spec.metadata.clone(),
            created_ms: spec.created_ms,
            ended_ms: None,
            status: RunStatus::InProgress,
            reason: None,
            waits_until_ms: None,
            bytes: 0,
            leg: 0,
            trace: spec.trace.clone(),
            parent: spec.parent.clone(),
            shows_delegates: spec.tree.is_some() && spec.rules.delegation.shows_events,
            streams: spec.streams,
            compacts: spec.compacts,
        }
    }
}
