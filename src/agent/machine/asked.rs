//! Questions that calls have asked the user.
//!
//! A question is open until it is resolved, its call ends, or the replica that made the call is gone.

use crate::types::CallId;
use crate::types::tool_question::{ResolvedQuestion, ToolQuestion, UserAnswer};

/// What the calls of a run have asked.
#[derive(Debug, Clone, Default)]
pub(super) struct Questions {
    /// How many there were.
    pub(super) asked: u32,
    /// Those of calls that have no result.
    pub(super) known: Vec<Question>,
}

#[derive(Debug, Clone)]
pub(super) struct Question {
    pub(super) id: String,
    pub(super) call: CallId,
    pub(super) answer: Option<UserAnswer>,
}

impl Questions {
    pub(super) fn ask(&mut self, asked: &ToolQuestion) {
        self.asked += 1;
        self.known.push(Question { id: asked.id.clone(), call: asked.call_id.clone(), answer: None });
    }

    pub(super) fn resolve(&mut self, resolved: &ResolvedQuestion) {
        if let Some(question) = self.known.iter_mut().find(|question| question.id == resolved.id) {
            question.answer.get_or_insert_with(|| resolved.answer.clone());
        }
    }

    /// The call has its result.
    pub(super) fn end_call(&mut self, call: &CallId) {
        self.known.retain(|question| question.call != *call);
    }

    /// The calls that asked are no longer made.
    pub(super) fn interrupt(&mut self) {
        self.known.clear();
    }
}
