//! A run gets its driver here: a new one, one whose turn in its session has come, one that goes on.

pub(super) mod queued;
pub(super) mod resume;
pub(super) mod task;
