//! Which server serves which slot, kept up to date.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::dial::{Dialer, advise};
use super::fault::Trouble;
use super::find::{Finder, Ranges};
use super::keys::Place;
use super::lane::Wait;
use super::node::{ANSWER, MISSED, Node};
use super::nudges;
use crate::config::RedisHost;
use crate::store::Partition;
use crate::types::pauses::spread;

/// How often primaries are asked whether they still are, and Sentinels who is.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The same while a primary has none of the replicas that there were lately: what is written counts without
/// them until they are seen again.
const LOOK_SOON: Duration = Duration::from_millis(200);

/// How many looks it takes until a cluster that gives no cause is asked for its map.
const LOOKS_PER_MAP: u32 = 10;

/// How many names are tried to find one in a slot of a primary: enough for all but the smallest shares.
const PROBES: usize = 4096;

/// From one search to the next, however often it is asked for.
const BREATH: Duration = Duration::from_millis(100);

/// The primaries.
#[derive(Debug)]
pub(super) struct Topology {
    map: watch::Receiver<Map>,
    stale: Arc<Notify>,
    _tasks: JoinSet<()>,
}

/// Who serves what now.
#[derive(Debug, Clone, Default)]
pub(super) struct Map {
    ranges: Vec<(RangeInclusive<u16>, Arc<Node>)>,
    /// Why the last search found nothing; the map is then that of the search before.
    trouble: Option<Trouble>,
}

impl Map {
    /// Who serves a slot.
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

    /// A key that this primary serves.
    fn probe(&self, node: &Arc<Node>) -> Option<String> {
        let mut places = (0..PROBES).map(|number| Place::of(&Partition::new(format!("health/{number}"))));
        let served = |place: &Place| self.node(place.slot).is_some_and(|serving| Arc::ptr_eq(serving, node));
        places.find(served).map(|place| place.probe())
    }

    fn hosts(&self) -> Vec<RedisHost> {
        self.nodes().iter().map(|node| node.host.clone()).collect()
    }

    fn is(&self, ranges: &Ranges) -> bool {
        let mine = self.ranges.iter().map(|(range, node)| (range, &node.host));
        mine.eq(ranges.iter().map(|(range, host)| (range, host)))
    }
}

impl Topology {
    /// Starts to look for the primaries.
    pub(super) fn new(finder: Finder, dialer: Dialer, nudges: mpsc::UnboundedSender<nudges::Event>) -> Self {
        let stale = Arc::new(Notify::new());
        let (sender, map) = watch::channel(Map::default());
        let (dialer, advised) = (Arc::new(dialer), HashSet::new());
        let keeper = Keeper { finder, dialer, nudges, stale: stale.clone(), map: sender, advised };
        let mut tasks = JoinSet::new();
        tasks.spawn(keeper.keep());
        Self { map, stale, _tasks: tasks }
    }

    /// Has the primaries looked for again.
    pub(super) fn refresh(&self) {
        self.stale.notify_one();
    }

    /// Who serves what now.
    pub(super) fn map(&self) -> watch::Receiver<Map> {
        self.map.clone()
    }

    /// Who serves a slot. Waits for it; the caller limits for how long.
    pub(super) async fn node(&self, slot: u16, wait: Wait) -> Result<Arc<Node>, Trouble> {
        if let Some(node) = self.map.borrow().node(slot) {
            return Ok(node.clone());
        }
        let mut map = self.map.clone();
        let settled = |map: &Map| map.node(slot).is_some() || (wait == Wait::Briefly && map.trouble.is_some());
        let map = map.wait_for(settled).await.map_err(|_| Trouble::away("the store is closed"))?;
        match (map.node(slot), &map.trouble) {
            (Some(node), _) => Ok(node.clone()),
            (None, Some(trouble)) => Err(trouble.clone()),
            (None, None) => Err(Trouble::away(format!("nobody serves slot {slot}"))),
        }
    }

    /// Returns once all primaries are found and can be used, or the trouble with that.
    pub(super) async fn usable(&self) -> Result<(), Trouble> {
        let mut map = self.map.clone();
        let nodes = {
            let found = |map: &Map| !map.ranges.is_empty() || map.trouble.is_some();
            let map = map.wait_for(found).await.map_err(|_| Trouble::away("the store is closed"))?;
            match &map.trouble {
                Some(trouble) if map.ranges.is_empty() => return Err(trouble.clone()),
                Some(_) | None => map.nodes(),
            }
        };
        for usable in join_all(nodes.iter().map(|node| node.usable())).await {
            usable?;
        }
        Ok(())
    }

    /// Returns once all primaries said that they are and took a write, or the trouble with that.
    pub(super) async fn answers(&self) -> Result<(), Trouble> {
        let all = async {
            self.usable().await?;
            let map = self.map.borrow().clone();
            let nodes = map.nodes();
            let asked = nodes.iter().map(async |node| {
                node.look().await?;
                match map.probe(node) {
                    Some(key) => node.probe(&key).await,
                    None => Ok(()),
                }
            });
            join_all(asked).await.into_iter().collect()
        };
        timeout(ANSWER, all).await.unwrap_or_else(|_| Err(Trouble::away("Redis does not answer")))
    }
}

struct Keeper {
    finder: Finder,
    dialer: Arc<Dialer>,
    nudges: mpsc::UnboundedSender<nudges::Event>,
    stale: Arc<Notify>,
    map: watch::Sender<Map>,
    /// Servers that were looked over.
    advised: HashSet<RedisHost>,
}

impl Keeper {
    async fn keep(mut self) {
        let mut looks = 0;
        let mut look_at = Instant::now() + LOOK_EVERY;
        let mut replicated = None;
        loop {
            let known = self.map.borrow().hosts();
            match self.finder.find(&known).await {
                Ok(ranges) => self.install(&ranges),
                Err(trouble) => {
                    if self.map.borrow().trouble.as_ref() != Some(&trouble) {
                        tracing::warn!(%trouble, "cannot find the primary of Redis");
                    }
                    self.map.send_modify(|map| map.trouble = Some(trouble));
                }
            }
            tokio::time::sleep(spread(BREATH)).await;
            loop {
                let stale = timeout_at(look_at, self.stale.notified()).await.is_ok();
                // However often something is amiss: looking is also how replicas are seen.
                if Instant::now() >= look_at {
                    let nodes = self.map.borrow().nodes();
                    let looks = join_all(nodes.iter().map(|node| node.look())).await;
                    let lacking = nodes.iter().any(|node| !node.has_replicas());
                    if nodes.iter().any(|node| node.has_replicas()) {
                        replicated = Some(Instant::now());
                    }
                    let lately = replicated.is_some_and(|since| since.elapsed() < MISSED);
                    look_at = Instant::now() + if lacking && lately { LOOK_SOON } else { LOOK_EVERY };
                    for (node, _) in nodes.iter().zip(looks).filter(|(_, look)| look.is_ok()) {
                        self.look_over(&node.host).await;
                    }
                }
                looks += 1;
                let watched = matches!(self.finder, Finder::Sentinels { .. }) || looks % LOOKS_PER_MAP == 0;
                if !self.finder.is_fixed() && (stale || watched || self.map.borrow().trouble.is_some()) {
                    break;
                }
            }
        }
    }

    /// Tells the log once what could be better about a server.
    async fn look_over(&mut self, host: &RedisHost) {
        if !self.advised.contains(host) && advise(&self.dialer, host).await.is_ok() {
            self.advised.insert(host.clone());
        }
    }

    /// Makes this the map. Servers that were known before keep their connections.
    fn install(&self, ranges: &Ranges) {
        let changed = self.map.send_if_modified(|map| {
            if map.is(ranges) {
                return map.trouble.take().is_some();
            }
            let mut nodes = map.nodes();
            let ranges = ranges.iter().map(|(range, host)| {
                let known = nodes.iter().find(|node| node.host == *host).cloned();
                let node = known.unwrap_or_else(|| {
                    let stale = self.stale.clone();
                    nodes.push(Arc::new(Node::new(host.clone(), self.dialer.clone(), stale, self.nudges.clone())));
                    nodes[nodes.len() - 1].clone()
                });
                (range.clone(), node)
            });
            *map = Map { ranges: ranges.collect(), trouble: None };
            tracing::info!(primaries = ?map.hosts(), "found Redis");
            true
        });
        if changed {
            // Channels lie elsewhere now. Nobody listens once the store is closed.
            let _ = self.nudges.send(nudges::Event::Map);
        }
    }
}
