//! Documents that people, operators and models write: which belong together, where they lie, and what they are.
//!
//! A collection lies in one partition: that of its user, if it has one, so that everything of a user is found together, or else
//! one of its agent. A head says how much there is; it changes with each of the documents, so its version tells whether anything
//! changed. It outlives the last of them for [`KEPT`]: what was read before can still be told from what is there now, and a call
//! that a crash interrupted is known to have been made.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::agent::ledger::keys;
use crate::config::key::to_hex;
use crate::store::{Key, Partition};
use crate::types::Tenant;

/// What a document takes beside its text, about.
const OVERHEAD: u64 = 512;

/// What a head and its entry in the index take beside the user's name and the changes that are known, about.
const FRAME: u64 = 512;
/// What a change takes by which it is known.
const CHANGE: u64 = 21;
/// Changes that are known to be made. One is looked for only after a crash, so a few of others may have come meanwhile.
const KNOWN: usize = 64;
/// How long a head is kept that has no documents.
pub(in crate::agent) const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// What documents are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// What an agent remembers.
    Memory,
    /// What agents of the tenant know how to do.
    Skills,
    /// What an agent is told from the start.
    Files,
}

impl Kind {
    /// The kind as keys have it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Skills => "skills",
            Self::Files => "files",
        }
    }
}

/// Documents that belong together, within a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Collection {
    /// What they are for.
    pub kind: Kind,
    /// The agent that they are of; `None` for all agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The user that they are about; `None` for all users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

impl Collection {
    /// Where it lies.
    #[must_use]
    pub fn partition(&self, tenant: &Tenant) -> Partition {
        match (&self.user, &self.agent) {
            (Some(user), _) => user_partition(tenant, user),
            (None, agent) => keys::documents_partition(tenant, agent.as_deref()),
        }
    }

    /// Its head.
    pub(in crate::agent) fn head(&self) -> Key {
        keys::collection(self.kind.as_str(), self.agent_or_all())
    }

    /// What the keys of its documents begin with.
    pub(in crate::agent) fn prefix(&self) -> String {
        keys::documents_of(self.kind.as_str(), self.agent_or_all())
    }

    /// A document of it.
    pub(in crate::agent) fn document(&self, name: &str) -> Key {
        [&*self.prefix(), name].concat().into()
    }

    /// The key of its entry in its tenant's index.
    pub(in crate::agent) fn entry_key(&self) -> Key {
        let user = self.user.as_deref().map(user_name).unwrap_or_default();
        keys::collection_entry(self.kind.as_str(), self.agent_or_all(), &user)
    }

    /// Its entry in its tenant's index, put at this time.
    pub(in crate::agent) fn entry(&self, put_ms: u64) -> CollectionEntry {
        CollectionEntry {
            kind: self.kind,
            agent: self.agent.clone(),
            user: self.user.as_deref().map(user_name),
            put_ms,
        }
    }

    /// No agent's name is empty.
    fn agent_or_all(&self) -> &str {
        self.agent.as_deref().unwrap_or_default()
    }
}

/// Where everything of a user lies.
pub fn user_partition(tenant: &Tenant, user: &str) -> Partition {
    keys::user_partition(tenant, &user_name(user))
}

/// A user's name in keys. Users are any text, of any length, and two have never the same name.
fn user_name(user: &str) -> String {
    to_hex(&Sha256::digest(user.as_bytes()).into())
}

/// What a tenant's index has of a collection. It does not name the user: it may outlive what is kept of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::agent) struct CollectionEntry {
    kind: Kind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    /// The user's name as keys have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    /// When it was put, Unix milliseconds.
    pub(in crate::agent) put_ms: u64,
}

impl CollectionEntry {
    /// Where the head of the collection is.
    pub(in crate::agent) fn head(&self, tenant: &Tenant) -> (Partition, Key) {
        let partition = match &self.user {
            Some(user) => keys::user_partition(tenant, user),
            None => keys::documents_partition(tenant, self.agent.as_deref()),
        };
        (partition, keys::collection(self.kind.as_str(), self.agent.as_deref().unwrap_or_default()))
    }
}

/// How much a collection has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectionHead {
    /// What it is; `None` once it has no documents.
    pub of: Option<Collection>,
    /// Random: one that takes the place of one that is gone has another.
    pub id: u64,
    /// How many documents.
    pub documents: u32,
    /// How many bytes their names and texts have.
    pub bytes: u64,
    /// The highest version of a document that was deleted. A new document begins above it, so no version comes again.
    #[serde(default)]
    pub floor: u64,
    /// The newest changes that are made once only, by what is left of their names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub made: Vec<u64>,
}

impl CollectionHead {
    /// How many bytes of the store it takes, about; nothing if it is not there.
    #[must_use]
    pub fn stored(&self) -> u64 {
        if self.id == 0 && self.of.is_none() {
            return 0;
        }
        let user = self.of.as_ref().and_then(|of| of.user.as_ref()).map_or(0, String::len);
        let own = FRAME + user as u64 + self.made.len() as u64 * CHANGE;
        self.bytes.saturating_add(u64::from(self.documents).saturating_mul(OVERHEAD)).saturating_add(own)
    }

    /// Whether the change of this name was made.
    #[must_use]
    pub fn has_made(&self, once: Option<&str>) -> bool {
        once.is_some_and(|once| self.made.contains(&short(once)))
    }

    /// The head once the change of this name is made.
    #[must_use]
    pub fn making(mut self, once: Option<&str>) -> Self {
        if let Some(once) = once {
            let older = self.made.len().saturating_sub(KNOWN - 1);
            self.made.drain(..older);
            self.made.push(short(once));
        }
        self
    }

    /// The head once a document of this version is deleted; it forgets whose it was with the last of them.
    #[must_use]
    pub fn without(self, version: u64) -> Self {
        let of = self.of.filter(|_| self.documents > 0);
        Self { of, floor: self.floor.max(version), ..self }
    }
}

/// What is left of the name of a change.
fn short(once: &str) -> u64 {
    Sha256::digest(once.as_bytes()).iter().take(8).fold(0, |sum, byte| (sum << 8) | u64::from(*byte))
}

/// A document.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredText {
    /// What it says.
    pub content: String,
    /// What it is for, in a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// When it was first written, Unix milliseconds.
    pub created_ms: u64,
    /// When it was last written.
    pub updated_ms: u64,
    /// Grows with every change.
    #[serde(default)]
    pub version: u64,
}

impl StoredText {
    /// How many bytes of a collection it takes under this name.
    #[must_use]
    pub fn bytes(&self, name: &str) -> u64 {
        (name.len() + self.content.len() + self.description.len()) as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn collection(agent: Option<&str>, user: Option<&str>) -> Collection {
        Collection { kind: Kind::Memory, agent: agent.map(Into::into), user: user.map(Into::into) }
    }

    #[test]
    fn a_head_knows_the_newest_changes_and_forgets_whose_it_was() {
        let of = collection(None, Some("ann"));
        let mut head = CollectionHead { of: Some(of), id: 1, documents: 1, ..CollectionHead::default() };
        for call in 0..70 {
            head = head.making(Some(&format!("call_{call}")));
        }
        assert_eq!(head.made.len(), KNOWN);
        assert!(head.has_made(Some("call_6")) && !head.has_made(Some("call_5")) && !head.has_made(None));
        let head = CollectionHead { documents: 0, ..head.clone() }.without(9).without(3);
        assert_eq!((&head.of, head.floor, head.has_made(Some("call_69"))), (&None, 9, true));
        assert_eq!((head.stored(), CollectionHead::default().stored()), (FRAME + KNOWN as u64 * CHANGE, 0));
    }

    proptest! {
        #[test]
        fn no_two_collections_lie_at_one_place(
            tenants in ["[a-z]{1,3}", "[a-z][a-z:.]{0,2}"], agents in [".?", "[a-z]{0,2}"], users in ["\\PC{0,4}", "\\PC{0,4}"],
        ) {
            let place = |tenant: &str, one: &Collection| {
                let tenant = Tenant::parse(tenant).unwrap();
                (one.partition(&tenant), one.head(), one.prefix())
            };
            let named = |agent: &str| (!agent.is_empty() && agent.is_ascii() && agent != "/").then(|| agent.to_owned());
            let mut all = Vec::new();
            for tenant in &tenants {
                for agent in agents.iter().map(|agent| named(agent)) {
                    for user in users.iter().map(Some).chain([None]) {
                        let one = collection(agent.as_deref(), user.map(String::as_str));
                        all.push((tenant.clone(), one));
                    }
                }
            }
            for (index, (tenant, one)) in all.iter().enumerate() {
                let own = format!("{tenant}/");
                let parsed = Tenant::parse(tenant).unwrap();
                prop_assert_eq!(one.entry(1).head(&parsed), (one.partition(&parsed), one.head()));
                prop_assert!(one.partition(&Tenant::parse(tenant).unwrap()).as_str().starts_with(&own));
                for (other_tenant, other) in &all[..index] {
                    let same = tenant == other_tenant && one == other;
                    prop_assert_eq!(place(tenant, one) == place(other_tenant, other), same);
                    prop_assert_eq!(one.entry_key() == other.entry_key(), one == other);
                }
            }
        }
    }
}
