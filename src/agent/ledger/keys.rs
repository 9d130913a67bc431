//! The names of partitions and keys in the store. No other module makes such names.
//!
//! A run lies in its session's partition, or in a partition of its own if it has no session. So the documents that
//! change together can change in one commit. Two indexes lead to the runs: one for each tenant, with the newest run
//! last, and one of all live runs by replica.

mod documents;
mod shares;

use std::cell::RefCell;
use std::net::IpAddr;

pub use self::documents::{
    COLLECTIONS, SCHEDULES, agent_version, agents_index, agents_partition, collection, collection_entry, documents_of,
    documents_partition, due_schedule, due_schedules_partition, revocations, revocations_partition, schedule,
    schedule_lease, schedules_count, schedules_partition, user_partition,
};
pub use self::shares::{SLOTS, agent_share, shares_partition, slot, slots_taken, user_share};
use crate::store::{Key, Partition, Topic};
use crate::types::offer::OfferHash;
use crate::types::shortfall::BudgetKind;
use crate::types::{RunId, RunSpec, SessionId, Tenant};

/// A name of these parts. A run takes some dozens of them, and to format one costs several times as much as to copy its parts.
fn named(parts: &[&str]) -> Key {
    NAME.with_borrow_mut(|name| {
        name.clear();
        name.extend(parts.iter().copied());
        name.as_str().into()
    })
}

thread_local! {
    /// What names are put together in: they then take one allocation each.
    static NAME: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The partition of a session and its runs.
pub fn session_partition(tenant: &Tenant, session: &SessionId) -> Partition {
    Partition::new(named(&[tenant.as_str(), "/session/", session.as_str()]))
}

/// The partition of a run.
pub fn run_partition(tenant: &Tenant, session: Option<&SessionId>, run: &RunId) -> Partition {
    match session {
        Some(session) => session_partition(tenant, session),
        None => Partition::new(named(&[tenant.as_str(), "/run/", run.as_str()])),
    }
}

/// The partition of `spec`'s run.
pub fn partition_of(spec: &RunSpec) -> Partition {
    run_partition(&spec.tenant, spec.session.as_ref(), &spec.id)
}

/// The partition of a tenant's indexes.
pub fn tenant_partition(tenant: &Tenant) -> Partition {
    Partition::new(named(&[tenant.as_str(), "/index"]))
}

/// The partition of the index over runs that are to be driven. No tenant can be named like it: their
/// partitions have a second part.
pub fn live_partition() -> Partition {
    Partition::new("live")
}

/// The partition of the due index. No tenant can be named like it: their partitions have a second part.
pub fn due_partition() -> Partition {
    Partition::new("due")
}

/// The partition of what replicas know of upstreams. No tenant can be named like it: their partitions have a second part.
pub fn health_partition() -> Partition {
    Partition::new("health")
}

/// Nudged when what replicas know of upstreams changes.
pub fn health_topic() -> Topic {
    Topic::new(health_partition(), "changed")
}

/// The partition of which definitions of tools count. No tenant can be named like it: their partitions have a second part.
pub fn definitions_partition() -> Partition {
    Partition::new("definitions")
}

/// What is known of the tools of a source, by its name.
pub fn definitions(source: &str) -> Key {
    source.into()
}

/// Nudged when other definitions count.
pub fn definitions_topic() -> Topic {
    Topic::new(definitions_partition(), "changed")
}

/// The partition of one idempotency record, named by the request key's hash. Duplicates meet there whatever
/// sessions they name.
pub fn claim_partition(tenant: &Tenant, name: &str) -> Partition {
    Partition::new(named(&[tenant.as_str(), "/idem/", name]))
}

/// What such a request led to.
pub fn claim() -> Key {
    "claim".into()
}

/// The partition of what counts how often the callers of a key ask.
pub fn key_rate_partition(tenant: &Tenant, key_name: &str) -> Partition {
    Partition::new(named(&[tenant.as_str(), "/rate/", key_name]))
}

/// The partition of what counts how often a caller without a key asks, so without a tenant of its own.
pub fn address_rate_partition(address: IpAddr) -> Partition {
    Partition::new(format!("{}/address/{address}", Tenant::default_tenant()))
}

/// The bucket of requests.
pub fn requests() -> Key {
    "requests".into()
}

/// The partition of what the runs of a key take together.
pub fn budget_partition(tenant: &Tenant, key_name: &str) -> Partition {
    Partition::new(named(&[tenant.as_str(), "/budget/", key_name]))
}

/// What a key's runs used and reserved of a budget in one period.
pub fn budget_counter(kind: BudgetKind, period: &str) -> Key {
    let kind = match kind {
        BudgetKind::Tokens => "tokens",
        BudgetKind::Cost => "cost",
    };
    named(&[kind, "/", period])
}

/// For which limit a warning was given that the budget of this counter is mostly used.
pub fn warned(counter: &Key) -> Key {
    named(&["warned/", counter])
}

/// What is reserved of a key's budgets for a run's step.
pub fn reserved(run: &RunId, step: u32) -> Key {
    format!("{}{step}", reserved_by(run)).into()
}

/// What the keys of a run's reservations begin with.
pub fn reserved_by(run: &RunId) -> String {
    [RESERVED, run.as_str(), "/"].concat()
}

/// What the keys of all reservations begin with.
pub const RESERVED: &str = "reserved/";

/// What is reserved of a session's budgets for a run's step, in the session's partition.
pub fn session_hold(run: &RunId) -> Key {
    format!("{}session", reserved_by(run)).into()
}

/// A run's specification.
pub fn spec(run: &RunId) -> Key {
    named(&["spec/", run.as_str()])
}

/// The partition of what a run and all runs below it take together.
pub fn tree_partition(tenant: &Tenant, run: &RunId) -> Partition {
    Partition::new(named(&[tenant.as_str(), "/tree/", run.as_str()]))
}

/// How many calls of server-side tools these have made.
pub fn tree_calls() -> Key {
    "tool-calls".into()
}

/// The note that a step's calls are among them.
pub fn counted_calls(run: &RunId, step: u32) -> Key {
    format!("calls/{run}/{step}").into()
}

/// Keeps a run from being created: who was to begin it wants it no more.
pub fn barred(run: &RunId) -> Key {
    named(&["barred/", run.as_str()])
}

/// The partition of the definitions of tools that runs of a tenant are offered, by their hash. They are many
/// runs', so they lie beside none of them.
pub fn offer_partition(tenant: &Tenant, hash: &OfferHash) -> Partition {
    Partition::new(named(&[tenant.as_str(), "/offer/", hash.as_str()]))
}

/// Those definitions.
pub fn offer() -> Key {
    "offer".into()
}

/// A run's head: where it stands.
pub fn head(run: &RunId) -> Key {
    named(&[HEADS, run.as_str()])
}

/// What the keys of run heads begin with, in a run's partition.
pub const HEADS: &str = "run/";

/// A run's events.
pub fn events(run: &RunId) -> Key {
    named(&["events/", run.as_str()])
}

/// The commands that are sent to a run's driver.
pub fn inbox(run: &RunId) -> Key {
    named(&["inbox/", run.as_str()])
}

/// How many bytes the inbox has.
pub fn inbox_bytes(run: &RunId) -> Key {
    format!("inbox/{run}").into()
}

/// The note that the request of this key has sent its command to a run.
pub fn receipt(run: &RunId, name: &str) -> Key {
    named(&["receipt/", run.as_str(), "/", name])
}

/// The lease of a run's driver.
pub fn lease(run: &RunId) -> Key {
    named(&["lease/", run.as_str()])
}

/// A run's entry in its tenant's index.
pub fn run_entry(run: &RunId) -> Key {
    named(&[RUNS, run.as_str()])
}

/// The partition of where the calls of a run are answered later. No tenant's partitions have a run as their second part.
pub fn callback_partition(run: &RunId) -> Partition {
    Partition::new(named(&["callback/", run.as_str()]))
}

/// Where they are answered.
pub fn callback() -> Key {
    "callback".into()
}

/// A replica's document and its lease, in the partition of live runs.
pub fn replica(id: &str) -> Key {
    named(&[REPLICAS, id])
}

/// What the keys of replicas begin with.
pub const REPLICAS: &str = "replica/";

/// Stands for a replica in the registrations of orphaned runs.
pub const ORPHANED: &str = "-";

/// What the keys of a replica's live runs begin with.
pub fn live_entries(replica: &str) -> String {
    ["run/", replica, "/"].concat()
}

/// The entry of a live run that this replica drives.
pub fn live_entry(replica: &str, run: &RunId) -> Key {
    named(&["run/", replica, "/", run.as_str()])
}

/// Nudged when a run is orphaned or woken.
pub fn orphans_topic() -> Topic {
    Topic::new(live_partition(), "orphans")
}

/// What the keys of run entries begin with.
pub const RUNS: &str = "run/";

/// How many bytes a tenant stores.
pub fn stored() -> Key {
    "stored".into()
}

/// How many claims and notes of callers' keys a tenant has that expire in this span of time.
pub fn claims(span: u64) -> Key {
    format!("claims/{span}").into()
}

/// The lease of the replica that counts those bytes again.
pub fn recounting() -> Key {
    "recounting".into()
}

/// How many bytes the definitions of tools have that runs of a tenant are offered, in its index.
pub fn offer_entry(hash: &OfferHash) -> Key {
    named(&[OFFERS, hash.as_str()])
}

/// What the keys of these begin with.
pub const OFFERS: &str = "offer/";

/// How much of a run is counted in its tenant's usage, in the tenant's index.
pub fn usage_counted(run: &RunId) -> Key {
    named(&["counted/", run.as_str()])
}

/// A row of a day's usage, in the tenant's index: that of these dimensions, by their hash, that this process writes.
pub fn usage_row(day: &str, process: &str, dimensions: u128) -> Key {
    format!("{USAGE}{day}/{process}/{dimensions:032x}").into()
}

/// What the keys of these begin with.
pub const USAGE: &str = "usage/";

/// What the keys of a day's rows begin with.
pub fn usage_of_day(day: &str) -> String {
    [USAGE, day, "/"].concat()
}

/// How many rows a day's usage has.
pub fn usage_rows(day: &str) -> Key {
    named(&[USAGE, day])
}

/// A session's entry in its tenant's index.
pub fn session_entry(session: &SessionId) -> Key {
    named(&[SESSIONS, session.as_str()])
}

/// What the keys of session entries begin with.
pub const SESSIONS: &str = "session/";

/// A session's entry among those of its tenant in the order in which they were created.
pub fn session_by_time(created_ms: u64, session: &SessionId) -> Key {
    // Texts of one length are in the order of their numbers.
    format!("{SESSIONS_BY_TIME}{created_ms:020}/{session}").into()
}

/// What the keys of these begin with.
pub const SESSIONS_BY_TIME: &str = "session-at/";

/// A session's document.
pub fn session() -> Key {
    "session".into()
}

/// A session's messages.
pub fn messages() -> Key {
    "messages".into()
}

/// What was replaced in a session's history.
pub fn spliced() -> Key {
    "spliced".into()
}

/// The lease of who writes a new session of several pages.
pub fn drafting() -> Key {
    "drafting".into()
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

/// Nudged when a command is sent to a run in this partition.
pub fn inbox_topic(partition: &Partition, run: &RunId) -> Topic {
    Topic::new(partition.clone(), named(&["inbox/", run.as_str()]))
}

/// What the keys begin with of messages that hooks are to take.
pub const OUTBOX: &str = "outbox/";

/// The same, of those about this run.
pub fn messages_of(run: &RunId) -> String {
    [OUTBOX, run.as_str(), "/"].concat()
}

/// The run that the message with this key tells of.
pub fn run_of_message(key: &str) -> Option<&str> {
    key.strip_prefix(OUTBOX)?.split('/').next()
}

/// A message about the event of this number of a run.
pub fn message(run: &RunId, seq: u64, id: &str) -> Key {
    // Texts of one length are in the order of their numbers.
    format!("{}{seq:020}/{id}", messages_of(run)).into()
}

/// Marks that a run has a reader at another replica than the one that drives it.
pub fn reader(run: &RunId) -> Key {
    named(&["reader/", run.as_str()])
}
