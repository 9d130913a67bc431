//! What all upstreams over HTTP share, whatever dialect they speak.
//!
//! | file | holds |
//! | --- | --- |
//! | `upstream` | how an upstream is called, and how its failures are worded |
//! | `call` | a request before it is known to which of the upstream's addresses it goes |
//! | `pools` | the addresses and keys of an upstream that has several, and which of them rest |
//! | `open` | from a call to the head of its answer |
//! | `answer`, `answer_timer` | the answer while it arrives, and how long that may take |
//! | `decode` | what a dialect must do: bytes into deltas and a turn |
//! | `in_one_piece` | answers that are asked for in one piece: what their failures say |
//! | `list` | the models that an upstream offers |
//! | `fault`, `failure` | what can be wrong with an answer; what an upstream's errors mean |
//! | `rate_limit` | when a rate limit ends, by the headers that tell what is left of it |

pub mod answer;
mod answer_timer;
pub mod call;
pub mod decode;
pub mod failure;
pub mod fault;
pub mod in_one_piece;
pub mod list;
mod open;
pub mod pools;
mod rate_limit;
pub mod upstream;

use std::time::Duration;

use crate::config::HttpUpstream;
use crate::net::client::{CannotConnect, HttpClient, Proxies, Reach};

/// The HTTP client for upstreams that declare nothing of how they are reached.
///
/// Adapters time each phase themselves, for an overall timeout would cut long answers. Proxies of the environment are
/// honoured.
pub fn http_client(connect_timeout: Duration) -> Result<HttpClient, CannotConnect> {
    HttpClient::new(&reach_within(connect_timeout))
}

/// How an upstream is reached. Those that are reached alike share a client, and with it their connections.
pub fn reach(upstream: &HttpUpstream) -> Reach {
    let connection = &upstream.connection;
    Reach {
        proxies: connection.proxies.clone(),
        authorities: connection.authorities.clone(),
        certificate: connection.certificate.clone(),
        ..reach_within(upstream.connect_timeout)
    }
}

fn reach_within(connect_timeout: Duration) -> Reach {
    Reach { connect_timeout: Some(connect_timeout), proxies: Proxies::Environment, ..Reach::default() }
}
