//! Tokens of an authorization server, which a server is shown: client credentials and refresh tokens (RFC 6749), with metadata
//! of the server (RFC 9728) and of the authorization server (RFC 8414), for one resource (RFC 8707).
//!
//! | file | holds |
//! | --- | --- |
//! | `tokens` | the token that counts now, asked for once by however many calls |
//! | `endpoint` | where tokens are given |
//! | `metadata` | what servers say of that (pure) |
//! | `refusals` | how soon a token is asked for in place of a refused one (pure) |
//! | `request` | what is asked for, and what is answered (pure) |
//! | `web` | asks: the operator's own servers as they are, and all others through the egress guard |
//!
//! A client's secret goes only to an authorization server that the operator names, or that is at the origin of the server
//! itself: what a server says of itself could else send it anywhere.

mod endpoint;
mod metadata;
mod refusals;
mod request;
mod tokens;
mod web;

pub(in crate::tools::mcp) use self::tokens::{NoToken, Tokens};
pub(in crate::tools::mcp) use self::web::AuthWeb;
