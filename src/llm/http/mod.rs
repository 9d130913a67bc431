//! What all upstreams over HTTP share, whatever dialect they speak.
//!
//! | file | holds |
//! | --- | --- |
//! | `upstream` | how an upstream is called, and how its failures are worded |
//! | `answer` | the response while it arrives: timeouts, kinds of answers |
//! | `decode` | what a dialect must do: bytes into deltas and a turn |
//! | `in_one_piece` | answers that are asked for in one piece: what their failures say |
//! | `list` | the models that an upstream offers |
//! | `fault`, `failure` | what can be wrong with an answer; what an upstream's errors mean |

pub mod answer;
pub mod decode;
pub mod failure;
pub mod fault;
pub mod in_one_piece;
pub mod list;
pub mod upstream;

use std::time::Duration;

use crate::net::client::{CannotConnect, HttpClient, Reach};

/// The HTTP client for upstreams: one for the whole process, so that connections are shared.
///
/// Adapters time each phase themselves, for an overall timeout would cut long answers. Proxies of the environment are
/// honoured.
pub fn http_client(connect_timeout: Duration) -> Result<HttpClient, CannotConnect> {
    HttpClient::new(Reach { connect_timeout: Some(connect_timeout), proxies: true, ..Reach::default() })
}
