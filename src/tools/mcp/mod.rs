//! Tools of servers that speak the Model Context Protocol, through the official SDK.
//!
//! | file | holds |
//! | --- | --- |
//! | `server` | a server, from its start to its end |
//! | `watch_over`, `list` | keeps a server running and connected, and takes up what tools it lists |
//! | `shared`, `state`, `call` | what is known of a server, and calls of its tools |
//! | `auth` | what a server is shown of who calls it, and which callers share a connection |
//! | `start` | opens a connection, in the way that the configuration says |
//! | `tool` | one of its tools |
//! | `definition`, `names` | what it says of its tools, and what models call them (pure) |
//! | `content` | what a tool answers, as parts (pure) |
//! | `connection`, `handler`, `fault` | the SDK: requests, what the server asks and tells, what went wrong |
//! | `elicitation` | what a server asks the user in the middle of a call |
//! | `guarded` | bounds what a server asks for |
//! | `streamable` | streamable HTTP, for the SDK |
//! | `restarts` | how long it is left alone after it failed (pure) |
//! | `settling` | how long after a change its tools are asked for (pure) |
//! | `pages` | the pages of its list, as far as they are taken (pure) |
//! | `under_way` | its calls, and whether one shows that it may hang |
//! | `secrets` | what it must not tell (pure) |
//! | `named` | servers that requests name, each its run's own |
//! | `stdio`, `process`, `lines`, `errors` | a server that is a process, for the SDK |
//!
//! A server is not trusted: what it says is bounded, and what it says of the effects of its tools counts only if the operator
//! says so. Which tools agents are given, and which runs there are, is not known here.

mod auth;
mod call;
mod connection;
mod content;
mod definition;
mod elicitation;
mod errors;
mod fault;
mod guarded;
mod handler;
mod lines;
mod list;
mod named;
mod names;
mod pages;
mod process;
mod restarts;
mod secrets;
mod server;
mod settling;
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
mod under_way;
mod watch_over;

pub use definition::Definition;
pub use named::{KeptNamed, NamedServers, NotOpened, RunServers};
pub use server::{McpServer, McpServers};
pub use start::McpClients;
