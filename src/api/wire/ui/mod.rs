//! What the streams for chat interfaces share: the one fold of a run's records into what such a stream tells, and the run that
//! a request asks for. How it is written, each protocol says itself.

pub mod act;
pub mod asked;
pub mod events;
