//! How servers are asked, and which addresses are public, for modules whose requests go where others choose.

pub mod client;
pub mod public_address;
#[cfg(test)]
pub(crate) mod testing;
