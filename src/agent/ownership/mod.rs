//! Which replica drives which run: leases, the registry of replicas, and what a holder does without its
//! store.

pub mod lease;
pub(super) mod registry;
pub(super) mod retry;
