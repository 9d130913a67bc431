//! `delegates` and `[agents.NAME.delegation]`: to whom an agent delegates, and within which bounds.

use std::collections::HashSet;
use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

use super::reader::Section;
use super::value::{FromToml, Misread, PLAIN_NAME, Word, is_plain_name, text, whole};
use crate::types::delegate::{Delegation, TaskHistory};

/// Reads to whom an agent delegates, and within which bounds, which it inherits.
pub(super) fn read(section: &mut Section<'_>, parent: &Delegation) -> Delegation {
    let to: Vec<AgentName> = section.key(
        "delegates",
        "The agents that its model may have do a part of the work, each in a run of its own: with any, the model is offered \
         [`delegate`](delegation.md). No other agent inherits them.",
        Vec::new(),
    );
    let mut to: Vec<String> = to.into_iter().map(|AgentName(name)| name).collect();
    let mut known = HashSet::new();
    to.retain(|name| known.insert(name.clone()));
    section.section("delegation", |section| bounds(section, to, parent))
}

fn bounds(section: &mut Section<'_>, to: Vec<String>, parent: &Delegation) -> Delegation {
    let UpTo::<8>(max_depth) = section.key(
        "max_depth",
        "How many runs may stand above one, where a run of this agent is the first: with 1, those to whom it delegates delegate no \
         further.",
        UpTo(parent.max_depth),
    );
    let timeout = section.key(
        "timeout",
        "How long a run may take to which it delegates. It gets nine tenths of what is left of the delegating run's time if that is \
         less.",
        Duration::from_millis(parent.timeout_ms),
    );
    let UpTo::<1_000_000>(max_output_chars) = section.key(
        "max_output_chars",
        "How many characters of an answer its model is told.",
        UpTo(parent.max_output_chars),
    );
    let UpTo::<32>(max_concurrent) = section.key(
        "max_concurrent",
        "How many runs to which one of its runs delegates may be under way at once. Further calls wait.",
        UpTo(parent.max_concurrent),
    );
    let UpTo::<200>(max_iterations) = section.key(
        "max_iterations",
        "Most model calls of a run to which it delegates, beside that agent's own limit.",
        UpTo(parent.max_iterations),
    );
    let shows_events = section.key(
        "events",
        "Whether streams of its runs show all that happens in the runs to which they delegate; a request may ask for it otherwise.",
        parent.shows_events,
    );
    let history = section.key(
        "history",
        "What an agent sees to which its model delegates: `fresh` is its task alone, `fork` the conversation up to the request, and then \
         its task.",
        parent.history,
    );
    let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
    Delegation { to, max_depth, timeout_ms, max_output_chars, max_concurrent, max_iterations, shows_events, history }
}

/// An agent's name.
pub(super) struct AgentName(pub(super) String);

impl FromToml for AgentName {
    fn form() -> String {
        "agent name".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        let name = text(value, "the name of an agent")?;
        if is_plain_name(name) { Ok(Self(name.to_owned())) } else { Err(Misread::new(value, PLAIN_NAME)) }
    }

    fn show(&self) -> String {
        self.0.show()
    }
}

impl Word for TaskHistory {
    const WORDS: &'static [(&'static str, Self)] = &[("fresh", Self::Fresh), ("fork", Self::Fork)];
}

/// A number from 1 to `MOST`.
pub(super) struct UpTo<const MOST: u32>(pub(super) u32);

impl<const MOST: u32> FromToml for UpTo<MOST> {
    fn form() -> String {
        format!("integer up to {MOST}")
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        whole(value, MOST).map(Self)
    }

    fn show(&self) -> String {
        self.0.show()
    }
}
