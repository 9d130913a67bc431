//! The HTTP client, the guard for URLs that others than the operator name, the headers that lead back to a run, how long services
//! ask to wait, and what addresses tell: which of them are public, at which clouds give credentials, and which clients are counted as one.

pub mod client;
pub mod client_address;
pub mod correlation;
pub mod fetch;
pub mod guard;
pub mod metadata;
mod proxies;
pub mod public_address;
pub mod retry_after;
#[cfg(test)]
pub(crate) mod testing;
mod transition;
