//! OpenAI's chat completions: the request, the one object and the stream of chunks.

pub mod completion;
pub mod described;
pub mod mcp_tool;
pub mod message;
pub mod request;
pub mod shape;
pub mod stream;
pub mod tool;
mod unknown;
mod unsupported;
mod withheld;
