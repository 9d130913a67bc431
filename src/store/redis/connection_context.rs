//! What the connections to one server share, and whom they tell when they open and break.

use std::sync::Arc;

use redis::PushInfo;
use tokio::sync::{Notify, mpsc};

use super::dial::{Dialer, Role};
use super::event::Event;
use super::open_connection::OpenConnection;
use super::replicas::Replicas;
use crate::config::RedisHost;

/// What the connections to one server share.
#[derive(Debug, Clone)]
pub(super) struct ConnectionContext {
    /// The server.
    pub(super) host: RedisHost,
    /// Opens connections.
    pub(super) dialer: Arc<Dialer>,
    /// Learns from each new connection whether the server has replicas.
    pub(super) replicas: Arc<Replicas>,
    /// Notified when the server may no longer be the primary.
    pub(super) stale: Arc<Notify>,
    /// Receives the connection's events, if it carries nudges.
    pub(super) events: Option<mpsc::UnboundedSender<Event>>,
}

impl ConnectionContext {
    /// Tells that a connection was opened.
    pub(super) fn opened(&self, open: &OpenConnection, role: Role) {
        self.replicas.note(role);
        self.send(|| Event::Opened(self.host.clone(), open.clone()));
    }

    /// Tells that a connection broke or could not be opened.
    pub(super) fn closed(&self, number: u64) {
        self.stale.notify_one();
        self.send(|| Event::Closed(number));
    }

    /// Passes on a push message: one that the server sends without being asked.
    pub(super) fn push(&self, number: u64, push: PushInfo) {
        self.send(|| Event::Push(number, push));
    }

    fn send(&self, event: impl FnOnce() -> Event) {
        if let Some(events) = &self.events {
            // The receiver is gone once the store is closed.
            let _ = events.send(event());
        }
    }
}
