//! Where runs are counted that are under way at once: those of a key, of an agent and of a user.

use sha2::{Digest as _, Sha256};

use super::named;
use crate::config::key::to_hex;
use crate::store::{Key, Partition};
use crate::types::{RunId, Tenant};

/// The partition of what counts the runs of a tenant by agent and by user. A run has one slot there for both, which changes with the
/// counters in one commit.
pub fn shares_partition(tenant: &Tenant) -> Partition {
    Partition::new(named(&[tenant.as_str(), "/shares"]))
}

/// What counts the runs of an agent.
pub fn agent_share(agent: &str) -> Key {
    named(&["agent/", agent])
}

/// What counts the runs of a user of a key, or of those that name none. A name may be of any length and of any characters.
pub fn user_share(key_name: &str, user: Option<&str>) -> Key {
    let Some(user) = user else { return named(&["nobody/", key_name]) };
    named(&["user/", key_name, "/", &to_hex(&Sha256::digest(user).into())])
}

/// A run's slot among those that its key may have at once.
pub fn slot(run: &RunId) -> Key {
    named(&[SLOTS, run.as_str()])
}

/// What the keys of slots begin with.
pub const SLOTS: &str = "live/";

/// How many slots of a key are taken.
pub fn slots_taken() -> Key {
    "live".into()
}
