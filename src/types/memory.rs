//! What an agent remembers, of whom, and what of it a model is shown.

use serde::{Deserialize, Serialize};

use crate::types::json::is_default;

/// Longest user, in bytes.
pub const MOST_USER: usize = 4_096;
/// Most passages of a memory that a model is shown at the begin of a run.
pub const MOST_RECALLED: u32 = 50;
/// Most characters of them.
pub const MOST_RECALLED_CHARS: u32 = 32_000;

/// What has a memory of its own within a tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryScope {
    /// Each user of each agent; requests without a user share one of the agent's.
    #[default]
    AgentAndUser,
    /// Each user, whatever the agent; requests without a user share one of the agent's.
    User,
    /// Each agent, whoever the user is.
    Agent,
}

/// Which memory a run has, and what of it its model is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryRules {
    /// Whose it is.
    pub scope: MemoryScope,
    /// Whether passages that fit what the user says are shown.
    #[serde(skip_serializing_if = "is_default")]
    pub recalls: bool,
    /// Most of them.
    pub most: u32,
    /// Most characters of them.
    pub most_chars: u32,
}

impl Default for MemoryRules {
    fn default() -> Self {
        Self { scope: MemoryScope::default(), recalls: false, most: 5, most_chars: 2_000 }
    }
}

/// Most files that a model is told.
pub const MOST_FILES: usize = 16;

/// Which files of an agent its model is told from the start, in this order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentFiles {
    /// Those that are the same for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<String>,
    /// Those of which each user has a copy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub of_user: Vec<String>,
}

/// The tools by which models use what is remembered.
pub const MEMORY_TOOLS: [&str; 4] = ["memory_delete", "memory_read", "memory_search", MEMORY_WRITE];
/// The one that writes notes.
pub const MEMORY_WRITE: &str = "memory_write";
