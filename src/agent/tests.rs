//! The agent over the memory store, with a scripted model and tools that keep a journal.

#![expect(clippy::wildcard_enum_match_arm, reason = "a test looks for the events that it is about")]

mod calls;
mod charges;
mod clocks;
mod commands;
mod conflicts;
mod contention;
mod costs;
mod crash_loops;
mod dead_replicas;
mod deletion;
mod detached;
mod due;
mod fencing;
mod histories;
mod idempotency;
mod idle;
mod inboxes;
mod large;
mod limits;
mod link;
mod lists;
mod logs;
mod lost;
mod made_once;
mod memory;
mod metered;
mod metrics;
mod offers;
mod own_tools;
mod quota;
mod replicas;
mod resume;
mod run_memory;
mod sessions;
mod shortfalls;
mod slots;
mod storage;
pub(crate) mod support;
mod syncs;
mod tools;
mod traces;
mod usage;
mod waiting;
mod watching;
