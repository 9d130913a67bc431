//! Where things lie in the store: the one place that names partitions and keys.
//!
//! A run lies in its session's partition, or in its own if it has none, so that what changes together
//! can change at once. Two indexes lead there: by tenant, newest run last, and over all tenants, by
//! replica, the runs that somebody must drive.

use crate::store::{Key, Partition, Topic};
use crate::types::{RunId, RunSpec, SessionId, Tenant};

/// The partition of a session and its runs.
pub fn session_partition(tenant: &Tenant, session: &SessionId) -> Partition {
    Partition::new(format!("{tenant}/session/{session}"))
}

/// The partition of a run.
pub fn run_partition(tenant: &Tenant, session: Option<&SessionId>, run: &RunId) -> Partition {
    match session {
        Some(session) => session_partition(tenant, session),
        None => Partition::new(format!("{tenant}/run/{run}")),
    }
}

/// The partition of `spec`'s run.
pub fn partition_of(spec: &RunSpec) -> Partition {
    run_partition(&spec.tenant, spec.session.as_ref(), &spec.id)
}

/// The partition of a tenant's indexes.
pub fn tenant_partition(tenant: &Tenant) -> Partition {
    Partition::new(format!("{tenant}/index"))
}

/// The partition of the index over runs that are to be driven. No tenant can be named like it: their
/// partitions have a second part.
pub fn live_partition() -> Partition {
    Partition::new("live")
}

/// A run's specification.
pub fn spec(run: &RunId) -> Key {
    format!("spec/{run}").into()
}

/// A run's head: where it stands.
pub fn head(run: &RunId) -> Key {
    format!("{HEADS}{run}").into()
}

/// What the keys of run heads begin with, in a run's partition.
pub const HEADS: &str = "run/";

/// A run's events.
pub fn events(run: &RunId) -> Key {
    format!("events/{run}").into()
}

/// What others leave for who drives a run.
pub fn mail(run: &RunId) -> Key {
    format!("mail/{run}").into()
}

/// The lease of who drives a run.
pub fn lease(run: &RunId) -> Key {
    format!("lease/{run}").into()
}

/// A run's entry in its tenant's index.
pub fn run_entry(run: &RunId) -> Key {
    format!("{RUNS}{run}").into()
}

/// A replica's document and its lease, in the partition of live runs.
pub fn replica(id: &str) -> Key {
    format!("{REPLICAS}{id}").into()
}

/// What the keys of replicas begin with.
pub const REPLICAS: &str = "replica/";

/// Stands for a replica where a run is nobody's.
pub const NOBODY: &str = "-";

/// What the keys of a replica's live runs begin with.
pub fn live_entries(replica: &str) -> String {
    format!("run/{replica}/")
}

/// The entry of a live run that this replica drives.
pub fn live_entry(replica: &str, run: &RunId) -> Key {
    format!("run/{replica}/{run}").into()
}

/// Nudged when a run is nobody's.
pub fn due_topic() -> Topic {
    Topic::new(live_partition(), "due")
}

/// What the keys of run entries begin with.
pub const RUNS: &str = "run/";

/// A session's entry in its tenant's index.
pub fn session_entry(session: &SessionId) -> Key {
    format!("{SESSIONS}{session}").into()
}

/// What the keys of session entries begin with.
pub const SESSIONS: &str = "session/";

/// A session's document.
pub fn session() -> Key {
    "session".into()
}

/// A session's messages.
pub fn messages() -> Key {
    "messages".into()
}

/// Tokens that a session's runs used and reserved.
pub fn session_tokens() -> Key {
    "tokens".into()
}

/// Micro-dollars that a session's runs used and reserved.
pub fn session_cost() -> Key {
    "cost".into()
}

/// Nudged when the log of a run in this partition grows.
pub fn topic(partition: &Partition, run: &RunId) -> Topic {
    Topic::new(partition.clone(), run.as_str())
}

/// Nudged when somebody leaves something for whoever drives a run in this partition.
pub fn mail_topic(partition: &Partition, run: &RunId) -> Topic {
    Topic::new(partition.clone(), format!("mail/{run}"))
}

/// Says that somebody reads a run through another replica than the one that drives it.
pub fn reader(run: &RunId) -> Key {
    format!("reader/{run}").into()
}
