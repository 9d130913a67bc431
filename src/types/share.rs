//! Limits that runs share with others of their agent, or of their user, beside those of their key.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How many runs may be under way at once, as it was when a run was accepted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunsAtOnce {
    /// Those of its agent; `None` for any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_agent: Option<u32>,
    /// Those of its user with its key; `None` for any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_user: Option<u32>,
}

/// Whose runs share a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sharing {
    /// Those of this agent.
    Agent(String),
    /// Those of this user with one key.
    User(String),
    /// Those with one key that name no user.
    NoUser,
}

impl fmt::Display for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent(name) => write!(f, "the agent {name:?}"),
            Self::User(name) => write!(f, "the user {name:?} of this key"),
            Self::NoUser => write!(f, "all requests with this key that name no user, together,"),
        }
    }
}
