//! Loopgate: an OpenAI-compatible agent API. One `POST` runs the whole tool loop on the server.
//!
//! The code map, from the outside in; imports go one way, downwards:
//!
//! - [`cli`]: the commands of the binary.
//! - [`server`]: where the parts meet; the ordered list of HTTP layers; the accept loop.
//! - [`api`]: HTTP in, HTTP out, and the dialects on the wire.
//! - [`agent`]: what a run is and how it moves.
//! - [`llm`], [`tools`], [`store`]: models, tools and storage, which do not know each other.
//! - [`config`], [`types`]: settings and vocabulary, plain data.
//! - [`net`]: which addresses are public.
//! - [`telemetry`][]: logs, metrics and traces.
//! - [`failpoint`]: places where a test can end the process; a release build has none of them.

pub mod agent;
pub mod api;
pub mod cli;
pub mod config;
pub mod failpoint;
pub mod llm;
pub mod net;
pub mod server;
pub mod store;
pub mod telemetry;
pub mod tools;
pub mod types;
