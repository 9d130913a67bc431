//! Profiles: the numbers of known agent loops, from which an agent can start. Each is a file of an agent's settings.

use super::reader::Section;
use super::value::Word;

/// A known agent loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Profile {
    Klaw,
    Sdk,
    Zeptoclaw,
    Goclaw,
    Claw,
}

impl Word for Profile {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("klaw", Self::Klaw),
        ("sdk", Self::Sdk),
        ("zeptoclaw", Self::Zeptoclaw),
        ("goclaw", Self::Goclaw),
        ("claw", Self::Claw),
    ];
}

impl Profile {
    /// The profile that an agent starts from, if it says one.
    pub(super) fn read(section: &mut Section<'_>) -> Option<Self> {
        section.optional(
            "profile",
            "Known agent loop whose numbers the agent starts from, before what it inherits ([profiles](agents.md#profiles)). What it \
             sets itself goes before them.",
        )
    }

    /// Its settings, as TOML.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Klaw => include_str!("profiles/klaw.toml"),
            Self::Sdk => include_str!("profiles/sdk.toml"),
            Self::Zeptoclaw => include_str!("profiles/zeptoclaw.toml"),
            Self::Goclaw => include_str!("profiles/goclaw.toml"),
            Self::Claw => include_str!("profiles/claw.toml"),
        }
    }
}
