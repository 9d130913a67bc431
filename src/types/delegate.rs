//! Delegation: a model has another agent do a part of its work, in a run of its own.

use serde::{Deserialize, Serialize};

use crate::types::json::is_default;
use crate::types::outcome::{RunStatus, StopReason};
use crate::types::taken::Taken;
use crate::types::{CallId, RunId};

/// The tool by which a model delegates.
pub const DELEGATE: &str = "delegate";

/// What an agent sees of the conversation of a run that delegates to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskHistory {
    /// Nothing: it is told its task alone.
    #[default]
    Fresh,
    /// What was said before the run began to work, and then its task.
    Fork,
}

/// To whom an agent delegates, and within which bounds: pinned with a run's specification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Delegation {
    /// The agents that its model may have do something.
    pub to: Vec<String>,
    /// How many runs may stand above one of the tree that a run of it is the root of.
    pub max_depth: u32,
    /// How long one of them may take.
    pub timeout_ms: u64,
    /// How many characters of its answer the model is told.
    pub max_output_chars: u32,
    /// How many of a run's are under way at once.
    pub max_concurrent: u32,
    /// How many model calls one may make.
    pub max_iterations: u32,
    /// Whether streams of a run show what happens in the runs that it began.
    pub shows_events: bool,
    /// What they see of its conversation.
    pub history: TaskHistory,
}

impl Default for Delegation {
    fn default() -> Self {
        Self {
            to: Vec::new(),
            max_depth: 3,
            timeout_ms: 300_000,
            max_output_chars: 30_000,
            max_concurrent: 3,
            max_iterations: 20,
            shows_events: false,
            history: TaskHistory::Fresh,
        }
    }
}

/// What happened to a run that another one began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delegated {
    /// It is about to begin: it is named before it exists, so that each driver of the run that begins it means the same one.
    Started(StartedChild),
    /// It ended, or did not begin.
    Completed(CompletedChild),
}

/// A run that another one began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartedChild {
    /// The step whose call it is.
    pub step: u32,
    /// The call.
    pub call_id: CallId,
    /// The run.
    pub run: RunId,
    /// The agent that it runs as.
    pub agent: String,
    /// How many runs are above it.
    pub depth: u32,
}

/// How a run ended that another one began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompletedChild {
    /// The step whose call it is.
    pub step: u32,
    /// The call.
    pub call_id: CallId,
    /// The run.
    pub run: RunId,
    /// Its status.
    pub status: RunStatus,
    /// Why it ended; `None` if it did not begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<StopReason>,
    /// What it took by itself.
    #[serde(default)]
    pub own: Taken,
    /// What it and all runs below it took.
    #[serde(default)]
    pub tree: Taken,
}

/// How a run ended, as the one is told that began it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChildEnd {
    /// The run.
    pub run: RunId,
    /// Its status.
    pub status: RunStatus,
    /// Why it ended.
    pub reason: StopReason,
    /// What the model is told.
    pub text: String,
    /// Whether that was cut.
    #[serde(default, skip_serializing_if = "is_default")]
    pub truncated: bool,
    /// What it took by itself.
    pub own: Taken,
    /// What it and all runs below it took.
    pub tree: Taken,
}

/// At most so many characters of a text; and whether some are left out, which the text says then.
#[must_use]
pub fn cut(text: &str, most: usize) -> (String, bool) {
    let Some((end, _)) = text.char_indices().nth(most) else { return (text.to_owned(), false) };
    let all = most + text[end..].chars().count();
    (format!("{}\n[cut: the first {most} of {all} characters]", &text[..end]), true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_answer_is_cut_between_characters_and_says_so() {
        assert_eq!(cut("grün", 4), ("grün".to_owned(), false));
        assert_eq!(cut("grüner Tee", 3), ("grü\n[cut: the first 3 of 10 characters]".to_owned(), true));
        assert_eq!(cut("", 0), (String::new(), false));
    }
}
