//! A run goes on as another agent: what is recorded of that, and what the run is from then on.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::types::handoff::HandoffState;
use crate::types::{CallId, RunSpec};

/// A run is handed to another agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Handoff {
    /// The step whose call it is.
    pub step: u32,
    /// The call.
    pub call_id: CallId,
    /// The agent that hands the run off.
    pub from: String,
    /// The agent that goes on with it once the calls of the step are answered.
    pub to: String,
    /// Why, in the words of the model.
    pub reason: String,
    /// What the run is then, but for what it keeps.
    pub spec: Arc<RunSpec>,
    /// How many more tokens the next model call has because of that, by estimate.
    pub heavier: i64,
    /// The first place of the conversation that the next agent is shown; `None` if it is shown all that the one before was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown_from: Option<u64>,
}

impl RunSpec {
    /// What the log has of it as the specification of a run that goes on: without what each run keeps, and may be long.
    #[must_use]
    pub fn without_kept(mut self) -> Self {
        self.input.clear();
        self.client_tools.clear();
        self.metadata.clear();
        self
    }

    /// What this run is once it goes on as `next`. It stays the same run: of the same caller and session, with the same messages,
    /// and with all that the log has told of it.
    #[must_use]
    pub fn succeeded_by(&self, next: &Self) -> Self {
        let kept = self.clone();
        Self {
            id: kept.id,
            tenant: kept.tenant,
            key_name: kept.key_name,
            session: kept.session,
            concurrent: kept.concurrent,
            queued_at: kept.queued_at,
            created_ms: kept.created_ms,
            parent: kept.parent,
            model: kept.model,
            history_len: kept.history_len,
            view: kept.view,
            compacts: kept.compacts,
            input_since: kept.input_since,
            input: kept.input,
            context_tokens: kept.context_tokens,
            client_tools: kept.client_tools,
            trace: kept.trace,
            // What one of its agents keeps from traces stays out of them.
            hides_content: kept.hides_content || next.hides_content,
            streams: kept.streams,
            request_id: kept.request_id,
            claim: kept.claim,
            metadata: kept.metadata,
            on_limit: kept.on_limit,
            guarded: kept.guarded,
            handoff: HandoffState { before: kept.handoff.before + 1, terms: next.handoff.terms.clone() },
            ..next.clone()
        }
    }
}
