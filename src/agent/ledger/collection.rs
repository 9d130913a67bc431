//! Documents that people, operators and models write: which belong together, where they lie, and what they are.
//!
//! A collection lies in one partition: that of its user, if it has one, so that everything of a user is found together, or else
//! one of its agent. A head says how much there is; it changes with each of the documents, so its version tells whether anything
//! changed.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::agent::ledger::keys;
use crate::store::{Key, Partition};
use crate::types::Tenant;
use crate::types::json::is_default;

/// What a document takes beside its text, about.
const OVERHEAD: u64 = 512;

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
    /// The user whom they are about; `None` for all users.
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

    /// Its entry in its tenant's index.
    pub(in crate::agent) fn entry(&self) -> Key {
        let user = self.user.as_deref().map(user_name).unwrap_or_default();
        keys::collection_entry(self.kind.as_str(), self.agent_or_all(), &user)
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
    Sha256::digest(user.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// How much a collection has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectionHead {
    /// What it is.
    pub of: Option<Collection>,
    /// Random: one that takes the place of a deleted one has another.
    pub id: u64,
    /// How many documents.
    pub documents: u32,
    /// How many bytes their names and texts have.
    pub bytes: u64,
}

impl CollectionHead {
    /// How many bytes of the store it takes, about.
    #[must_use]
    pub fn stored(&self) -> u64 {
        self.bytes.saturating_add(u64::from(self.documents).saturating_mul(OVERHEAD))
    }
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
    /// The newest changes that are made once only, by the ids of who made them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub made_by: Vec<String>,
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
                prop_assert!(one.partition(&Tenant::parse(tenant).unwrap()).as_str().starts_with(&own));
                for (other_tenant, other) in &all[..index] {
                    let same = tenant == other_tenant && one == other;
                    prop_assert_eq!(place(tenant, one) == place(other_tenant, other), same);
                    prop_assert_eq!(one.entry() == other.entry(), one == other);
                }
            }
        }
    }
}
