//! What happens to what clients say.

use serde::{Deserialize, Serialize};

/// The longest message of a user, in characters, if nothing else is said.
pub const MAX_MESSAGE_CHARS: u32 = 32_768;

/// What happens to a message that looks like an attempt to instruct the model in the operator's place. The later, the
/// stricter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InputMode {
    /// Nothing looks for it.
    Off,
    /// The log tells of it.
    Log,
    /// The log warns of it.
    #[default]
    Warn,
    /// The request is refused before anything else happens.
    Block,
}

impl InputMode {
    /// Its name in the configuration and on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Log => "log",
            Self::Warn => "warn",
            Self::Block => "block",
        }
    }
}

/// What such an attempt looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputPattern {
    /// "Ignore all previous instructions."
    IgnoreInstructions,
    /// "You are now …", "pretend to be …"
    RoleOverride,
    /// Markers by which chat templates tell who speaks.
    SystemTags,
    /// "New instructions:", "override:", "system prompt:"
    InstructionInjection,
    /// A character NUL, as such or escaped.
    NullBytes,
    /// "End of system", and tags that close instructions.
    DelimiterEscape,
}

impl InputPattern {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::IgnoreInstructions,
        Self::RoleOverride,
        Self::SystemTags,
        Self::InstructionInjection,
        Self::NullBytes,
        Self::DelimiterEscape,
    ];

    /// What it looks like, in words.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            Self::IgnoreInstructions => "it asks to ignore earlier instructions",
            Self::RoleOverride => "it gives the model another role",
            Self::SystemTags => "it has markers by which chat templates tell who speaks",
            Self::InstructionInjection => "it announces instructions",
            Self::NullBytes => "it has a character NUL",
            Self::DelimiterEscape => "it ends what surrounds it in a prompt",
        }
    }

    /// Its name on the wire, in logs and in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::IgnoreInstructions => "ignore_instructions",
            Self::RoleOverride => "role_override",
            Self::SystemTags => "system_tags",
            Self::InstructionInjection => "instruction_injection",
            Self::NullBytes => "null_bytes",
            Self::DelimiterEscape => "delimiter_escape",
        }
    }
}
