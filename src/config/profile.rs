//! Profiles: the numbers of known agent loops, from which an agent can start. Each is a file of an agent's settings.

use toml::de::DeTable;

use super::agent::AgentConfig;
use super::known_tools::KnownTools;
use super::reader::Section;
use super::report::Report;
use super::upstream::Upstream;
use super::value::Word;
use crate::types::guard::InputMode;

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

    fn text(self) -> &'static str {
        match self {
            Self::Klaw => include_str!("profiles/klaw.toml"),
            Self::Sdk => include_str!("profiles/sdk.toml"),
            Self::Zeptoclaw => include_str!("profiles/zeptoclaw.toml"),
            Self::Goclaw => include_str!("profiles/goclaw.toml"),
            Self::Claw => include_str!("profiles/claw.toml"),
        }
    }

    /// An agent of this name that sets what the profile does, and inherits the rest.
    pub(super) fn agent(
        self,
        name: &str,
        parent: Option<&AgentConfig>,
        upstreams: &[Upstream],
        known_tools: &KnownTools,
        input_guard: InputMode,
    ) -> AgentConfig {
        let (document, _) = DeTable::parse_recoverable(self.text());
        // What is wrong with the agent is said of its own section.
        let report = Report::new("", self.text(), &|_| None);
        Section::read_root(&report, Some(document.get_ref()), |section| {
            AgentConfig::read(name, section, parent, upstreams, known_tools, input_guard)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_hold_settings_of_agents_and_nothing_else() {
        for (word, profile) in Profile::WORDS {
            let (document, mistakes) = DeTable::parse_recoverable(profile.text());
            assert!(mistakes.is_empty(), "{word}: {mistakes:?}");
            let report = Report::new("", profile.text(), &|_| None);
            Section::read_root(&report, Some(document.get_ref()), |section| {
                AgentConfig::read("default", section, None, &[], &KnownTools::default(), InputMode::Warn)
            });
            report.into_values().unwrap_or_else(|mistakes| panic!("{word}: {mistakes}"));
        }
    }
}
