//! Loopgate: an OpenAI-compatible agent API. One `POST` runs the whole tool loop on the server.

pub mod agent;
pub mod config;
pub mod llm;
pub mod store;
pub mod tools;
pub mod types;
