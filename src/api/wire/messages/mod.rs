//! Anthropic's Messages: the request, the one message and the stream of its events.
//!
//! A message is one leg of a run, with the whole loop in it. Nothing is kept of it beside the run: clients send their
//! transcripts, and the ids of calls in them lead back to a run that waits.

pub mod block;
pub mod content;
pub mod error;
pub mod events;
pub mod frame;
pub mod object;
pub mod request;
pub mod stop_reason;
pub mod tools;
pub mod transcript;
