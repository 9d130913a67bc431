//! What is stored of a tenant's agents, and how it changes. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::types::Expected;
use crate::types::json::is_default;

/// Most agents of a tenant.
pub const MOST_AGENTS: usize = 200;
/// Most agents of a tenant that were deleted and are still kept.
pub const MOST_DELETED: usize = 200;
/// The longest settings of an agent, in bytes of JSON.
pub const LONGEST_SETTINGS: usize = 64 << 10;
/// Most versions of an agent that are kept, the newest among them.
pub const MOST_VERSIONS: usize = 20;
/// How long the versions of an agent are kept that was deleted.
pub const KEPT_DELETED_MS: u64 = 30 * 24 * 3_600 * 1_000;
/// How many deleted agents one change forgets at most, as all it does is one commit.
const FORGOTTEN_AT_ONCE: usize = 4;

/// A version of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredAgent {
    /// Its name.
    pub name: String,
    /// Its number: greater than that of every change before it of any agent of the tenant.
    pub version: u64,
    /// When it was made, Unix milliseconds.
    pub changed_ms: u64,
    /// The name of the key that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_by: Option<String>,
    /// The keys of `[agents.NAME]` that it has; `None` if this version is its deletion.
    pub settings: Option<Map<String, Value>>,
}

/// What the index says of an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The numbers of its versions, the newest last.
    pub versions: Vec<u64>,
    /// When the newest was made, Unix milliseconds.
    pub changed_ms: u64,
    /// Whether the newest is its deletion.
    #[serde(default, skip_serializing_if = "is_default")]
    pub deleted: bool,
}

/// The agents of a tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    /// The number of the newest version of any.
    last: u64,
    agents: BTreeMap<String, Entry>,
}

/// A change of an agent, as the store is to make it.
#[derive(Debug, PartialEq)]
pub struct Change {
    /// The index after it.
    pub index: Index,
    /// The version that it makes.
    pub made: StoredAgent,
    /// Versions that the store drops with the change, by agent.
    pub forgotten: Vec<(String, u64)>,
}

/// Why an agent is not changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// There is no agent of this name.
    Missing,
    /// It has another version, or is there, or is not, against what was expected.
    OtherVersion(Option<u64>),
    /// There are as many agents as there may be.
    TooMany,
}

impl Index {
    /// The number of an agent's version; `None` if there is no such agent.
    #[must_use]
    pub fn version(&self, name: &str) -> Option<u64> {
        let entry = self.agents.get(name).filter(|entry| !entry.deleted)?;
        entry.versions.last().copied()
    }

    /// Whether it has changes that the other one lacks.
    #[must_use]
    pub fn is_newer_than(&self, other: &Self) -> bool {
        self.last > other.last
    }

    /// The agents that there are, by name.
    pub fn agents(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.agents.iter().filter(|(_, entry)| !entry.deleted).map(|(name, entry)| (name.as_str(), entry))
    }

    /// The numbers of an agent's versions, the newest last, also if it was deleted.
    #[must_use]
    pub fn versions(&self, name: &str) -> &[u64] {
        self.agents.get(name).map_or(&[], |entry| &entry.versions)
    }

    /// Whether an agent is as a request expects it.
    pub fn check(&self, name: &str, expected: Expected) -> Result<(), Refused> {
        let version = self.version(name);
        if expected.holds(version) {
            return Ok(());
        }
        Err(if expected == Expected::Something { Refused::Missing } else { Refused::OtherVersion(version) })
    }

    /// Gives an agent these settings, or deletes it.
    pub fn change(
        &self,
        name: &str,
        settings: Option<Map<String, Value>>,
        now_ms: u64,
        changed_by: Option<&str>,
    ) -> Result<Change, Refused> {
        if settings.is_none() && self.version(name).is_none() {
            return Err(Refused::Missing);
        }
        if settings.is_some() && self.version(name).is_none() && self.agents().count() >= MOST_AGENTS {
            return Err(Refused::TooMany);
        }
        let mut index = self.clone();
        let mut forgotten = index.forget_deleted(name, now_ms);
        index.last += 1;
        let entry = index.agents.entry(name.to_owned()).or_default();
        entry.versions.push(index.last);
        (entry.changed_ms, entry.deleted) = (now_ms, settings.is_none());
        if entry.versions.len() > MOST_VERSIONS {
            forgotten.push((name.to_owned(), entry.versions.remove(0)));
        }
        let made = StoredAgent {
            name: name.to_owned(),
            version: index.last,
            changed_ms: now_ms,
            changed_by: changed_by.map(str::to_owned),
            settings,
        };
        Ok(Change { index, made, forgotten })
    }

    /// Takes out agents that were deleted long ago, or before as many others as are kept, but the one of this name.
    fn forget_deleted(&mut self, but: &str, now_ms: u64) -> Vec<(String, u64)> {
        let deleted = self.agents.iter().filter(|(name, entry)| name.as_str() != but && entry.deleted);
        let mut deleted: Vec<_> = deleted.map(|(name, entry)| (entry.changed_ms, name.clone())).collect();
        deleted.sort_unstable();
        let surplus = deleted.len().saturating_sub(MOST_DELETED);
        let old = deleted.into_iter().enumerate().filter(|(place, (changed_ms, _))| {
            *place < surplus || changed_ms.saturating_add(KEPT_DELETED_MS) <= now_ms
        });
        let names: Vec<String> = old.map(|(_, (_, name))| name).take(FORGOTTEN_AT_ONCE).collect();
        let entries = names.into_iter().filter_map(|name| self.agents.remove_entry(&name));
        entries
            .flat_map(|(name, entry)| entry.versions.into_iter().map(move |version| (name.clone(), version)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn settings(system: &str) -> Map<String, Value> {
        Map::from_iter([("system".to_owned(), system.into())])
    }

    fn changed(index: &Index, name: &str, settings: Option<Map<String, Value>>, now_ms: u64) -> Change {
        index.change(name, settings, now_ms, None).unwrap()
    }

    #[test]
    fn versions_grow_and_only_the_newest_are_kept() {
        let mut index = Index::default();
        for number in 1..=25 {
            let change = changed(&index, "clerk", Some(settings("x")), number);
            assert_eq!(change.made.version, number);
            let oldest = number.checked_sub(MOST_VERSIONS as u64).filter(|oldest| *oldest > 0);
            assert_eq!(
                change.forgotten,
                oldest.map(|oldest| ("clerk".to_owned(), oldest)).into_iter().collect::<Vec<_>>()
            );
            index = change.index;
        }
        assert_eq!((index.versions("clerk").len(), index.version("clerk")), (MOST_VERSIONS, Some(25)));
    }

    #[test]
    fn a_deleted_agent_keeps_its_versions_for_a_while_and_its_numbers_for_ever() {
        let index = changed(&Index::default(), "clerk", Some(settings("x")), 1).index;
        let index = changed(&index, "clerk", None, 2).index;
        assert_eq!((index.version("clerk"), index.versions("clerk")), (None, &[1, 2][..]));
        assert_eq!(index.change("clerk", None, 3, None).unwrap_err(), Refused::Missing);
        let soon = changed(&index, "other", Some(settings("x")), 2 + KEPT_DELETED_MS - 1);
        assert_eq!((soon.forgotten, soon.made.version), (vec![], 3));
        let late = changed(&index, "other", Some(settings("x")), 2 + KEPT_DELETED_MS);
        assert_eq!(late.forgotten, [("clerk".to_owned(), 1), ("clerk".to_owned(), 2)]);
        let again = changed(&late.index, "clerk", Some(settings("x")), 9);
        assert_eq!((again.made.version, again.index.versions("clerk")), (4, &[4][..]));
    }

    #[test]
    fn what_is_made_and_deleted_again_and_again_does_not_pile_up() {
        let (mut index, mut kept) = (Index::default(), BTreeSet::new());
        for number in 0..3 * MOST_DELETED as u64 {
            let name = format!("build{number}");
            for settings in [Some(settings("x")), None] {
                let change = changed(&index, &name, settings, number);
                kept.insert((name.clone(), change.made.version));
                for forgotten in &change.forgotten {
                    assert!(kept.remove(forgotten), "{forgotten:?} is forgotten once");
                }
                index = change.index;
            }
            assert!(index.agents.len() <= MOST_DELETED + 2, "{}", index.agents.len());
        }
        let listed =
            index.agents.iter().flat_map(|(name, entry)| entry.versions.iter().map(|one| (name.clone(), *one)));
        assert_eq!(listed.collect::<BTreeSet<_>>(), kept, "no version is left behind in the store");
    }

    #[test]
    fn what_is_expected_is_compared_with_what_is_there() {
        let index = changed(&Index::default(), "clerk", Some(settings("x")), 1).index;
        for (name, expected, found) in [
            ("clerk", Expected::Anything, Ok(())),
            ("clerk", Expected::Version(1), Ok(())),
            ("clerk", Expected::Version(2), Err(Refused::OtherVersion(Some(1)))),
            ("clerk", Expected::Nothing, Err(Refused::OtherVersion(Some(1)))),
            ("other", Expected::Nothing, Ok(())),
            ("other", Expected::Something, Err(Refused::Missing)),
            ("other", Expected::Version(1), Err(Refused::OtherVersion(None))),
        ] {
            assert_eq!(index.check(name, expected), found, "{name} {expected:?}");
        }
    }

    #[test]
    fn there_are_so_many_agents_at_most() {
        let index = (0..MOST_AGENTS).fold(Index::default(), |index, number| {
            changed(&index, &format!("agent{number}"), Some(settings("x")), 1).index
        });
        assert_eq!(index.change("more", Some(settings("x")), 2, None).unwrap_err(), Refused::TooMany);
        assert!(index.change("agent0", Some(settings("y")), 2, None).is_ok());
        let index = changed(&index, "agent0", None, 3).index;
        assert!(index.change("more", Some(settings("x")), 4, None).is_ok());
    }
}
