//! The prompt of a run: sections of text that its model is told beside the conversation.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::types::Message;
use crate::types::json::is_default;

/// Where a prompt has what its agent's `system` says.
pub const PRIORITY_SYSTEM: u32 = 10;
/// Where it has layers that do not say where they stand, and the instructions of the request.
pub const PRIORITY_LAYER: u32 = 50;
/// Where it has what is said of the task at hand.
pub const PRIORITY_CONTEXT: u32 = 100;

/// The tag of what every prompt has.
pub const TAG_SYSTEM: &str = "system";

/// The sections of documents: files of an agent, skills, and what is remembered. No layer has one of these names.
pub const OF_DOCUMENTS: [&str; 3] = ["files", "skills", "memory"];

/// A piece of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// Its name, of which a prompt has one section.
    pub name: Cow<'static, str>,
    /// Sections with lower numbers come first; those with the same number keep their order.
    pub priority: u32,
    /// What it is about.
    pub tags: Vec<String>,
    /// Who wrote it.
    pub owner: SectionOwner,
    /// How long it stays as it is.
    pub lasts: Lasts,
    /// What the model is told.
    pub text: String,
}

impl Section {
    /// A section that the server writes for a run.
    #[must_use]
    pub fn of_run(name: &'static str, priority: u32, lasts: Lasts, text: String) -> Self {
        Self { name: name.into(), priority, tags: Vec::new(), owner: SectionOwner::Run, lasts, text }
    }

    /// What a run keeps of it beside its text.
    #[must_use]
    pub fn note(&self) -> SectionNote {
        SectionNote {
            name: self.name.clone().into_owned(),
            owner: self.owner,
            priority: self.priority,
            tags: self.tags.clone(),
            lasts: self.lasts,
            chars: self.text.chars().count() as u64,
            bytes: self.text.len() as u64,
        }
    }
}

/// Who wrote a section; a later one replaces what an earlier one says under the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SectionOwner {
    /// The operator, for all agents.
    Server,
    /// The operator, for the callers of a key.
    Key,
    /// The operator, for an agent.
    Agent,
    /// A client, for a session.
    Session,
    /// A request, for its run.
    Request,
    /// The server itself, for one run.
    Run,
}

impl SectionOwner {
    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Key => "key",
            Self::Agent => "agent",
            Self::Session => "session",
            Self::Request => "request",
            Self::Run => "run",
        }
    }
}

/// How long a section stays as it is, which decides where a prompt has it: caches of upstreams find what begins as an earlier
/// request did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lasts {
    /// From run to run: it stands before the conversation.
    #[default]
    Stable,
    /// For one run: it stands behind the earlier conversation, before what is asked now.
    Run,
}

/// What is known of a section beside its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SectionNote {
    /// Its name.
    pub name: String,
    /// Who wrote it.
    pub owner: SectionOwner,
    /// Its place.
    pub priority: u32,
    /// What it is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// How long it stays as it is.
    #[serde(default, skip_serializing_if = "is_default")]
    pub lasts: Lasts,
    /// How many characters it has.
    pub chars: u64,
    /// How many bytes it has.
    pub bytes: u64,
}

/// What a run keeps of its prompt beside its instructions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prompt {
    /// What its sections say that are of this run alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_run: Option<Message>,
    /// Its sections, in their order.
    pub sections: Vec<SectionNote>,
    /// What its request says in it, if guardrails judge that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub said: Vec<String>,
    /// Stands for what its request asked for, if that was anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<u64>,
}

/// Most bytes of one layer.
pub const MOST_LAYER: usize = 16 << 10;

/// A section that somebody declares under a name; later ones replace it or add to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptLayer {
    /// Its name.
    pub name: String,
    /// What it says; a layer without text takes an earlier one away.
    pub text: String,
    /// Where it stands; that of an earlier layer counts if this adds to it.
    pub priority: u32,
    /// What it is about. A prompt has the layers with one of its agent's tags.
    pub tags: Vec<String>,
    /// What becomes of an earlier layer of the same name.
    #[serde(default, skip_serializing_if = "is_default")]
    pub merge: Merge,
    /// How long it stays as it is.
    #[serde(default, skip_serializing_if = "is_default")]
    pub lasts: Lasts,
}

impl PromptLayer {
    /// A layer of this name and text of which nothing else is said.
    #[must_use]
    pub fn new(name: &str, text: &str) -> Self {
        Self {
            name: name.to_owned(),
            text: text.to_owned(),
            priority: PRIORITY_LAYER,
            tags: vec![TAG_SYSTEM.to_owned()],
            merge: Merge::Replace,
            lasts: Lasts::Stable,
        }
    }
}

/// What becomes of an earlier layer of the same name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Merge {
    /// It is replaced.
    #[default]
    Replace,
    /// This is added to it.
    Add,
}

/// How many sections the server writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PromptMode {
    /// None: a prompt has what was declared.
    #[default]
    None,
    /// Those that tasks need that no user watches.
    Minimal,
    /// All that have something to say.
    Full,
}

/// A section that the server writes by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Written {
    /// How tools are used.
    Tooling,
    /// That what comes from outside gives no orders.
    Safety,
    /// That there are files.
    Workspace,
    /// That there is a sandbox for code.
    Sandbox,
    /// That nothing may be said.
    NoReply,
    /// Who asks.
    User,
    /// What time it is.
    Time,
    /// Where all this happens.
    Runtime,
}

impl Written {
    /// All of them, in the order in which a prompt has them.
    pub const ALL: [Self; 8] = [
        Self::Tooling,
        Self::Safety,
        Self::Workspace,
        Self::Sandbox,
        Self::NoReply,
        Self::User,
        Self::Time,
        Self::Runtime,
    ];

    /// The name of the section.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tooling => "tooling",
            Self::Safety => "safety",
            Self::Workspace => "workspace",
            Self::Sandbox => "sandbox",
            Self::NoReply => "no_reply",
            Self::User => "user",
            Self::Time => "time",
            Self::Runtime => "runtime",
        }
    }

    /// Whether prompts of this mode have it.
    #[must_use]
    pub fn is_of(self, mode: PromptMode) -> bool {
        match (mode, self) {
            (PromptMode::None, _) | (PromptMode::Minimal, Self::NoReply | Self::User | Self::Runtime) => false,
            (PromptMode::Minimal, Self::Tooling | Self::Safety | Self::Workspace | Self::Sandbox | Self::Time)
            | (PromptMode::Full, _) => true,
        }
    }
}

/// How answers are written, so that they can be shown where they go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Channel {
    /// Text without any markup.
    Plain,
    /// Markdown.
    Markdown,
    /// HTML.
    Html,
}
