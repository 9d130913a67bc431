//! What scripted servers of models have in common, whichever dialect they speak.

use std::net::SocketAddr;

use serde_json::Value;

use super::http::{HttpServer, Request};
use super::reply::Reply;
use super::script::{Judge, Script};

/// A scripted server of models, and its declaration.
///
/// When it is dropped it fails the test if a request broke one of the API's rules or came unexpected.
#[derive(Debug)]
pub(crate) struct Scripted {
    server: HttpServer,
    declaration: String,
    _judge: Judge,
}

impl Scripted {
    /// Starts one that gives these replies, in this order, by the rules of its API.
    pub(super) async fn start(
        replies: impl IntoIterator<Item = Reply>,
        decide: fn(&mut Script, &Request) -> Reply,
        declare: fn(SocketAddr) -> String,
    ) -> Self {
        let judge = Judge::new(replies);
        let server = HttpServer::start(|_| true, judge.play(decide)).await;
        Self { declaration: declare(server.address()), server, _judge: judge }
    }

    /// Its declaration for a server's configuration.
    pub(crate) fn config(&self) -> String {
        self.declaration.clone()
    }

    /// The bodies of what was asked for so far.
    pub(crate) fn requests(&self) -> Vec<Value> {
        self.server.requests().iter().map(Request::json).collect()
    }
}
