//! The names of what tenants keep beside runs and sessions: documents, agents and schedules.

use super::named;
use crate::store::{Key, Partition};
use crate::types::{ScheduleId, Tenant};

/// The partition of documents of an agent, or of those that all agents of a tenant have.
pub fn documents_partition(tenant: &Tenant, agent: Option<&str>) -> Partition {
    let agent = agent.unwrap_or_default();
    Partition::new(named(&[tenant.as_str(), "/documents/", agent]))
}

/// The partition of documents about a user, by what a user is called in keys.
pub fn user_partition(tenant: &Tenant, user: &str) -> Partition {
    Partition::new(named(&[tenant.as_str(), "/user/", user]))
}

/// The head of a collection of documents, in its partition.
pub fn collection(kind: &str, agent: &str) -> Key {
    named(&[COLLECTIONS, kind, "/", agent])
}

/// What the keys begin with of the documents of a collection.
pub fn documents_of(kind: &str, agent: &str) -> String {
    ["document/", kind, "/", agent, "/"].concat()
}

/// A collection's entry in its tenant's index.
pub fn collection_entry(kind: &str, agent: &str, user: &str) -> Key {
    named(&[COLLECTIONS, kind, "/", agent, "/", user])
}

/// What the keys of heads of collections and of their entries begin with.
pub const COLLECTIONS: &str = "collection/";

/// The partition of the agents that a tenant keeps.
pub fn agents_partition(tenant: &Tenant) -> Partition {
    Partition::new(named(&[tenant.as_str(), "/agents"]))
}

/// Which agents these are, and which versions of them are kept.
pub fn agents_index() -> Key {
    "index".into()
}

/// A version of an agent.
pub fn agent_version(name: &str, version: u64) -> Key {
    format!("version/{name}/{version}").into()
}

/// The partition of the schedules of a tenant.
pub fn schedules_partition(tenant: &Tenant) -> Partition {
    Partition::new(named(&[tenant.as_str(), "/schedules"]))
}

/// A schedule.
pub fn schedule(id: &ScheduleId) -> Key {
    named(&[SCHEDULES, id.as_str()])
}

/// What the keys of schedules begin with.
pub const SCHEDULES: &str = "schedule/";

/// How many schedules a tenant has.
pub fn schedules_count() -> Key {
    "schedules".into()
}

/// The lease of the replica that acts on a schedule.
pub fn schedule_lease(id: &ScheduleId) -> Key {
    named(&["firing/", id.as_str()])
}

/// The partition of what the keys of a tenant revoked of the tokens that they gave.
pub fn revocations_partition(tenant: &Tenant) -> Partition {
    Partition::new(named(&[tenant.as_str(), "/tokens"]))
}

/// What this key revoked.
pub fn revocations(key_name: &str) -> Key {
    named(&["revoked/", key_name])
}

/// The partition of the index of when schedules fire. No tenant can be named like it: their partitions have a second part.
pub fn due_schedules_partition() -> Partition {
    Partition::new("schedules")
}

/// An entry of that index. Texts of one length are in the order of their numbers.
pub fn due_schedule(at_ms: u64, tenant: &Tenant, id: &ScheduleId, entry: u64) -> Key {
    format!("{at_ms:020}/{tenant}/{id}/{entry:016x}").into()
}
