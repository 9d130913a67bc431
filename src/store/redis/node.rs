//! One primary: its connections, and whether it has replicas that must confirm what was written.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::{Pipeline, Value};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, timeout};

use super::connection::{Connection, Wait};
use super::connection_context::ConnectionContext;
use super::dial::{Dialer, read_role};
use super::error::ConnectionError;
use super::event::Event;
use super::replicas::Replicas;
use crate::config::RedisHost;

/// How many connections to a primary wait for its replicas. `WAIT` blocks a connection for one commit at a time.
const CONFIRMING: usize = 4;

/// How long a server may take to answer `ROLE`.
const ROLE_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a server may take to answer.
pub(super) const ANSWER: Duration = Duration::from_secs(1);

/// The kind of a request. Kinds that have connections of their own never wait behind each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Commits and reads.
    Work,
    /// Acquiring and releasing leases.
    Leases,
    /// Renewing leases. A renewal may take longer than other requests, since its lease has seconds left.
    Renewals,
}

impl Purpose {
    /// How long an operation may take in all, and how long a server may take to answer one attempt. A client
    /// whose request fails because Redis is away is answered within a second and a half. Not a setting: leases are
    /// given up in time because these are short beside a lease's time.
    pub(super) fn time(self) -> (Duration, Duration) {
        match self {
            Self::Work | Self::Leases => (Duration::from_millis(1400), ANSWER),
            Self::Renewals => (Duration::from_secs(5), Duration::from_secs(3)),
        }
    }
}

/// A primary.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) host: RedisHost,
    work: Connection,
    leases: Connection,
    confirming: [(Connection, AtomicUsize); CONFIRMING],
    /// Carries the subscriptions to channels.
    pub(super) nudges: Connection,
    replicas: Arc<Replicas>,
    stale: Arc<Notify>,
}

/// A connection that is in use to wait for replicas. Other users of the connection wait as long.
#[derive(Debug)]
pub(super) struct Confirming<'a> {
    pub(super) connection: &'a Connection,
    users: &'a AtomicUsize,
}

impl Drop for Confirming<'_> {
    fn drop(&mut self) {
        self.users.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Node {
    /// A primary at this host. `stale` is notified when it may no longer be one.
    pub(super) fn new(
        host: RedisHost,
        dialer: Arc<Dialer>,
        stale: Arc<Notify>,
        events: mpsc::UnboundedSender<Event>,
    ) -> Self {
        let replicas = Arc::new(Replicas::default());
        let (replicas_of, stale_of) = (replicas.clone(), stale.clone());
        let context =
            ConnectionContext { host: host.clone(), dialer, replicas: replicas_of, stale: stale_of, events: None };
        let with_events = Arc::new(ConnectionContext { events: Some(events), ..context.clone() });
        let context = Arc::new(context);
        let connection = || Connection::new(context.clone());
        let node = Self {
            host,
            work: connection(),
            leases: connection(),
            confirming: std::array::from_fn(|_| (connection(), AtomicUsize::new(0))),
            nudges: Connection::new(with_events),
            replicas,
            stale,
        };
        node.work.request();
        node.leases.request();
        node
    }

    /// The connection for this kind of request.
    pub(super) fn connection(&self, purpose: Purpose) -> &Connection {
        match purpose {
            Purpose::Work => &self.work,
            Purpose::Leases | Purpose::Renewals => &self.leases,
        }
    }

    /// The least busy of the connections that wait for replicas; `None` if no replica need confirm.
    pub(super) fn confirming(&self) -> Option<Confirming<'_>> {
        if !self.replicas.expected() {
            return None;
        }
        let (connection, users) = self.confirming.iter().min_by_key(|(_, users)| users.load(Ordering::Relaxed))?;
        users.fetch_add(1, Ordering::Relaxed);
        Some(Confirming { connection, users })
    }

    /// Whether replicas must confirm what is written.
    pub(super) fn has_replicas(&self) -> bool {
        self.replicas.expected()
    }

    /// Asks the server whether it is still the primary. If it is not, all connections to it are opened again.
    pub(super) async fn check_role(&self) -> Result<(), ConnectionError> {
        let Some(open) = self.leases.current()? else { return Ok(()) };
        let mut connection = open.multiplexed.clone();
        let role = redis::cmd("ROLE");
        let asked = Instant::now();
        let answer = timeout(ROLE_TIMEOUT, connection.send_packed_command(&role)).await;
        let error = match answer {
            Ok(Ok(answer)) => match read_role(&answer, &self.host) {
                Ok(role) => {
                    self.replicas.note(role);
                    return Ok(());
                }
                Err(error) => {
                    self.reconnect();
                    return Err(error);
                }
            },
            Ok(Err(failure)) => ConnectionError::unreachable(format!("{}: {failure}", self.host)),
            Err(_) if open.answered_since(asked) => return Ok(()),
            Err(_) => ConnectionError::unreachable(format!("{} does not answer", self.host)),
        };
        self.leases.replace(open.number);
        Err(error)
    }

    /// Writes `key` with an expiry of a second. The write fails where commits would: without memory or disk, or with
    /// too few replicas.
    pub(super) async fn probe(&self, key: &str) -> Result<(), ConnectionError> {
        let mut open = self.work.open(Wait::Briefly).await?;
        let mut write = Pipeline::with_capacity(1);
        write.cmd("SET").arg(key).arg("").arg("PX").arg(1000);
        match open.multiplexed.send_packed_commands(&write, 0, 1).await.as_deref() {
            Ok([Value::ServerError(error)]) => {
                self.stale.notify_one();
                Err(ConnectionError::refused(&self.host, error))
            }
            Ok(_) => Ok(()),
            Err(error) => Err(ConnectionError::unreachable(format!("{}: {error}", self.host))),
        }
    }

    /// Closes all connections and opens others.
    pub(super) fn reconnect(&self) {
        let confirming = self.confirming.iter().map(|(connection, _)| connection);
        for connection in [&self.work, &self.leases, &self.nudges].into_iter().chain(confirming) {
            connection.replace_current();
        }
    }

    /// Waits until it is known whether the server can be used.
    pub(super) async fn usable(&self) -> Result<(), ConnectionError> {
        self.work.open(Wait::Briefly).await.map(drop)
    }
}
