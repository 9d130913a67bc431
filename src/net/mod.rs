//! Which addresses are public, for modules whose requests go where others choose.

pub mod public_address;
