//! A server whose endpoints are tools. It keeps a journal of every call it got, however it answered.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use super::http::{HttpServer, Request};
use super::reply::Reply;

/// The tool server. Without a script it answers `ok`.
#[derive(Debug)]
pub(crate) struct ToolServer {
    server: HttpServer,
    script: Arc<Mutex<VecDeque<Reply>>>,
}

impl ToolServer {
    /// Starts one that gives these answers, in this order.
    pub(crate) async fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        let script = Arc::new(Mutex::new(replies.into_iter().collect::<VecDeque<_>>()));
        let decided = script.clone();
        let decide = move |_: &Request| {
            let scripted = decided.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            scripted.unwrap_or_else(|| Reply::plain("ok"))
        };
        Self { server: HttpServer::start(|_| true, decide).await, script }
    }

    /// Adds an answer to the script.
    pub(crate) fn then(&self, reply: Reply) {
        self.script.lock().unwrap_or_else(PoisonError::into_inner).push_back(reply);
    }

    /// The declaration of a tool `name` with one argument, `note`, for a server's configuration.
    pub(crate) fn config(&self, name: &str, effect: &str) -> String {
        format!(
            "[tools.{name}]\ndescription = \"A test's tool\"\nmethod = \"POST\"\nurl = \"http://{}/{name}\"\n\
             effect = \"{effect}\"\n\
             parameters = {{ type = \"object\", properties = {{ note = {{ type = \"string\" }} }} }}\n",
            self.server.address()
        )
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> std::net::SocketAddr {
        self.server.address()
    }

    /// The calls so far.
    pub(crate) fn calls(&self) -> Vec<Request> {
        self.server.requests()
    }

    /// Returns the calls once there are `count` of them.
    pub(crate) async fn called(&self, count: usize) -> Vec<Request> {
        self.server.received(count).await
    }
}
