//! What a tool call does, and its result.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::types::CallId;
use crate::types::conversation::{Part, ToolResult, lines};
use crate::types::json::{RawValueEq, is_default};

/// What repeating a call would do, as its operator declares it. The greater one asks for more care.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// Changes nothing; may be repeated, and runs at the same time as other calls.
    Read,
    /// Has side effects; repeating it with the same idempotency key changes nothing more. Runs alone.
    Idempotent,
    /// Has side effects: dispatched at most once, and alone. What is not declared is this.
    #[default]
    Write,
}

impl Effect {
    /// The effect as it is written in the configuration and on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Idempotent => "idempotent",
            Self::Write => "write",
        }
    }
}

/// Which of the calls that a model writes into its text are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WrittenCalls {
    /// None: text is text.
    #[default]
    None,
    /// Those that change nothing.
    Read,
    /// All.
    All,
}

impl WrittenCalls {
    /// Whether a call is made that has this effect.
    #[must_use]
    pub fn include(self, effect: Effect) -> bool {
        match self {
            Self::None => false,
            Self::Read => effect == Effect::Read,
            Self::All => true,
        }
    }
}

/// How far a call came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallEnding {
    /// It was dispatched, and this is what came of it: an answer, a failure, or nothing in time.
    #[default]
    Answered,
    /// It was dispatched, and stopped with its run.
    Stopped,
    /// It was never dispatched.
    Skipped,
    /// It was dispatched, and its service goes on with it and answers later. No result has this.
    Pending,
    /// It was dispatched, and whether it took effect is not known: its answer was lost, or the process that waited
    /// for it died.
    Lost,
}

impl CallEnding {
    /// Whether nothing came of the call: it was not made, was stopped, or its answer was lost.
    #[must_use]
    pub fn is_without_answer(self) -> bool {
        match self {
            Self::Answered => false,
            Self::Stopped | Self::Skipped | Self::Lost | Self::Pending => true,
        }
    }
}

/// Something that a tool measured of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// What it is.
    pub name: String,
    /// How much; a finite number.
    pub value: f64,
    /// In which unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
}

/// A tool that a run found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundTool {
    /// Its name.
    pub name: Arc<str>,
    /// How many bytes of text its definition is to a model, about.
    pub weight: u32,
}

/// How one call ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolOutcome {
    /// What the model is told.
    pub parts: Vec<Part>,
    /// The same as JSON, where the tool gives it so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<RawValueEq>,
    /// Whether it describes a failure.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_error: bool,
    /// Whether its text was cut to the size limit.
    #[serde(default, skip_serializing_if = "is_default")]
    pub truncated: bool,
    /// How far the call came.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ending: CallEnding,
    /// From dispatch to answer, in milliseconds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub latency_ms: u64,
    /// What was received from the tool, in bytes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub bytes: u64,
    /// The status with which it answered, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// What the tool measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub measurements: Vec<Measurement>,
    /// The tools that the model is offered from the next step on, because the call found them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub found: Vec<FoundTool>,
    /// What the tool said, where the call failed and the agent's result for that takes its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl ToolOutcome {
    /// Whether the call failed, whatever the model is told of it.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.is_error || self.failure.is_some()
    }

    /// A call that was refused or abandoned before it was dispatched.
    #[must_use]
    pub fn skipped(why: impl Into<String>) -> Self {
        Self::unanswered(why, CallEnding::Skipped)
    }

    /// A call that failed.
    #[must_use]
    pub fn failed(why: impl Into<String>) -> Self {
        Self::unanswered(why, CallEnding::Answered)
    }

    /// A call that was dispatched and then stopped with its run.
    #[must_use]
    pub fn stopped(why: impl Into<String>) -> Self {
        Self::unanswered(why, CallEnding::Stopped)
    }

    /// A call that was dispatched, and of which it is unknown whether it took effect.
    #[must_use]
    pub fn lost(why: impl Into<String>) -> Self {
        Self::unanswered(why, CallEnding::Lost)
    }

    fn unanswered(why: impl Into<String>, ending: CallEnding) -> Self {
        Self { parts: vec![Part::text(why)], is_error: true, ending, ..Self::default() }
    }

    /// What the model is told, as text.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        match (&self.structured, self.parts.is_empty()) {
            (Some(json), true) => Cow::Borrowed(json.get()),
            (Some(_) | None, _) => lines(&self.parts),
        }
    }

    /// The JSON that stands beside what the model is told, unless that is the same or nothing.
    #[must_use]
    pub fn beside_text(&self) -> Option<&str> {
        let json = self.structured.as_ref().filter(|_| !self.parts.is_empty())?;
        (self.text() != json.get()).then_some(json.get())
    }

    /// What a conversation keeps of it.
    #[must_use]
    pub fn result(&self, call: &CallId) -> ToolResult {
        let (parts, structured) = (self.parts.clone(), self.structured.clone());
        ToolResult { call: call.clone(), parts, structured, is_error: self.is_error }
    }
}

/// How far a call is, as its tool tells. What is not told is not known.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolProgress {
    /// How much is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<f64>,
    /// How much there is to do, in the same unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    /// What it does now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
