//! What is stored of runs and sessions, and under which names.
//!
//! Knows nothing of who reads or writes it.

pub(super) mod head;
pub(super) mod keys;
