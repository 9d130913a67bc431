//! What a run knows of the questions that its calls have asked the user.

use super::Run;
use crate::types::CallId;
use crate::types::tool_question::UserAnswer;

impl Run {
    /// What the next question of a call is called.
    #[must_use]
    pub fn next_question(&self) -> String {
        let asked = self.from_tools.rare.as_ref().map_or(0, |rare| rare.questions.asked);
        format!("question_{}", asked + 1)
    }

    /// The call whose question of this id is open.
    #[must_use]
    pub fn open_question(&self, id: &str) -> Option<&CallId> {
        let known = &self.from_tools.rare.as_ref()?.questions.known;
        known.iter().find(|question| question.id == id && question.answer.is_none()).map(|question| &question.call)
    }

    /// What was said to this question, while its call goes on.
    #[must_use]
    pub fn question_answer(&self, id: &str) -> Option<&UserAnswer> {
        let known = &self.from_tools.rare.as_ref()?.questions.known;
        known.iter().find(|question| question.id == id)?.answer.as_ref()
    }

    /// The tool of an open call.
    #[must_use]
    pub fn tool_of(&self, call: &CallId) -> Option<&str> {
        self.calls.iter().find(|open| open.call.id == *call).map(|open| open.call.name.as_str())
    }
}
