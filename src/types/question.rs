//! A question of a model to the user, asked by the call of a tool that the client answers.

use serde::Deserialize;

use crate::types::{Outcome, StopReason};

/// The name of the tool. A run offers it itself, where the tools of its agent name it.
pub const ASK_USER: &str = "ask_user";

/// Most answers that a model proposes.
pub const MOST_OPTIONS: usize = 16;

/// What a call of the tool asks.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// In the model's words.
    pub question: String,
    /// Answers that the model proposes.
    #[serde(default)]
    pub options: Vec<String>,
}

impl Question {
    /// The question of a call with these arguments; `None` if they hold none, or are not as the tool's schema wants them.
    #[must_use]
    pub fn read(arguments: &str) -> Option<Self> {
        // Serde would take a list for an object.
        let object = Some(arguments).filter(|arguments| arguments.trim_start().starts_with('{'))?;
        let read: Self = serde_json::from_str(object).ok()?;
        (!read.question.trim().is_empty() && read.options.len() <= MOST_OPTIONS).then_some(read)
    }

    /// The question as a text: with a line for each answer that the model proposes.
    #[must_use]
    pub fn text(&self) -> String {
        self.options.iter().fold(self.question.clone(), |text, option| format!("{text}\n- {option}"))
    }
}

/// What a run asks the user that waits for the answer, as it stands behind what the model said before it.
#[must_use]
pub fn asked(outcome: &Outcome) -> Option<String> {
    let calls = outcome.required_calls.iter().filter(|_| outcome.reason == StopReason::AskUser);
    let asked = calls.filter_map(|required| Question::read(&required.call.arguments));
    let texts: Vec<_> = asked.map(|question| question.text()).collect();
    (!texts.is_empty()).then(|| format!("\n\n{}", texts.join("\n\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_read_and_written_with_its_options() {
        let read = |arguments: &str| Question::read(arguments).map(|question| question.text());
        assert_eq!(read(r#"{"question":"Which?"}"#).as_deref(), Some("Which?"));
        let proposed = r#"{"question":"Which?","options":["red","blue"]}"#;
        assert_eq!(read(proposed).as_deref(), Some("Which?\n- red\n- blue"));
        let proposing = |options: usize| format!(r#"{{"question":"Which?","options":{:?}}}"#, vec!["a"; options]);
        assert!(read(&proposing(MOST_OPTIONS)).is_some());
        assert_eq!(read(&proposing(MOST_OPTIONS + 1)), None, "more than the tool takes");
        assert_eq!(read(r#"{"question":"Which?","urgent":true}"#), None, "the tool has no such argument");
        for none in ["", "{}", r#"{"question":" "}"#, r#"{"question":1}"#, r#"["Which?"]"#, r#"{"question":"W"#] {
            assert_eq!(read(none), None, "{none}");
        }
    }
}
