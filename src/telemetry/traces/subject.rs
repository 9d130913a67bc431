//! What the spans of a run say that its records do not.

use super::content::Content;
use crate::types::trace::{RunTrace, TraceId};
use crate::types::{RunId, RunSpec, SessionId};

/// A run, as its spans tell it.
#[derive(Debug, Clone)]
pub struct Subject {
    /// The run.
    pub run: RunId,
    /// Its session.
    pub session: Option<SessionId>,
    /// The agent that it runs as.
    pub agent: String,
    /// The model or agent as the caller named it.
    pub model: String,
    /// When it was accepted, Unix milliseconds.
    pub created_ms: u64,
    /// The trace that it belongs to; `None` if that was not told when it was accepted.
    pub trace: Option<RunTrace>,
    /// Whether no model is called in it, as its agent is made of others.
    pub is_composite: bool,
    /// How much of what was said is told.
    pub content: Content,
    /// What is asked of it, if content is told.
    pub asked: Option<Asked>,
}

/// What is asked of a run, as it is told.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The messages.
    pub messages: String,
    /// The instructions.
    pub instructions: Option<String>,
}

impl Subject {
    /// The run of this specification.
    #[must_use]
    pub fn new(spec: &RunSpec, content: Content) -> Self {
        let content = if spec.hides_content { Content::Off } else { content };
        Self {
            run: spec.id.clone(),
            session: spec.session.clone(),
            agent: spec.agent.clone(),
            model: spec.model.clone(),
            created_ms: spec.created_ms,
            trace: spec.trace.clone(),
            is_composite: spec.rules.composite.is_some(),
            content,
            asked: (content != Content::Off).then(|| Asked {
                messages: content.messages(&spec.input),
                instructions: (!spec.system.is_empty()).then(|| content.instructions(&spec.system)),
            }),
        }
    }

    /// Another agent goes on with the run.
    pub(super) fn go_on_as(&mut self, spec: &RunSpec) {
        self.agent.clone_from(&spec.agent);
        if spec.hides_content {
            self.content = Content::Off;
        }
    }

    /// The trace that its spans belong to.
    #[must_use]
    pub fn trace_id(&self) -> TraceId {
        self.trace.as_ref().map_or_else(|| TraceId::of(&self.run), |trace| trace.id)
    }
}
