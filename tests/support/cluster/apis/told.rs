//! What an answer tells, whatever its dialect.

use serde_json::Value;

use crate::support::Frame;

/// A call that the server made.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Made {
    /// The call, as the dialect calls it.
    pub(crate) id: String,
    /// The tool.
    pub(crate) name: String,
    /// What it came to; none if that is not told.
    pub(crate) content: Option<String>,
}

/// How far an answer is told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Not to its end.
    #[default]
    Not,
    /// Its dialect's last event is there, and what has to follow that is not.
    Almost,
    /// It says that it cannot be told, or that the run failed.
    Failed(String),
    /// To its end.
    Whole,
}

/// What an answer tells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// All text of the model that counts, where the dialect tells it.
    pub(crate) said: Option<String>,
    /// The text that is the answer, where the dialect says which it is.
    pub(crate) answer: Option<String>,
    /// The calls of the server, where the dialect tells them.
    pub(crate) calls: Option<Vec<Made>>,
    /// How far it is told.
    pub(crate) ended: Ended,
    /// What is wrong with it.
    pub(crate) oddities: Vec<String>,
}

impl Told {
    /// Nothing but that something is wrong.
    pub(super) fn odd(what: String) -> Self {
        Self { oddities: vec![what], ..Self::default() }
    }

    /// Whether it says that it cannot be told.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.ended, Ended::Failed(_))
    }

    /// Takes note of something that is wrong.
    pub(super) fn note(&mut self, what: impl Into<String>) {
        self.oddities.push(what.into());
    }

    /// The same, if it is wrong.
    pub(super) fn note_if(&mut self, is_wrong: bool, what: &str, event: &Value) {
        if is_wrong {
            self.note(format!("{what}: {event}"));
        }
    }

    /// The data of an event, which stands before the end.
    pub(super) fn read(&mut self, frame: &Frame) -> Option<Value> {
        if matches!(self.ended, Ended::Whole | Ended::Almost) {
            self.note(format!("an event follows the last one: {}", frame.data));
        }
        let data = serde_json::from_str::<Value>(&frame.data).ok();
        if data.as_ref().is_none_or(|data| !data.is_object()) {
            self.note(format!("an event is no object: {}", frame.data));
        }
        data
    }

    /// The dialect's last event is there.
    pub(super) fn finish(&mut self, follows_done: bool) {
        if !self.has_failed() {
            self.ended = if follows_done { Ended::Almost } else { Ended::Whole };
        }
    }

    /// It says that it failed.
    pub(super) fn fail(&mut self, why: &Value) {
        self.ended = Ended::Failed(why.to_string());
    }

    /// `[DONE]` is there.
    pub(super) fn done(&mut self) {
        match self.ended {
            Ended::Almost => self.ended = Ended::Whole,
            Ended::Failed(_) => {}
            Ended::Not | Ended::Whole => self.note("[DONE] follows no last event"),
        }
    }

    /// Something else than the end follows a failure.
    pub(super) fn note_after_failure(&mut self, event: &Value) {
        if self.has_failed() {
            self.note(format!("an event follows a failure: {event}"));
        }
    }
}

/// A text, or nothing.
pub(super) fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
