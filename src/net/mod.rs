//! The HTTP client, the headers that lead back to a run, and what addresses tell: which of them are public, and which
//! clients are counted as one.

pub mod client;
pub mod client_address;
pub mod correlation;
pub mod public_address;
#[cfg(test)]
pub(crate) mod testing;
