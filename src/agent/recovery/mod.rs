//! Runs that nobody drives are found, and gone on with or failed.

pub(super) mod fail;
pub(super) mod sweep;
