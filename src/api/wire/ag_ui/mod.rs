//! AG-UI: the input of an agent's run, and the events that it answers with.
//!
//! A run of this protocol is what one request of a run brings about, with the whole loop in it.

pub mod events;
pub mod input;
