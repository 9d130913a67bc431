//! One connection to one server, which is opened again whenever it breaks.
//!
//! Requests share the connection. A request waits half a second for a connection that is down; once it has been
//! down for longer, a request fails at once.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::{PushInfo, PushKind};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::connection_context::ConnectionContext;
use super::dial::Pushes;
use super::error::ConnectionError;
use super::open_connection::OpenConnection;
use crate::types::pauses::Pauses;

/// How long a connection may be down before requests stop waiting for it.
const DOWN_WAIT: Duration = Duration::from_millis(500);

/// Pauses between attempts to connect.
const CONNECT_PAUSES: Pauses = Pauses::new(Duration::from_millis(30), Duration::from_secs(1));

/// A connection that lasted at least this long is replaced at once when it breaks.
const STABLE_AFTER: Duration = Duration::from_millis(100);

/// Pauses before a connection is replaced that broke sooner.
const UNSTABLE_PAUSES: Pauses = Pauses::new(Duration::from_millis(5), Duration::from_millis(50));

/// The number of the last connection that this process tried to open.
static LAST_NUMBER: AtomicU64 = AtomicU64::new(0);

/// For how long a request waits for a connection that is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// Half a second. The request was not sent yet, so it can fail without doubt about its effect.
    Briefly,
    /// Until the request's deadline. The request was sent, and only the server knows whether it was carried out.
    UntilDeadline,
}

/// A connection that is opened when it is first requested and kept open from then on.
#[derive(Debug)]
pub(super) struct Connection {
    state: watch::Receiver<State>,
    broken: Broken,
    requested: Arc<Notify>,
    _task: JoinSet<()>,
}

#[derive(Debug, Clone)]
enum State {
    /// Being opened, or not requested yet.
    Connecting,
    Up(OpenConnection),
    /// The last attempt to open it failed with this error; the first attempt was made at this time.
    Down(ConnectionError, Instant),
}

/// The number of the last connection that broke.
#[derive(Debug, Clone)]
struct Broken(Arc<watch::Sender<u64>>);

impl Broken {
    fn mark(&self, number: u64) {
        self.0.send_if_modified(|broken| {
            let later = number > *broken;
            *broken = number.max(*broken);
            later
        });
    }
}

impl Connection {
    /// A connection to the server of `context`.
    pub(super) fn new(context: Arc<ConnectionContext>) -> Self {
        let (sender, state) = watch::channel(State::Connecting);
        let (broken, requested) = (Broken(Arc::new(watch::Sender::new(0))), Arc::new(Notify::new()));
        let mut tasks = JoinSet::new();
        let reconnector = Reconnector { context, state: sender, broken: broken.clone() };
        tasks.spawn({
            let requested = requested.clone();
            async move {
                requested.notified().await;
                reconnector.keep_open().await;
            }
        });
        Self { state, broken, requested, _task: tasks }
    }

    /// Has the connection opened, if it was never requested before.
    pub(super) fn request(&self) {
        self.requested.notify_one();
    }

    /// The open connection. Waits until it is open; the caller sets the deadline.
    pub(super) async fn open(&self, wait: Wait) -> Result<OpenConnection, ConnectionError> {
        if let State::Up(open) = &*self.state.borrow() {
            return Ok(open.clone());
        }
        self.request();
        let settled = |state: &State| match state {
            State::Connecting => false,
            State::Up(_) => true,
            State::Down(ConnectionError::Unfit(_), _) => wait == Wait::Briefly,
            State::Down(ConnectionError::Unreachable(_) | ConnectionError::Replica(_), since) => {
                wait == Wait::Briefly && since.elapsed() >= DOWN_WAIT
            }
        };
        let mut state = self.state.clone();
        loop {
            // How long it has been down grows without a change of the state, so `settled` is asked again.
            let changed = tokio::time::timeout(DOWN_WAIT / 4, state.wait_for(settled)).await;
            match changed {
                Err(_) => {}
                Ok(Err(_)) => return Err(ConnectionError::unreachable("the store is closed")),
                Ok(Ok(state)) => match &*state {
                    State::Up(open) => return Ok(open.clone()),
                    State::Down(error, _) => return Err(error.clone()),
                    State::Connecting => {}
                },
            }
        }
    }

    /// The connection if it is open, `None` while it is being opened. Does not wait.
    pub(super) fn current(&self) -> Result<Option<OpenConnection>, ConnectionError> {
        match &*self.state.borrow() {
            State::Up(open) => Ok(Some(open.clone())),
            State::Connecting => Ok(None),
            State::Down(error, _) => Err(error.clone()),
        }
    }

    /// Closes the connection with this number, if it is still the current one, and opens another.
    pub(super) fn replace(&self, number: u64) {
        self.broken.mark(number);
    }

    /// Closes the current connection, if it is open, and opens another.
    pub(super) fn replace_current(&self) {
        if let State::Up(open) = &*self.state.borrow() {
            self.replace(open.number);
        }
    }
}

/// The task that opens the connection again whenever it breaks.
struct Reconnector {
    context: Arc<ConnectionContext>,
    state: watch::Sender<State>,
    broken: Broken,
}

impl Reconnector {
    async fn keep_open(self) {
        let mut broken = self.broken.0.subscribe();
        let mut pauses = UNSTABLE_PAUSES;
        loop {
            let open = self.connected().await;
            let (number, opened) = (open.number, Instant::now());
            self.state.send_replace(State::Up(open));
            // `self` holds the sender, so this returns only once the connection is marked as broken.
            let _ = broken.wait_for(|broken| *broken >= number).await;
            self.state.send_replace(State::Connecting);
            self.context.closed(number);
            if opened.elapsed() < STABLE_AFTER {
                tokio::time::sleep(pauses.draw()).await;
            } else {
                pauses = UNSTABLE_PAUSES;
            }
        }
    }

    /// Tries to connect until it succeeds.
    async fn connected(&self) -> OpenConnection {
        let (mut pauses, began) = (CONNECT_PAUSES, Instant::now());
        loop {
            let number = LAST_NUMBER.fetch_add(1, Ordering::Relaxed) + 1;
            let mut attempt = pin!(self.context.dialer.connect(&self.context.host, self.pushes(number)));
            let connected = if let Ok(connected) = timeout(DOWN_WAIT, &mut attempt).await {
                connected
            } else {
                // The server may only be slow: this attempt continues, but requests stop waiting for it.
                let error = ConnectionError::unreachable(format!("{} does not answer", self.context.host));
                self.set_down(error, began);
                attempt.await
            };
            match connected {
                Ok((connection, role)) => {
                    let open = OpenConnection::new(number, connection);
                    self.context.opened(&open, role);
                    return open;
                }
                Err(error) => {
                    self.set_down(error, began);
                    self.context.closed(number);
                }
            }
            tokio::time::sleep(pauses.draw()).await;
        }
    }

    /// Makes the error known to requests, and logs it unless it is the same as before.
    fn set_down(&self, error: ConnectionError, began: Instant) {
        if !matches!(&*self.state.borrow(), State::Down(known, _) if *known == error) {
            tracing::warn!(%error, "no connection to Redis");
        }
        self.state.send_replace(State::Down(error, began));
    }

    fn pushes(&self, number: u64) -> Pushes {
        let (context, broken) = (self.context.clone(), self.broken.clone());
        Arc::new(move |push: PushInfo| {
            if push.kind == PushKind::Disconnection {
                broken.mark(number);
            } else {
                context.push(number, push);
            }
        })
    }
}
