//! One connection to one server that is made again whenever it breaks.
//!
//! Requests share it. While it is down for longer than a moment, whoever asks is told at once.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::dial::Pushes;
use super::fault::Trouble;
use super::node::Upkeep;
use crate::types::pauses::Pauses;

/// How long a connection may be down before requests stop waiting for it.
const PATIENCE: Duration = Duration::from_millis(500);

/// Pauses between attempts to connect.
const PAUSES: Pauses = Pauses::new(Duration::from_millis(30), Duration::from_secs(1));

/// How long a connection must have lasted for the next one to be made at once.
const LASTING: Duration = Duration::from_millis(100);

/// Pauses after connections that did not.
const RESPITE: Pauses = Pauses::new(Duration::from_millis(5), Duration::from_millis(50));

/// The last number of a connection in this process.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// A connection that stands.
#[derive(Debug, Clone)]
pub(super) struct Link {
    /// Greater than that of every connection made before it.
    pub(super) number: u64,
    /// To send requests with.
    pub(super) connection: MultiplexedConnection,
    heard: Arc<Heard>,
}

/// When a connection last brought an answer, in milliseconds since it was made.
#[derive(Debug)]
struct Heard {
    made: Instant,
    last: AtomicU64,
}

impl Link {
    fn new(number: u64, connection: MultiplexedConnection) -> Self {
        let heard = Heard { made: Instant::now(), last: AtomicU64::new(0) };
        Self { number, connection, heard: Arc::new(heard) }
    }

    /// Notes that an answer came.
    pub(super) fn heard(&self) {
        self.heard.last.store(self.age(Instant::now()), Ordering::Relaxed);
    }

    /// Whether any answer came since then: if so, the server is slow rather than out of reach.
    pub(super) fn was_heard_since(&self, then: Instant) -> bool {
        self.heard.last.load(Ordering::Relaxed) > self.age(then)
    }

    fn age(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.heard.made).as_millis()).unwrap_or(u64::MAX)
    }
}

/// For how long a request waits for a connection that is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// For a moment: nothing was sent yet.
    Briefly,
    /// Until its time is up: it must be found out what became of what was sent.
    On,
}

/// A connection, made when it is first wanted.
#[derive(Debug)]
pub(super) struct Lane {
    state: watch::Receiver<State>,
    broken: Broken,
    wanted: Arc<Notify>,
    _keeper: JoinSet<()>,
}

#[derive(Debug, Clone)]
enum State {
    /// Being made, or not wanted yet.
    Coming,
    Up(Link),
    /// The last attempt failed; the first one was made then.
    Down(Trouble, Instant),
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

impl Lane {
    /// A connection that is made and made again as `upkeep` says.
    pub(super) fn new(upkeep: Arc<Upkeep>) -> Self {
        let (sender, state) = watch::channel(State::Coming);
        let (broken, wanted) = (Broken(Arc::new(watch::Sender::new(0))), Arc::new(Notify::new()));
        let mut tasks = JoinSet::new();
        let keeper = Keeper { upkeep, state: sender, broken: broken.clone() };
        tasks.spawn({
            let wanted = wanted.clone();
            async move {
                wanted.notified().await;
                keeper.keep().await;
            }
        });
        Self { state, broken, wanted, _keeper: tasks }
    }

    /// Has the connection made if nobody wanted it before.
    pub(super) fn want(&self) {
        self.wanted.notify_one();
    }

    /// The connection. Waits for it; the caller limits for how long.
    pub(super) async fn link(&self, wait: Wait) -> Result<Link, Trouble> {
        if let State::Up(link) = &*self.state.borrow() {
            return Ok(link.clone());
        }
        self.want();
        let settled = |state: &State| match state {
            State::Coming => false,
            State::Up(_) => true,
            State::Down(Trouble::Unfit(_), _) => wait == Wait::Briefly,
            State::Down(Trouble::Away(_) | Trouble::Replica(_), since) => {
                wait == Wait::Briefly && since.elapsed() >= PATIENCE
            }
        };
        let mut state = self.state.clone();
        loop {
            // What is down becomes what is down for too long without a change, so it is looked at again.
            let changed = tokio::time::timeout(PATIENCE / 4, state.wait_for(settled)).await;
            match changed {
                Err(_) => {}
                Ok(Err(_)) => return Err(Trouble::away("the store is closed")),
                Ok(Ok(state)) => match &*state {
                    State::Up(link) => return Ok(link.clone()),
                    State::Down(trouble, _) => return Err(trouble.clone()),
                    State::Coming => {}
                },
            }
        }
    }

    /// The connection if it stands, the trouble if there is one.
    pub(super) fn now(&self) -> Result<Option<Link>, Trouble> {
        match &*self.state.borrow() {
            State::Up(link) => Ok(Some(link.clone())),
            State::Coming => Ok(None),
            State::Down(trouble, _) => Err(trouble.clone()),
        }
    }

    /// Gives up the connection of this number, if it is still in use.
    pub(super) fn give_up(&self, number: u64) {
        self.broken.mark(number);
    }

    /// Gives up the connection that stands now.
    pub(super) fn renew(&self) {
        if let State::Up(link) = &*self.state.borrow() {
            self.give_up(link.number);
        }
    }
}

/// Makes the connection again and again.
struct Keeper {
    upkeep: Arc<Upkeep>,
    state: watch::Sender<State>,
    broken: Broken,
}

impl Keeper {
    async fn keep(self) {
        let mut broken = self.broken.0.subscribe();
        let mut pauses = RESPITE;
        loop {
            let link = self.connected().await;
            let (number, made) = (link.number, Instant::now());
            self.state.send_replace(State::Up(link));
            // The other end is held here, so this returns only for what it waits for.
            let _ = broken.wait_for(|broken| *broken >= number).await;
            self.state.send_replace(State::Coming);
            self.upkeep.down(number);
            if made.elapsed() < LASTING {
                tokio::time::sleep(pauses.draw()).await;
            } else {
                pauses = RESPITE;
            }
        }
    }

    /// Tries until there is a connection.
    async fn connected(&self) -> Link {
        let (mut pauses, began) = (PAUSES, Instant::now());
        loop {
            let number = NUMBERS.fetch_add(1, Ordering::Relaxed) + 1;
            let mut attempt = pin!(self.upkeep.dialer.connect(&self.upkeep.host, self.pushes(number)));
            let connected = if let Ok(connected) = timeout(PATIENCE, &mut attempt).await {
                connected
            } else {
                // It may be only slow. Nobody need wait to find that out.
                let trouble = Trouble::away(format!("{} does not answer", self.upkeep.host));
                self.down(trouble, began);
                attempt.await
            };
            match connected {
                Ok((connection, role)) => {
                    let link = Link::new(number, connection);
                    self.upkeep.up(&link, role);
                    return link;
                }
                Err(trouble) => {
                    self.down(trouble, began);
                    self.upkeep.down(number);
                }
            }
            tokio::time::sleep(pauses.draw()).await;
        }
    }

    /// Says that there is no connection, to the log unless it knows.
    fn down(&self, trouble: Trouble, began: Instant) {
        if !matches!(&*self.state.borrow(), State::Down(known, _) if *known == trouble) {
            tracing::warn!(%trouble, "no connection to Redis");
        }
        self.state.send_replace(State::Down(trouble, began));
    }

    fn pushes(&self, number: u64) -> Pushes {
        let (upkeep, broken) = (self.upkeep.clone(), self.broken.clone());
        Arc::new(move |push: PushInfo| {
            if push.kind == PushKind::Disconnection {
                broken.mark(number);
            } else {
                upkeep.push(number, push);
            }
        })
    }
}
