//! What a check found.

use serde_json::{Value, json};

/// One finding, a line of the report. Holds no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct Finding {
    /// What was looked at.
    pub(in crate::cli) area: String,
    pub(in crate::cli) level: Level,
    pub(in crate::cli) message: String,
    /// What to do about it.
    pub(in crate::cli) advice: Option<String>,
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum Level {
    Ok,
    /// The server runs, and something may go wrong or does nothing.
    Warn,
    /// The server does not start, or its runs fail.
    Fail,
}

impl Level {
    pub(in crate::cli) fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }

    pub(in crate::cli) fn colour(self) -> u8 {
        match self {
            Self::Ok => 32,
            Self::Warn => 33,
            Self::Fail => 31,
        }
    }
}

impl Finding {
    pub(in crate::cli) fn ok(area: impl Into<String>, message: impl Into<String>) -> Self {
        Self { area: area.into(), level: Level::Ok, message: message.into(), advice: None }
    }

    pub(in crate::cli) fn warn(area: impl Into<String>, message: impl Into<String>) -> Self {
        Self { level: Level::Warn, ..Self::ok(area, message) }
    }

    pub(in crate::cli) fn fail(area: impl Into<String>, message: impl Into<String>) -> Self {
        Self { level: Level::Fail, ..Self::ok(area, message) }
    }

    /// The same, with what to do about it.
    pub(in crate::cli) fn advice(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }

    /// The same, with `place` before its message.
    pub(in crate::cli) fn about(self, place: &str) -> Self {
        Self { message: format!("{place}{}", self.message), ..self }
    }

    pub(in crate::cli) fn json(&self) -> Value {
        let Self { area, level, message, advice } = self;
        json!({"area": area, "level": level.word(), "message": message, "advice": advice})
    }
}
