//! The HTTP client, and which addresses are public: for modules that send requests to addresses from the outside.

pub mod client;
pub mod public_address;
#[cfg(test)]
pub(crate) mod testing;
