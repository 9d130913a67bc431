//! What the tests stand on: the server under test, a scripted upstream, a tool server, a strict SSE
//! reader. Everything talks over real sockets; nothing sleeps and hopes.

pub(crate) mod anthropic;
pub(crate) mod balancer;
pub(crate) mod chat;
pub(crate) mod cluster;
pub(crate) mod forward_proxy;
pub(crate) mod gemini;
pub(crate) mod http;
pub(crate) mod journal;
pub(crate) mod monitor;
pub(crate) mod mutation;
pub(crate) mod proxy;
pub(crate) mod redis;
mod reply;
pub(crate) mod responses;
mod script;
mod scripted;
pub(crate) mod seed;
pub(crate) mod server;
pub(crate) mod sse;
pub(crate) mod tls;
pub(crate) mod tools;
pub(crate) mod upstream;

mod tests;

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

pub(crate) use anthropic::Anthropic;
pub(crate) use forward_proxy::ForwardProxy;
pub(crate) use gemini::Gemini;
pub(crate) use proxy::Proxy;
pub(crate) use reply::Reply;
pub(crate) use responses::{Compatible, Responses};
pub(crate) use server::{Answer, TestServer};
pub(crate) use sse::{Frame, SseReader};
pub(crate) use tools::ToolServer;
pub(crate) use upstream::Upstream;

/// How long a test waits for what must happen. Generous: it is reached only by a failure.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(20);

/// Awaits `what`, or fails the test by the name of what did not happen.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(MAX_WAIT, future).await.unwrap_or_else(|_| panic!("waited {} s for {what}", MAX_WAIT.as_secs()))
}

/// A place in a reply where the sender waits until the test lets it go on.
#[derive(Debug, Clone)]
pub(crate) struct Gate(watch::Sender<Passage>);

#[derive(Debug, Clone, Copy, Default)]
struct Passage {
    reached: bool,
    open: bool,
}

impl Gate {
    /// A closed gate.
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(Passage::default()))
    }

    /// Returns once everything before the gate was sent.
    pub(crate) async fn reached(&self) {
        let mut passage = self.0.subscribe();
        within("a reply to reach its gate", passage.wait_for(|passage| passage.reached))
            .await
            .expect("we hold a sender");
    }

    /// Lets everyone through, now and later.
    pub(crate) fn open(&self) {
        self.0.send_modify(|passage| passage.open = true);
    }

    async fn pass(&self) {
        self.0.send_modify(|passage| passage.reached = true);
        self.0.subscribe().wait_for(|passage| passage.open).await.expect("we hold a sender");
    }
}
