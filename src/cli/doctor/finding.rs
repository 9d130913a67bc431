//! What a check found.

use serde_json::{Value, json};

/// One finding, a line of the report. Holds no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    /// What was looked at.
    pub(super) area: String,
    pub(super) level: Level,
    pub(super) message: String,
    /// What to do about it.
    pub(super) advice: Option<String>,
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Ok,
    /// The server runs, and something may go wrong or does nothing.
    Warn,
    /// The server does not start, or its runs fail.
    Fail,
}

impl Level {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }

    pub(super) fn colour(self) -> u8 {
        match self {
            Self::Ok => 32,
            Self::Warn => 33,
            Self::Fail => 31,
        }
    }
}

impl Finding {
    pub(super) fn ok(area: impl Into<String>, message: impl Into<String>) -> Self {
        Self { area: area.into(), level: Level::Ok, message: message.into(), advice: None }
    }

    pub(super) fn warn(area: impl Into<String>, message: impl Into<String>) -> Self {
        Self { level: Level::Warn, ..Self::ok(area, message) }
    }

    pub(super) fn fail(area: impl Into<String>, message: impl Into<String>) -> Self {
        Self { level: Level::Fail, ..Self::ok(area, message) }
    }

    /// The same, with what to do about it.
    pub(super) fn advice(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }

    /// The same, with `place` before its message.
    pub(super) fn about(self, place: &str) -> Self {
        Self { message: format!("{place}{}", self.message), ..self }
    }

    pub(super) fn json(&self) -> Value {
        let Self { area, level, message, advice } = self;
        json!({"area": area, "level": level.word(), "message": message, "advice": advice})
    }
}
