//! The door for programs that have the server as a library: tools and models of their own, and the server that runs them.
//!
//! Its types stand apart from those inside, so that these can change without breaking such programs.

mod model;
mod server;
mod tool;

pub use self::model::{Answer, AskedTool, Failure, Model, ModelMessage, ModelRequest, Speaker};
pub use self::server::{Server, ServerBuilder, StartError};
pub use self::tool::{Effect, Tool, ToolAnswer, ToolCall, ToolDefinition, ToolError};
