//! Tools of servers that speak the Model Context Protocol, through the official SDK.
//!
//! | file | holds |
//! | --- | --- |
//! | `server` | a server, from its start to its end |
//! | `watch_over`, `list` | keeps a server running and connected, and takes up what tools it lists |
//! | `shared`, `state`, `call` | what is known of a server, and calls of its tools |
//! | `start` | opens a connection, in the way that the configuration says |
//! | `tool` | one of its tools |
//! | `definition`, `names` | what it says of its tools, and what models call them (pure) |
//! | `content` | what a tool answers, as parts (pure) |
//! | `connection`, `handler`, `fault` | the SDK: requests, what the server asks and tells, what went wrong |
//! | `streamable` | streamable HTTP, for the SDK |
//! | `stdio`, `process`, `lines`, `errors` | a server that is a process, for the SDK |
//!
//! A server is not trusted: what it says is bounded, and what it says of the effects of its tools counts only if the operator
//! says so. Which tools agents are given, and which runs there are, is not known here.

mod call;
mod connection;
mod content;
mod definition;
mod errors;
mod fault;
mod handler;
mod lines;
mod list;
mod names;
mod process;
mod server;
mod shared;
mod start;
mod state;
mod stdio;
mod streamable;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod tool;
mod watch_over;

pub use definition::Definition;
pub use server::{McpServer, McpServers};
pub use start::client;
