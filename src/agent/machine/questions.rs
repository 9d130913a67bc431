//! What the calls of a run have asked the user, and what was said to it.
//!
//! A question is open until it is resolved, its call ends, or the replica that made the call is gone.

use super::Run;
use crate::types::CallId;
use crate::types::tool_question::{ResolvedQuestion, ToolQuestion, UserAnswer};

/// What the calls of a run have asked.
#[derive(Debug, Clone, Default)]
pub(super) struct Questions {
    /// How many there were.
    asked: u32,
    /// Those of calls that have no result.
    known: Vec<Question>,
}

#[derive(Debug, Clone)]
struct Question {
    id: String,
    call: CallId,
    answer: Option<UserAnswer>,
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

impl Run {
    /// What the next question of a call is called.
    #[must_use]
    pub fn next_question(&self) -> String {
        let asked = self.from_tools.questions.as_ref().map_or(0, |questions| questions.asked);
        format!("question_{}", asked + 1)
    }

    /// The call whose question of this id is open.
    #[must_use]
    pub fn open_question(&self, id: &str) -> Option<&CallId> {
        let known = &self.from_tools.questions.as_ref()?.known;
        known.iter().find(|question| question.id == id && question.answer.is_none()).map(|question| &question.call)
    }

    /// What was said to this question, while its call goes on.
    #[must_use]
    pub fn question_answer(&self, id: &str) -> Option<&UserAnswer> {
        let known = &self.from_tools.questions.as_ref()?.known;
        known.iter().find(|question| question.id == id)?.answer.as_ref()
    }

    /// The tool of an open call.
    #[must_use]
    pub fn tool_of(&self, call: &CallId) -> Option<&str> {
        self.calls.iter().find(|open| open.call.id == *call).map(|open| open.call.name.as_str())
    }
}
