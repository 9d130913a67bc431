//! Connections that are kept for the next request.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ahash::RandomState;
use http::uri::Authority;
use hyper::rt::Executor;
use hyper_util::rt::TokioExecutor;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use super::connection::is_quiet;

/// How often connections are closed that their servers have closed, or that nothing needed for long. Not a setting: it
/// only bounds how long the operating system keeps them.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Connections by server; of one server the youngest is last, and taken first.
#[derive(Debug)]
pub(super) struct Pool {
    keep_idle: Duration,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    by_server: HashMap<Authority, Vec<Idle>, RandomState>,
    /// Whether a task looks after them.
    is_looked_after: bool,
}

#[derive(Debug)]
struct Idle {
    connection: TcpStream,
    since: Instant,
}

impl Pool {
    pub(super) fn new(keep_idle: Duration) -> Self {
        Self { keep_idle, kept: Mutex::default() }
    }

    /// A connection to this server on which the next request can be sent.
    pub(super) fn take(&self, server: &Authority) -> Option<TcpStream> {
        let mut kept = self.kept.lock();
        let idle = kept.by_server.get_mut(server)?;
        while let Some(youngest) = idle.pop() {
            if youngest.can_be_used(self.keep_idle) {
                return Some(youngest.connection);
            }
        }
        None
    }

    /// Keeps a connection whose last answer is whole.
    pub(super) fn keep(self: &Arc<Self>, server: Authority, connection: TcpStream) {
        let mut kept = self.kept.lock();
        kept.by_server.entry(server).or_default().push(Idle { connection, since: Instant::now() });
        if !std::mem::replace(&mut kept.is_looked_after, true) {
            TokioExecutor::new().execute(look_after(Arc::downgrade(self)));
        }
    }

    /// Closes connections that are of no more use. Returns whether there are others.
    fn look(&self) -> bool {
        let mut kept = self.kept.lock();
        kept.by_server.retain(|_, idle| {
            idle.retain(|idle| idle.can_be_used(self.keep_idle));
            !idle.is_empty()
        });
        kept.is_looked_after = !kept.by_server.is_empty();
        kept.is_looked_after
    }
}

impl Idle {
    fn can_be_used(&self, keep_idle: Duration) -> bool {
        self.since.elapsed() < keep_idle && is_quiet(&self.connection)
    }
}

/// Ends with the last connection, or with the pool.
async fn look_after(pool: Weak<Pool>) {
    loop {
        sleep(LOOK_EVERY).await;
        if !pool.upgrade().is_some_and(|pool| pool.look()) {
            return;
        }
    }
}
