//! What agents remember and know how to do, as resources.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::agent::documents::skills::Known;
use crate::agent::documents::{Change, Collection, Named};
use crate::api::wire::body::parse;
use crate::api::wire::error::{ErrorCode, WireError};
use crate::types::skill::{MAX_DESCRIPTION, MAX_INSTRUCTIONS};

/// A document of a memory.
#[derive(Debug, Serialize, ToSchema)]
pub struct MemoryDocument {
    /// `memory.document`.
    pub object: &'static str,
    /// `memory`, or `files` for a copy of an agent's file.
    pub kind: &'static str,
    /// Its name.
    #[schema(example = "preferences")]
    pub name: String,
    /// The agent whose memory it is in; null if it is one of all agents.
    pub agent: Option<String>,
    /// The user whom the memory is about; null if it is one of all users.
    pub user: Option<String>,
    /// What it says; left out in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// How long that is.
    pub bytes: u64,
    /// Grows with every change.
    pub version: u64,
    /// When it was first written, Unix milliseconds.
    pub created_ms: u64,
    /// When it was last written, Unix milliseconds.
    pub updated_ms: u64,
}

impl MemoryDocument {
    /// A document of this memory, with what it says if that is asked for.
    pub fn new(of: &Collection, Named { name, text, version }: Named, with_content: bool) -> Self {
        Self {
            object: "memory.document",
            kind: of.kind.as_str(),
            name,
            agent: of.agent.clone(),
            user: of.user.clone(),
            bytes: text.content.len() as u64,
            content: with_content.then_some(text.content),
            version,
            created_ms: text.created_ms,
            updated_ms: text.updated_ms,
        }
    }
}

/// Everything that is remembered of a user, or by an agent. A body that breaks off is incomplete.
#[derive(Debug, Serialize, ToSchema)]
pub struct MemoryExport {
    /// `memory.export`.
    pub object: &'static str,
    /// All documents, with what they say.
    pub documents: Vec<MemoryDocument>,
}

/// That memories were deleted.
#[derive(Debug, Serialize, ToSchema)]
pub struct MemoryDeletion {
    /// `memory`.
    pub object: &'static str,
    /// `true`.
    pub deleted: bool,
    /// How many documents there were.
    pub documents: u64,
}

/// What a document is to say. An unknown field is an error.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutMemory {
    /// What it says from now on.
    pub content: String,
    /// Write only if it still has this version; 0 if it must not be there.
    pub version: Option<u64>,
}

impl PutMemory {
    /// Reads the body.
    pub fn read(body: &str) -> Result<Self, WireError> {
        parse(body)
    }

    /// The change that it asks for.
    pub fn change(&self) -> Change<'_> {
        Change { content: &self.content, version: self.version, ..Change::default() }
    }
}

/// A skill.
#[derive(Debug, Serialize, ToSchema)]
pub struct SkillObject {
    /// `skill`.
    pub object: &'static str,
    /// Its name.
    #[schema(example = "release-notes")]
    pub name: String,
    /// What it is for.
    pub description: String,
    /// `operator`, or `tenant`.
    pub source: &'static str,
    /// The instructions; left out in lists, and of skills of the operator's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// Grows with every change; null for a skill of the operator's.
    pub version: Option<u64>,
}

impl SkillObject {
    /// A skill of the tenant's if it has a version, and else of the operator's.
    pub fn new(Known { name, description, instructions }: Known<'_>, version: Option<u64>, with_text: bool) -> Self {
        Self {
            object: "skill",
            name: name.to_owned(),
            description: description.to_owned(),
            source: if version.is_some() { "tenant" } else { "operator" },
            instructions: with_text.then(|| instructions.to_owned()),
            version,
        }
    }
}

/// What a skill is to be. An unknown field is an error.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutSkill {
    /// What it is for: when a model is to use it.
    #[schema(min_length = 1, max_length = 1024)]
    pub description: String,
    /// The instructions.
    #[schema(min_length = 1, max_length = 65_536)]
    pub instructions: String,
    /// Write only if it still has this version; 0 if it must not be there.
    pub version: Option<u64>,
}

impl PutSkill {
    /// Reads the body.
    pub fn read(body: &str) -> Result<Self, WireError> {
        let put: Self = parse(body)?;
        for (name, text, most) in
            [("description", &put.description, MAX_DESCRIPTION), ("instructions", &put.instructions, MAX_INSTRUCTIONS)]
        {
            if text.trim().is_empty() {
                return Err(WireError::invalid(name, "must not be empty"));
            }
            if text.len() > most {
                return Err(
                    WireError::new(ErrorCode::PayloadTooLarge, format!("must have at most {most} bytes")).at(name)
                );
            }
        }
        Ok(put)
    }

    /// The change that it asks for.
    pub fn change(&self) -> Change<'_> {
        Change {
            content: &self.instructions,
            description: Some(&self.description),
            version: self.version,
            ..Change::default()
        }
    }
}
