//! What a server is shown of who calls it, and which callers share a connection to it.
//!
//! | file | holds |
//! | --- | --- |
//! | `account` | for whom a call is made, and the secret of that tenant or user |
//! | `authorization` | what the requests of a connection show |
//! | `connect` | the connection of a call |
//! | `oauth` | tokens of an authorization server |
//! | `sessions` | the connections of tenants, users and runs, each its own |
//!
//! The key with which a caller of Loopgate authenticates is not known here, so no server can be given it.

mod account;
mod authorization;
mod connect;
mod oauth;
mod sessions;

#[cfg(test)]
mod tests;

pub(super) use self::account::account;
pub(super) use self::authorization::Authorization;
pub(super) use self::oauth::{AuthWeb, NoToken, Tokens};
pub(super) use self::sessions::{Open, SessionKey, Sessions, sweep};
