//! The AI SDK's UI messages: the request of its chat transport, and the stream that it reads.
//!
//! A message is a run, with the whole loop in it; a request that answers its calls continues the message.

pub mod chunks;
pub mod request;
