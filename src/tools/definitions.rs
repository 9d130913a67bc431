//! Which definitions of tools count that sources offer: those that were accepted, by their hashes.
//!
//! What a tool says of itself is put before a model, so a server that changes a definition could have the model do other
//! things than it was trusted with. Decides purely; what is accepted is kept elsewhere, so that all replicas know the same.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::config::{OnDefinition, PinPolicy};

/// What stands between the name of a source and that of its tool.
pub const SEPARATOR: &str = "__";

/// The own name that a tool of this name has at the source, if it may be one of the source's.
#[must_use]
pub fn own_name<'t>(source: &str, tool: &'t str) -> Option<&'t str> {
    tool.strip_prefix(source)?.strip_prefix(SEPARATOR).filter(|own| !own.is_empty())
}

/// Most tools of one source that are remembered: beyond them, what is new is held back.
pub const MAX_KNOWN: usize = 8_192;

/// What is known of the tools of each source, by the source's name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Definitions(pub HashMap<String, KnownTools>);

/// What is known of the tools of one source, by their names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KnownTools(pub BTreeMap<String, KnownTool>);

/// What is known of a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownTool {
    /// The hash of the definition that counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<String>,
    /// The hashes of the definitions that are held back, the latest last. Replicas may be offered different ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<String>,
    /// The hashes of definitions that counted before, where changes are accepted by themselves, the latest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former: Vec<String>,
    /// The day on which its source offered it, within a week, counted from 1970.
    #[serde(default)]
    pub seen: u64,
}

/// Most definitions of a tool that are remembered as held back, and most that counted before.
const MAX_REMEMBERED: usize = 4;

/// How many days what is known of a tool is kept that its source offers no more. A source cannot have it forgotten sooner.
pub const KEPT_DAYS: u64 = 90;
/// How many days may pass before it is noted that a tool is still offered: each note is a write.
const NOTED_AFTER_DAYS: u64 = 7;

/// Why a definition does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldBecause {
    /// No definition of the tool was accepted yet.
    New,
    /// Another definition was accepted.
    Changed,
    /// The configuration names another one.
    NotPinned,
}

impl HeldBecause {
    /// The reason as it is written on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Changed => "changed",
            Self::NotPinned => "not_pinned",
        }
    }
}

/// Whether a definition counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Agents have the tool as it is defined so.
    Counts,
    /// Agents do not have the tool until the definition is accepted.
    Held(HeldBecause),
    /// What was accepted of the source has not been read yet.
    Unknown,
}

impl Definitions {
    /// Whether the definition with this hash counts that a source has of a tool.
    #[must_use]
    pub fn standing(&self, policy: &PinPolicy, source: &str, name: &str, hash: &str) -> Standing {
        if let Some(pinned) = pinned(policy, source, name) {
            return if pinned == hash { Standing::Counts } else { Standing::Held(HeldBecause::NotPinned) };
        }
        let Some(of_source) = self.0.get(source) else { return Standing::Unknown };
        let known = of_source.0.get(name);
        match known.and_then(|known| Some((known, known.accepted.as_deref()?))) {
            None => Standing::Held(HeldBecause::New),
            Some((_, accepted)) if accepted == hash => Standing::Counts,
            // Replicas may be offered different ones for a while, each of which was accepted.
            Some((known, _)) if policy.changed_tools == OnDefinition::Accept && contains(&known.former, hash) => {
                Standing::Counts
            }
            Some(_) => Standing::Held(HeldBecause::Changed),
        }
    }
}

impl KnownTools {
    /// What is to be known once a source offers these definitions today, each a name and a hash; `None` if it is known already.
    #[must_use]
    pub fn after<'a>(
        &self,
        policy: &PinPolicy,
        source: &str,
        offered: impl IntoIterator<Item = (&'a str, &'a str)>,
        today: u64,
    ) -> Option<Self> {
        let mut next = self.clone();
        next.0.values_mut().filter(|known| known.seen == 0).for_each(|known| known.seen = today);
        next.0.retain(|_, known| known.seen + KEPT_DAYS > today);
        for (name, hash) in offered {
            if pinned(policy, source, name).is_some() || (!next.0.contains_key(name) && next.0.len() >= MAX_KNOWN) {
                continue;
            }
            let known = next.0.entry(name.to_owned()).or_default();
            if known.seen + NOTED_AFTER_DAYS <= today {
                known.seen = today;
            }
            let on = if known.accepted.is_none() { policy.new_tools } else { policy.changed_tools };
            // What one replica is offered must not undo what another one was, or the two would do so in turns without end.
            if known.accepted.as_deref() == Some(hash) {
                continue;
            }
            if on == OnDefinition::Accept && (known.accepted.is_some() || known.held.is_empty()) {
                if !contains(&known.former, hash) {
                    known.accept(hash);
                }
            } else if !contains(&known.held, hash) {
                remember(&mut known.held, hash.to_owned());
            }
        }
        (next != *self).then_some(next)
    }

    /// Whether this definition of a tool counts already.
    #[must_use]
    pub fn has_accepted(&self, name: &str, hash: &str) -> bool {
        self.0.get(name).is_some_and(|known| known.accepted.as_deref() == Some(hash))
    }

    /// What is to be known once the operator accepts this definition of a tool; `None` if it is none that is held back.
    #[must_use]
    pub fn accepting(&self, name: &str, hash: &str) -> Option<Self> {
        let mut next = self.clone();
        next.0.get_mut(name).filter(|known| contains(&known.held, hash))?.accept(hash);
        Some(next)
    }
}

impl KnownTool {
    /// Has this definition count, and none be held back.
    fn accept(&mut self, hash: &str) {
        self.held.clear();
        self.former.retain(|former| former != hash);
        if let Some(before) = self.accepted.replace(hash.to_owned()) {
            remember(&mut self.former, before);
        }
    }
}

fn contains(hashes: &[String], hash: &str) -> bool {
    hashes.iter().any(|known| known == hash)
}

/// Adds what is latest; what is oldest makes room.
fn remember(hashes: &mut Vec<String>, hash: String) {
    hashes.push(hash);
    hashes.drain(..hashes.len().saturating_sub(MAX_REMEMBERED));
}

/// The hash that the configuration names for a tool.
fn pinned<'p>(policy: &'p PinPolicy, source: &str, name: &str) -> Option<&'p str> {
    policy.pins.get(own_name(source, name)?).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TODAY: u64 = 20_000;

    fn policy(new_tools: OnDefinition, changed_tools: OnDefinition) -> PinPolicy {
        PinPolicy { new_tools, changed_tools, ..PinPolicy::default() }
    }

    fn known(accepted: &str, held: &str) -> KnownTool {
        let some = |hash: &str| (!hash.is_empty()).then(|| hash.to_owned());
        KnownTool { accepted: some(accepted), held: some(held).into_iter().collect(), ..KnownTool::default() }
    }

    fn after(before: KnownTool, policy: &PinPolicy, hash: &str) -> KnownTool {
        let all = KnownTools([("s__t".to_owned(), before)].into());
        let next = all.after(policy, "s", [("s__t", hash)], TODAY).unwrap_or(all);
        KnownTool { former: Vec::new(), seen: 0, ..next.0["s__t"].clone() }
    }

    #[test]
    fn the_first_definition_counts_and_a_change_is_held_back() {
        let by_default = PinPolicy::default();
        assert_eq!(after(known("", ""), &by_default, "a"), known("a", ""));
        assert_eq!(after(known("a", ""), &by_default, "b"), known("a", "b"));
        let both = KnownTool { held: vec!["b".to_owned(), "c".to_owned()], ..known("a", "") };
        assert_eq!(after(known("a", "b"), &by_default, "c"), both);
        assert_eq!(after(known("a", "b"), &by_default, "a"), known("a", "b"), "another replica is offered the other");
    }

    #[test]
    fn the_policy_decides_what_is_accepted_by_itself() {
        use OnDefinition::{Accept, Hold};
        assert_eq!(after(known("", ""), &policy(Hold, Accept), "a"), known("", "a"));
        assert_eq!(
            after(known("", "a"), &policy(Accept, Hold), "a"),
            known("", "a"),
            "what was held is not let through"
        );
        assert_eq!(after(known("a", ""), &policy(Hold, Accept), "b"), known("b", ""));
    }

    #[test]
    fn replicas_that_are_offered_different_definitions_come_to_rest() {
        for changed_tools in [OnDefinition::Hold, OnDefinition::Accept] {
            let policy = policy(OnDefinition::Accept, changed_tools);
            let (mut all, mut changes) = (KnownTools::default(), 0);
            for hash in ["a", "b", "c"].into_iter().cycle().take(30) {
                if let Some(next) = all.after(&policy, "s", [("s__t", hash)], TODAY) {
                    (all, changes) = (next, changes + 1);
                }
            }
            assert_eq!(changes, 3, "{all:?}");
        }
    }

    #[test]
    fn only_what_is_held_back_can_be_accepted() {
        let all = KnownTools([("s__t".to_owned(), known("a", "b"))].into());
        assert_eq!(all.accepting("s__t", "c"), None, "it changed once more since it was looked at");
        assert_eq!(all.accepting("s__u", "b"), None);
        let accepted = KnownTool { former: vec!["a".to_owned()], ..known("b", "") };
        assert_eq!(all.accepting("s__t", "b").unwrap().0["s__t"], accepted);
    }

    #[test]
    fn what_the_configuration_pins_is_not_remembered_and_memory_is_bounded() {
        let pins = PinPolicy { pins: [("t".to_owned(), "a".to_owned())].into(), ..PinPolicy::default() };
        assert_eq!(KnownTools::default().after(&pins, "s", [("s__t", "b")], TODAY), None);
        let names: Vec<String> = (0..MAX_KNOWN + 5).map(|n| format!("s__{n}")).collect();
        let offered = names.iter().map(|name| (name.as_str(), "a"));
        let next = KnownTools::default().after(&PinPolicy::default(), "s", offered.clone(), TODAY).unwrap();
        assert_eq!((next.0.len(), next.after(&PinPolicy::default(), "s", offered, TODAY)), (MAX_KNOWN, None));
    }

    #[test]
    fn a_tool_that_is_long_gone_is_forgotten_and_no_sooner() {
        let (policy, both) = (PinPolicy::default(), [("s__t", "a"), ("s__u", "b")]);
        let all = KnownTools::default().after(&policy, "s", both, TODAY).unwrap();
        assert_eq!(all.after(&policy, "s", both, TODAY + 1), None, "not every day is noted");
        let noted = all.after(&policy, "s", [both[0]], TODAY + KEPT_DAYS - 1).unwrap();
        assert_eq!(noted.0.keys().collect::<Vec<_>>(), ["s__t", "s__u"]);
        let gone = noted.after(&policy, "s", [both[0]], TODAY + KEPT_DAYS).unwrap();
        assert_eq!(gone.0.keys().collect::<Vec<_>>(), ["s__t"]);
        let older = KnownTools([("s__t".to_owned(), known("a", ""))].into());
        assert_eq!(older.after(&policy, "s", [("s__u", "b")], TODAY).unwrap().0.len(), 2, "its day was never noted");
    }
}
