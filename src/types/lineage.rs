//! From which run a run comes, and what it shares with the other runs of its tree.
//!
//! The runs that begin with one run and those that it has begun are a tree. Budgets of a run hold for all runs below it, so each run
//! knows the bounds of those above.

use serde::{Deserialize, Serialize};

use crate::types::usage::Micros;
use crate::types::{CallId, RunId, SessionId};

/// How a run came to begin another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Link {
    /// A model called the tool `delegate`, and is told what the run answers.
    Delegate,
}

/// The run that began another one, and waits for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// How it began it.
    pub link: Link,
    /// The run.
    pub run: RunId,
    /// Its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The call by which it did.
    pub call: CallId,
    /// The first run of the tree.
    pub root: RunId,
    /// How many runs are above the one that was begun.
    pub depth: u32,
    /// How many characters of the answer the parent is told.
    pub max_output_chars: u32,
}

/// What a run shares with the runs above and below it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    /// The budgets of the run and of those above it that hold for all that they have begun, the root's first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bounds: Vec<TreeBound>,
    /// The budgets of the root's session, which hold for the runs below the root too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionBound>,
    /// How many runs may stand above one.
    pub max_depth: u32,
    /// The agents that the key may use with which the root was begun; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_agents: Option<Vec<String>>,
}

impl Tree {
    /// Whether there is a budget of money among those of the runs above and of the root's session.
    #[must_use]
    pub fn has_cost_budget(&self) -> bool {
        self.bounds.iter().any(|bound| bound.cost.is_some())
            || self.session.as_ref().is_some_and(|session| session.cost.is_some())
    }
}

/// Budgets of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionBound {
    /// The session.
    pub session: SessionId,
    /// Most input and output tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Most money.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Micros>,
}

/// Budgets of a run that hold for it and all runs below it, counted in one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeBound {
    /// The run.
    pub run: RunId,
    /// Most input and output tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Most money.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Micros>,
    /// Most calls of server-side tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<u32>,
}

impl TreeBound {
    /// Whether it bounds anything.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.tokens.is_some() || self.cost.is_some() || self.tool_calls.is_some()
    }
}
