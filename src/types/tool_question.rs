//! A question of a tool to the user, asked in the middle of its call, and what is said to it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::types::CallId;
use crate::types::json::RawValueEq;

/// A question of a tool to the user. The call goes on when the user has answered, or when the time to answer is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolQuestion {
    /// What it is answered by; it is the only one of its run.
    pub id: String,
    /// The step whose call asks.
    pub step: u32,
    /// The call.
    pub call_id: CallId,
    /// The tool.
    pub name: String,
    /// The server of tools whose words these are.
    pub server: String,
    /// What the user is asked.
    pub message: String,
    /// The JSON schema of the answer: an object whose members are texts, numbers, truth values and choices.
    pub schema: RawValueEq,
    /// Until when it may be answered, Unix milliseconds.
    pub expires_ms: u64,
}

/// What a user does about a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UserAction {
    /// The user says what was asked.
    Accept,
    /// The user does not say it.
    Decline,
    /// No user said anything.
    Cancel,
}

impl UserAction {
    /// The action as it is written on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Decline => "decline",
            Self::Cancel => "cancel",
        }
    }
}

/// What a user says to a question. Its debug output has none of the user's words.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserAnswer {
    /// What the user does.
    pub action: UserAction,
    /// What the user says: a JSON object that the question's schema allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<RawValueEq>,
}

impl UserAnswer {
    /// An answer without words.
    #[must_use]
    pub fn wordless(action: UserAction) -> Self {
        Self { action, content: None }
    }
}

impl fmt::Debug for UserAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserAnswer").field("action", &self.action).finish_non_exhaustive()
    }
}

/// What became of a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolvedQuestion {
    /// The question.
    pub id: String,
    /// The step whose call asked.
    pub step: u32,
    /// The call.
    pub call_id: CallId,
    /// The tool.
    pub name: String,
    /// What the tool is told.
    pub answer: UserAnswer,
    /// The name of the key of the caller who answered; `None` where no keys are declared, and if no user answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why no user answered; `None` if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unanswered: Option<Unanswered>,
}

/// Why no user answered a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unanswered {
    /// Its time ran out.
    Expired,
    /// The call ended before.
    CallEnded,
    /// The run stopped.
    RunStopped,
    /// The replica that drives the run is about to end.
    Shutdown,
}

impl Unanswered {
    /// The reason as it is written on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::CallEnded => "call_ended",
            Self::RunStopped => "run_stopped",
            Self::Shutdown => "shutdown",
        }
    }

    /// What the tool is told: a user who said nothing in time did not want to.
    #[must_use]
    pub fn answer(self) -> UserAnswer {
        UserAnswer::wordless(match self {
            Self::Expired => UserAction::Decline,
            Self::CallEnded | Self::RunStopped | Self::Shutdown => UserAction::Cancel,
        })
    }
}
