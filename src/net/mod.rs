//! What the network is, for whoever lets others choose where a request goes.

pub mod public_address;
