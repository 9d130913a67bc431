//! A request becomes a run: what it asks for is pinned, and begun, queued or added to a waiting run.
//!
//! Knows nothing of how a run is driven; it hands a run that was accepted to [`launch`](crate::agent::launch).

pub(super) mod answer;
pub(super) mod backoff;
pub mod once;
pub(super) mod specify;
pub mod start;
pub(super) mod verdict;
