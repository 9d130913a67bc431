//! Which server serves which slot: found at the start and kept up to date.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::connection::Wait;
use super::dial::{Dialer, advise};
use super::error::ConnectionError;
use super::event::Event;
use super::find::{Finder, Ranges};
use super::keys::KeySpace;
use super::node::{ANSWER, Node};
use super::replicas::CONFIRM_AFTER_LOSS;
use crate::config::RedisHost;
use crate::store::Partition;
use crate::types::pauses::spread;

/// How often each primary is asked for its role, and Sentinels for the primary.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The same while a primary has lost its last replica lately. Until a check sees the replica again, commits need no
/// confirmation.
const CHECK_SOON: Duration = Duration::from_millis(200);

/// A cluster without errors is asked for its map once in so many checks.
const CHECKS_PER_MAP: u32 = 10;

/// How many partition names are tried to find one in a slot of a certain primary. Only a primary with very few slots
/// is then left without.
const PROBE_NAMES: usize = 4096;

/// The least time between two searches for the primaries.
const SEARCH_INTERVAL: Duration = Duration::from_millis(100);

/// The primaries, and the task that checks for them.
#[derive(Debug)]
pub(super) struct Topology {
    map: watch::Receiver<Map>,
    stale: Arc<Notify>,
    _tasks: JoinSet<()>,
}

/// Which primary serves which slots.
#[derive(Debug, Clone, Default)]
pub(super) struct Map {
    ranges: Vec<(RangeInclusive<u16>, Arc<Node>)>,
    /// Why the last search failed. The ranges are then those of the search before.
    error: Option<ConnectionError>,
}

impl Map {
    /// The primary that serves a slot.
    pub(super) fn node(&self, slot: u16) -> Option<&Arc<Node>> {
        self.ranges.iter().find(|(range, _)| range.contains(&slot)).map(|(_, node)| node)
    }

    /// All primaries, each once.
    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        let mut nodes: Vec<Arc<Node>> = Vec::new();
        for (_, node) in &self.ranges {
            if !nodes.iter().any(|known| Arc::ptr_eq(known, node)) {
                nodes.push(node.clone());
            }
        }
        nodes
    }

    /// A key in one of the slots of this primary.
    fn probe(&self, node: &Arc<Node>) -> Option<String> {
        let mut spaces = (0..PROBE_NAMES).map(|number| KeySpace::of(&Partition::new(format!("health/{number}"))));
        let served = |space: &KeySpace| self.node(space.slot).is_some_and(|serving| Arc::ptr_eq(serving, node));
        spaces.find(served).map(|space| space.probe())
    }

    fn hosts(&self) -> Vec<RedisHost> {
        self.nodes().iter().map(|node| node.host.clone()).collect()
    }

    fn equals(&self, ranges: &Ranges) -> bool {
        let mine = self.ranges.iter().map(|(range, node)| (range, &node.host));
        mine.eq(ranges.iter().map(|(range, host)| (range, host)))
    }
}

impl Topology {
    /// Starts the task that checks for the primaries.
    pub(super) fn new(finder: Finder, dialer: Dialer, events: mpsc::UnboundedSender<Event>) -> Self {
        let stale = Arc::new(Notify::new());
        let (sender, map) = watch::channel(Map::default());
        let (dialer, advised) = (Arc::new(dialer), HashSet::new());
        let keeper = TopologyKeeper { finder, dialer, events, stale: stale.clone(), map: sender, advised };
        let mut tasks = JoinSet::new();
        tasks.spawn(keeper.keep());
        Self { map, stale, _tasks: tasks }
    }

    /// Asks for another search for the primaries.
    pub(super) fn refresh(&self) {
        self.stale.notify_one();
    }

    /// The map and its changes.
    pub(super) fn map(&self) -> watch::Receiver<Map> {
        self.map.clone()
    }

    /// The primary that serves a slot. Waits until it is found; the caller sets the deadline.
    pub(super) async fn node(&self, slot: u16, wait: Wait) -> Result<Arc<Node>, ConnectionError> {
        if let Some(node) = self.map.borrow().node(slot) {
            return Ok(node.clone());
        }
        let mut map = self.map.clone();
        let found = |map: &Map| map.node(slot).is_some() || (wait == Wait::Briefly && map.error.is_some());
        let map = map.wait_for(found).await.map_err(|_| ConnectionError::unreachable("the store is closed"))?;
        match (map.node(slot), &map.error) {
            (Some(node), _) => Ok(node.clone()),
            (None, Some(error)) => Err(error.clone()),
            (None, None) => Err(ConnectionError::unreachable(format!("no server has slot {slot}"))),
        }
    }

    /// Waits until all primaries are found and each is known to be usable, or not.
    pub(super) async fn usable(&self) -> Result<(), ConnectionError> {
        let mut map = self.map.clone();
        let nodes = {
            let found = |map: &Map| !map.ranges.is_empty() || map.error.is_some();
            let map = map.wait_for(found).await.map_err(|_| ConnectionError::unreachable("the store is closed"))?;
            match &map.error {
                Some(error) if map.ranges.is_empty() => return Err(error.clone()),
                Some(_) | None => map.nodes(),
            }
        };
        for usable in join_all(nodes.iter().map(|node| node.usable())).await {
            usable?;
        }
        Ok(())
    }

    /// Checks that every primary still is one and accepts a write.
    pub(super) async fn answers(&self) -> Result<(), ConnectionError> {
        let all = async {
            self.usable().await?;
            let map = self.map.borrow().clone();
            let nodes = map.nodes();
            let asked = nodes.iter().map(async |node| {
                node.check_role().await?;
                match map.probe(node) {
                    Some(key) => node.probe(&key).await,
                    None => Ok(()),
                }
            });
            join_all(asked).await.into_iter().collect()
        };
        timeout(ANSWER, all).await.unwrap_or_else(|_| Err(ConnectionError::unreachable("Redis does not answer")))
    }
}

/// The task that keeps the map up to date.
struct TopologyKeeper {
    finder: Finder,
    dialer: Arc<Dialer>,
    events: mpsc::UnboundedSender<Event>,
    stale: Arc<Notify>,
    map: watch::Sender<Map>,
    /// Servers whose settings were checked.
    advised: HashSet<RedisHost>,
}

impl TopologyKeeper {
    async fn keep(mut self) {
        let mut checks = 0;
        let mut check_at = Instant::now() + CHECK_EVERY;
        let mut replicated = None;
        loop {
            let known = self.map.borrow().hosts();
            match self.finder.find(&known).await {
                Ok(ranges) => self.install(&ranges),
                Err(error) => {
                    if self.map.borrow().error.as_ref() != Some(&error) {
                        tracing::warn!(%error, "cannot find the primary of Redis");
                    }
                    self.map.send_modify(|map| map.error = Some(error));
                }
            }
            tokio::time::sleep(spread(SEARCH_INTERVAL)).await;
            loop {
                let stale = timeout_at(check_at, self.stale.notified()).await.is_ok();
                // Frequent errors must not delay the check: it is also how replicas are noticed.
                if Instant::now() >= check_at {
                    let nodes = self.map.borrow().nodes();
                    let checks = join_all(nodes.iter().map(|node| node.check_role())).await;
                    let lacking = nodes.iter().any(|node| !node.has_replicas());
                    if nodes.iter().any(|node| node.has_replicas()) {
                        replicated = Some(Instant::now());
                    }
                    let lately = replicated.is_some_and(|since| since.elapsed() < CONFIRM_AFTER_LOSS);
                    check_at = Instant::now() + if lacking && lately { CHECK_SOON } else { CHECK_EVERY };
                    for (node, _) in nodes.iter().zip(checks).filter(|(_, check)| check.is_ok()) {
                        self.advise_once(&node.host).await;
                    }
                }
                checks += 1;
                let watched = matches!(self.finder, Finder::Sentinels { .. }) || checks % CHECKS_PER_MAP == 0;
                if !self.finder.is_fixed() && (stale || watched || self.map.borrow().error.is_some()) {
                    break;
                }
            }
        }
    }

    /// Logs, once for each server, which of its settings should be changed.
    async fn advise_once(&mut self, host: &RedisHost) {
        let primaries = self.map.borrow().nodes().len();
        if !self.advised.contains(host) && advise(&self.dialer, host, primaries).await.is_ok() {
            self.advised.insert(host.clone());
        }
    }

    /// Replaces the map. A server that was in it before keeps its connections.
    fn install(&self, ranges: &Ranges) {
        let changed = self.map.send_if_modified(|map| {
            if map.equals(ranges) {
                return map.error.take().is_some();
            }
            let mut nodes = map.nodes();
            let ranges = ranges.iter().map(|(range, host)| {
                let known = nodes.iter().find(|node| node.host == *host).cloned();
                let node = known.unwrap_or_else(|| {
                    let stale = self.stale.clone();
                    nodes.push(Arc::new(Node::new(host.clone(), self.dialer.clone(), stale, self.events.clone())));
                    nodes[nodes.len() - 1].clone()
                });
                (range.clone(), node)
            });
            *map = Map { ranges: ranges.collect(), error: None };
            tracing::info!(primaries = ?map.hosts(), "connecting to Redis");
            true
        });
        if changed {
            // Channels moved with their slots. The receiver is gone once the store is closed.
            let _ = self.events.send(Event::TopologyChanged);
        }
    }
}
