//! `[memory]` and `[agents.NAME.memory]`: what agents remember.

use toml::Spanned;
use toml::de::DeValue;

use super::quantity::Size;
use super::reader::Section;
use super::value::{FromToml, Misread, Word, whole};
use crate::types::memory::{MOST_RECALLED, MOST_RECALLED_CHARS, MemoryRules, MemoryScope};

/// How much each memory may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryConfig {
    /// Most bytes of all notes together.
    pub quota: u64,
    /// Most notes.
    pub max_documents: u32,
    /// Most bytes of a note.
    pub max_document: u64,
}

/// Most notes that a memory can be given: a search reads all of them.
const MOST_DOCUMENTS: u32 = 10_000;
/// Most bytes that a memory can be given.
const MOST_QUOTA: u64 = 16 << 20;

impl Default for MemoryConfig {
    fn default() -> Self {
        Self { quota: 256 << 10, max_documents: 200, max_document: 32 << 10 }
    }
}

impl MemoryConfig {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let usual = Self::default();
        let Size(quota) = section.key(
            "quota",
            "Most bytes that the notes of a memory have together, at most 16 MiB: a search reads all of them.",
            Size(usual.quota),
        );
        if quota > MOST_QUOTA {
            section.refuse("quota", "must be at most 16 MiB");
        }
        let UpTo::<MOST_DOCUMENTS>(max_documents) =
            section.key("max_documents", "Most notes of a memory.", UpTo::<MOST_DOCUMENTS>(usual.max_documents));
        let Size(max_document) = section.key("max_document", "Most bytes of a note.", Size(usual.max_document));
        Self { quota, max_documents, max_document }
    }
}

impl Word for MemoryScope {
    const WORDS: &'static [(&'static str, Self)] =
        &[("agent_and_user", Self::AgentAndUser), ("user", Self::User), ("agent", Self::Agent)];
}

/// Reads an agent's rules, which inherits those of `parent`.
pub(super) fn rules(section: &mut Section<'_>, parent: &MemoryRules) -> MemoryRules {
    let scope = section.key(
        "scope",
        "What has a memory of its own: each user of the agent (`agent_and_user`), each `user` whatever the agent, or each `agent`. Users \
         are what requests name in `user`; requests without one share a memory of the agent's.",
        parent.scope,
    );
    let recalls = section.key(
        "recall",
        "Whether the model is shown passages of its memory that fit what the user says.",
        parent.recalls,
    );
    let UpTo::<MOST_RECALLED>(most) =
        section.key("recall_passages", "Most passages that it is shown.", UpTo::<MOST_RECALLED>(parent.most));
    let UpTo::<MOST_RECALLED_CHARS>(most_chars) =
        section.key("recall_chars", "Most characters of them.", UpTo::<MOST_RECALLED_CHARS>(parent.most_chars));
    MemoryRules { scope, recalls, most, most_chars }
}

/// What is wrong where an agent recalls what it cannot keep.
pub(super) const UNDECLARED: &str = "declare [memory] to have agents remember anything";

/// Refuses agents that are to be shown what nothing remembers.
pub(super) fn check<'a>(root: &Section<'_>, agents: impl IntoIterator<Item = (&'a String, MemoryRules)>) {
    if root.is_written("memory") {
        return;
    }
    if let Some((name, _)) = agents.into_iter().find(|(_, rules)| rules.recalls) {
        root.refuse_outside(&format!("agents.{name}.memory.recall"), UNDECLARED);
    }
}

/// An integer from 1 to this.
struct UpTo<const MOST: u32>(u32);

impl<const MOST: u32> FromToml for UpTo<MOST> {
    fn form() -> String {
        format!("integer up to {MOST}")
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        whole(value, MOST).map(Self)
    }

    fn show(&self) -> String {
        self.0.to_string()
    }
}
