//! One primary: its connections, and whether it has replicas that must confirm what was written.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redis::{Pipeline, PushInfo, Value};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, timeout};

use super::dial::{Dialer, Role, read_role};
use super::fault::Trouble;
use super::lane::{Lane, Link, Wait};
use super::nudges;
use crate::config::RedisHost;

/// How many connections wait for replicas, each for one commit at a time.
const CONFIRMING: usize = 4;

/// How long after the last replica went its confirmation is still asked for.
pub(super) const MISSED: Duration = Duration::from_secs(60);

/// How long a server may take to say what it is.
const SLOWEST_LOOK: Duration = Duration::from_secs(2);

/// How long a server may take to answer.
pub(super) const ANSWER: Duration = Duration::from_secs(1);

/// What requests are told apart by, so that none waits behind another kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Commits and reads.
    Work,
    /// Granting leases and taking them back.
    Leases,
    /// Renewing leases, which lasts longer than anything else: they have seconds left.
    Renewals,
}

impl Purpose {
    /// How long an operation may take in all, and how long a server may take to answer. A request that
    /// fails by one is answered within a second and a half.
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
    work: Lane,
    leases: Lane,
    confirming: [(Lane, AtomicUsize); CONFIRMING],
    /// For what is published.
    pub(super) nudges: Lane,
    replicas: Arc<Replicas>,
    stale: Arc<Notify>,
}

/// What the connections to one server have in common.
#[derive(Debug, Clone)]
pub(super) struct Upkeep {
    pub(super) host: RedisHost,
    pub(super) dialer: Arc<Dialer>,
    replicas: Arc<Replicas>,
    /// Told that this may no longer be the primary.
    stale: Arc<Notify>,
    /// Told what is published.
    nudges: Option<mpsc::UnboundedSender<nudges::Event>>,
}

/// The use of a connection to wait for replicas on, which holds up whoever else uses it.
#[derive(Debug)]
pub(super) struct Confirming<'a> {
    pub(super) lane: &'a Lane,
    users: &'a AtomicUsize,
}

impl Drop for Confirming<'_> {
    fn drop(&mut self) {
        self.users.fetch_sub(1, Ordering::Relaxed);
    }
}

/// When replicas were last connected to a primary.
#[derive(Debug, Default)]
struct Replicas(Mutex<Option<Instant>>);

impl Replicas {
    fn note(&self, role: Role) {
        if role.replicas > 0 {
            *self.0.lock() = Some(Instant::now());
        }
    }

    fn expected(&self) -> bool {
        let seen = *self.0.lock();
        seen.is_some_and(|seen| seen.elapsed() < MISSED)
    }
}

impl Upkeep {
    /// A connection was made.
    pub(super) fn up(&self, link: &Link, role: Role) {
        self.replicas.note(role);
        self.tell(|| nudges::Event::Up(self.host.clone(), link.clone()));
    }

    /// A connection broke or could not be made.
    pub(super) fn down(&self, number: u64) {
        self.stale.notify_one();
        self.tell(|| nudges::Event::Down(number));
    }

    /// The server says something unasked.
    pub(super) fn push(&self, number: u64, push: PushInfo) {
        self.tell(|| nudges::Event::Push(number, push));
    }

    fn tell(&self, event: impl FnOnce() -> nudges::Event) {
        if let Some(nudges) = &self.nudges {
            // Nobody listens once the store is closed.
            let _ = nudges.send(event());
        }
    }
}

impl Node {
    /// A primary at this host. `stale` is notified when it may no longer be one.
    pub(super) fn new(
        host: RedisHost,
        dialer: Arc<Dialer>,
        stale: Arc<Notify>,
        nudges: mpsc::UnboundedSender<nudges::Event>,
    ) -> Self {
        let replicas = Arc::new(Replicas::default());
        let quiet =
            Upkeep { host: host.clone(), dialer, replicas: replicas.clone(), stale: stale.clone(), nudges: None };
        let telling = Arc::new(Upkeep { nudges: Some(nudges), ..quiet.clone() });
        let quiet = Arc::new(quiet);
        let lane = || Lane::new(quiet.clone());
        let node = Self {
            host,
            work: lane(),
            leases: lane(),
            confirming: std::array::from_fn(|_| (lane(), AtomicUsize::new(0))),
            nudges: Lane::new(telling),
            replicas,
            stale,
        };
        node.work.want();
        node.leases.want();
        node
    }

    /// The connection for a purpose.
    pub(super) fn lane(&self, purpose: Purpose) -> &Lane {
        match purpose {
            Purpose::Work => &self.work,
            Purpose::Leases | Purpose::Renewals => &self.leases,
        }
    }

    /// The least busy connection to wait for replicas on, if there are or lately were any.
    pub(super) fn confirming(&self) -> Option<Confirming<'_>> {
        if !self.replicas.expected() {
            return None;
        }
        let (lane, users) = self.confirming.iter().min_by_key(|(_, users)| users.load(Ordering::Relaxed))?;
        users.fetch_add(1, Ordering::Relaxed);
        Some(Confirming { lane, users })
    }

    /// Whether replicas must confirm what is written.
    pub(super) fn has_replicas(&self) -> bool {
        self.replicas.expected()
    }

    /// Asks the server whether it is still the primary; if not, all connections are made again.
    pub(super) async fn look(&self) -> Result<(), Trouble> {
        let Some(link) = self.leases.now()? else { return Ok(()) };
        let mut connection = link.connection.clone();
        let role = redis::cmd("ROLE");
        let asked = Instant::now();
        let answer = timeout(SLOWEST_LOOK, connection.send_packed_command(&role)).await;
        let trouble = match answer {
            Ok(Ok(answer)) => match read_role(&answer, &self.host) {
                Ok(role) => {
                    self.replicas.note(role);
                    return Ok(());
                }
                Err(trouble) => {
                    self.renew();
                    return Err(trouble);
                }
            },
            Ok(Err(error)) => Trouble::away(format!("{}: {error}", self.host)),
            Err(_) if link.was_heard_since(asked) => return Ok(()),
            Err(_) => Trouble::away(format!("{} does not answer", self.host)),
        };
        self.leases.give_up(link.number);
        Err(trouble)
    }

    /// Writes `key`, which is gone in a moment: a full memory, a full disk or too few replicas refuse that.
    pub(super) async fn probe(&self, key: &str) -> Result<(), Trouble> {
        let mut link = self.work.link(Wait::Briefly).await?;
        let mut write = Pipeline::with_capacity(1);
        write.cmd("SET").arg(key).arg("").arg("PX").arg(1000);
        match link.connection.send_packed_commands(&write, 0, 1).await.as_deref() {
            Ok([Value::ServerError(error)]) => {
                self.stale.notify_one();
                Err(Trouble::refused(&self.host, error))
            }
            Ok(_) => Ok(()),
            Err(error) => Err(Trouble::away(format!("{}: {error}", self.host))),
        }
    }

    /// Makes all connections again.
    pub(super) fn renew(&self) {
        let confirming = self.confirming.iter().map(|(lane, _)| lane);
        for lane in [&self.work, &self.leases, &self.nudges].into_iter().chain(confirming) {
            lane.renew();
        }
    }

    /// Returns once it is known whether the server can be used.
    pub(super) async fn usable(&self) -> Result<(), Trouble> {
        self.work.link(Wait::Briefly).await.map(drop)
    }
}
