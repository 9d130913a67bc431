//! What becomes of the definitions of tools that a server offers anew or changes.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::{DeString, DeValue};

use super::reader::Section;
use super::value::{FromToml, Misread, Word, text};

/// What becomes of definitions that are new or changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinPolicy {
    /// Of a tool that was never seen before.
    pub new_tools: OnDefinition,
    /// Of a tool whose definition is another one than that which was accepted.
    pub changed_tools: OnDefinition,
    /// The hashes of the definitions that count, by the server's own names of its tools. Nothing else decides about these tools.
    pub pins: BTreeMap<String, String>,
}

/// What becomes of a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDefinition {
    /// It counts from now on.
    Accept,
    /// It is held back until the operator accepts it.
    Hold,
}

impl Word for OnDefinition {
    const WORDS: &'static [(&'static str, Self)] = &[("accept", Self::Accept), ("hold", Self::Hold)];
}

impl Default for PinPolicy {
    fn default() -> Self {
        Self { new_tools: OnDefinition::Accept, changed_tools: OnDefinition::Hold, pins: BTreeMap::new() }
    }
}

impl PinPolicy {
    /// Reads what a server's section says of it.
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let by_default = Self::default();
        Self {
            new_tools: section.key(
                "new_tools",
                "What becomes of a tool that the server never offered before: `accept`, or `hold` until it is accepted with \
                 `loopgate tools accept`.",
                by_default.new_tools,
            ),
            changed_tools: section.key(
                "changed_tools",
                "The same of a tool whose name, description or parameters are not those that were accepted. Until then agents \
                 do not have it, because what a tool says of itself can have a model do other things.",
                by_default.changed_tools,
            ),
            pins: section
                .key(
                    "pins",
                    "Hashes of definitions by the server's own names of its tools, as `loopgate tools list` shows them: only \
                     this definition of the tool counts.",
                    Pins(BTreeMap::new()),
                )
                .0,
        }
    }
}

/// Hashes of definitions by the names of tools.
struct Pins(BTreeMap<String, String>);

impl FromToml for Pins {
    fn form() -> String {
        "table of hashes".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        let DeValue::Table(table) = value.get_ref() else {
            return Err(Misread::new(value, "must be a table of tools and hashes"));
        };
        let pin = |(name, hash): (&Spanned<DeString<'_>>, &Spanned<DeValue<'_>>)| {
            let text = text(hash, HASH)?;
            let is_hash = text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            let pin = (name.get_ref().to_string(), text.to_owned());
            if is_hash { Ok(pin) } else { Err(Misread::new(hash, format!("must be {HASH}"))) }
        };
        table.iter().map(pin).collect::<Result<_, _>>().map(Self)
    }

    fn show(&self) -> String {
        let pins: Vec<_> = self.0.iter().map(|(name, hash)| format!("{name:?} = \"{hash}\"")).collect();
        if pins.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", pins.join(", ")) }
    }
}

const HASH: &str = "the SHA-256 of a definition, 64 lower-case hex digits";
