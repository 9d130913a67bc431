//! Loopgate: an OpenAI-compatible agent API. One `POST` runs the whole tool loop on the server.
//!
//! The `loopgate` binary needs no code: a file of configuration declares agents, tools and upstreams. As a library Loopgate is for
//! what such a file cannot say: [tools](Tool) that are code of yours, and [models](Model) that are. A program gives them to
//! a [`Server`], which does all the rest as the binary does.
//!
//! ```
//! use loopgate::{Answer, Failure, Model, ModelRequest, Server, Tool, ToolAnswer, ToolCall, ToolDefinition, ToolError};
//! use loopgate::{Value, async_trait, json};
//!
//! /// A tool without arguments.
//! #[derive(Debug)]
//! struct Dice;
//!
//! #[async_trait]
//! impl Tool for Dice {
//!     fn definition(&self) -> ToolDefinition {
//!         ToolDefinition::new("dice", "Throws a die.")
//!     }
//!
//!     async fn call(&self, _: Value, _: &ToolCall) -> Result<ToolAnswer, ToolError> {
//!         Ok(ToolAnswer::text("4"))
//!     }
//! }
//!
//! /// A model that calls the tool, and then says what came of it.
//! #[derive(Debug)]
//! struct Player;
//!
//! #[async_trait]
//! impl Model for Player {
//!     fn names(&self) -> Vec<String> {
//!         vec!["player".to_owned()]
//!     }
//!
//!     async fn answer(&self, request: ModelRequest, answer: &mut Answer) -> Result<(), Failure> {
//!         match request.messages.last() {
//!             Some(last) if last.answers.is_some() => answer.text(format!("I threw a {}.", last.text)).await,
//!             _ => answer.call("dice", &json!({})),
//!         }
//!         Ok(())
//!     }
//! }
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), loopgate::StartError> {
//! let server = Server::builder()
//!     .config("[agents.game]\nmodel = \"mine/player\"\ntools = [\"dice\"]")
//!     .listen(([127, 0, 0, 1], 0).into())
//!     .store("memory:")
//!     .tool(Dice)
//!     .model("mine", Player)
//!     .start()
//!     .await?;
//! println!("POST {}/v1/chat/completions with the model \"game\"", server.url());
//! // server.run().await serves until Ctrl-C.
//! server.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! The server logs through [`tracing`](https://docs.rs/tracing): install a subscriber to see it. Configuration, the API and what is
//! promised under which fault are described in the repository's `docs/`. Two programs are in its `examples/`.
//!
//! Nothing but what is documented here is meant for other programs: all other modules may change at any time.
//!
//! # The code
//!
//! From the outside in; imports go one way, downwards:
//!
//! - `cli`: the commands of the binary.
//! - `library`: what is documented here.
//! - `server`: where the parts meet; the ordered list of HTTP layers; the accept loop.
//! - `api`: HTTP in, HTTP out, and the dialects on the wire.
//! - `agent`: what a run is and how it moves.
//! - `llm`, `tools`, `store`, `hooks`: models, tools, storage and hooks, which do not know each other.
//! - `guard`: rules over texts of runs; pure.
//! - `config`, `types`: settings and vocabulary, plain data.
//! - `net`: which addresses are public.
//! - `telemetry`: logs, metrics and traces.
//! - `failpoint`: places where a test can end the process; a release build has none of them.

#[cfg_attr(docsrs, doc(hidden))]
pub mod agent;
#[cfg_attr(docsrs, doc(hidden))]
pub mod api;
#[cfg_attr(docsrs, doc(hidden))]
pub mod cli;
#[cfg_attr(docsrs, doc(hidden))]
pub mod config;
#[cfg_attr(docsrs, doc(hidden))]
pub mod failpoint;
#[cfg_attr(docsrs, doc(hidden))]
pub mod guard;
#[cfg_attr(docsrs, doc(hidden))]
pub mod hooks;
mod library;
#[cfg_attr(docsrs, doc(hidden))]
pub mod llm;
#[cfg_attr(docsrs, doc(hidden))]
pub mod net;
mod process;
#[cfg_attr(docsrs, doc(hidden))]
pub mod server;
#[cfg_attr(docsrs, doc(hidden))]
pub mod store;
#[cfg_attr(docsrs, doc(hidden))]
pub mod telemetry;
#[cfg_attr(docsrs, doc(hidden))]
pub mod tools;
#[cfg_attr(docsrs, doc(hidden))]
pub mod types;

#[doc(inline)]
pub use self::library::{
    Answer, AskedTool, Effect, Failure, Model, ModelMessage, ModelRequest, Server, ServerBuilder, Speaker, StartError,
    Tool, ToolAnswer, ToolCall, ToolDefinition, ToolError,
};
/// Lets traits have `async` functions: stands over each `impl` of [`Tool`] and [`Model`].
pub use async_trait::async_trait;
pub use serde_json::{Value, json};
