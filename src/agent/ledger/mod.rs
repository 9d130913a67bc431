//! What is stored of runs and sessions, and under which names.
//!
//! Knows nothing of who reads or writes it.

pub(super) mod document;
pub(super) mod head;
pub(super) mod keys;
pub(super) mod log;
pub mod retention;
pub mod session;
