//! Nudges between processes: whatever is watched here is a channel that is subscribed to.
//!
//! One connection to each primary carries them. When it broke, whatever it carried is subscribed to
//! again, and everybody who watches looks once, since nudges were lost.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use redis::{FromRedisValue, Pipeline, PushInfo, PushKind, Value};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

use super::fault::{Fault, Trouble};
use super::keys;
use super::lane::Link;
use super::node::{ANSWER, Node};
use super::topology::Topology;
use crate::config::RedisHost;
use crate::store::Topic;
use crate::store::watch::Topics;

/// How often it is looked for what nobody watches any more.
const TIDY_EVERY: Duration = Duration::from_secs(2);

/// How many channels are subscribed to at once.
const BATCH: usize = 256;

/// Something that matters to who follows channels.
#[derive(Debug)]
pub(super) enum Event {
    /// Somebody watches a topic that nobody watched before.
    Watched(Topic),
    /// A connection was made.
    Up(RedisHost, Link),
    /// The connection of this number broke.
    Down(u64),
    /// A connection brought something unasked.
    Push(u64, PushInfo),
    /// Slots may be served by others than before.
    Map,
}

/// Follows the channels of what is watched.
#[derive(Debug)]
pub(super) struct Follower {
    topics: Arc<Topics>,
    /// The name of this process, which needs no nudges of its own.
    own: Arc<str>,
    topology: Arc<Topology>,
    /// Whether the log knows that a server lets nobody subscribe.
    warned: bool,
    links: HashMap<RedisHost, Link>,
    /// The connection that each topic's channel is subscribed to on.
    followed: HashMap<Topic, u64>,
}

impl Follower {
    /// Follows the channels of `topics`.
    pub(super) fn new(topics: Arc<Topics>, own: Arc<str>, topology: Arc<Topology>) -> Self {
        Self { topics, own, topology, warned: false, links: HashMap::new(), followed: HashMap::new() }
    }

    /// Follows until the store is closed.
    pub(super) async fn follow(mut self, mut events: mpsc::UnboundedReceiver<Event>) {
        let mut batch = Vec::with_capacity(BATCH);
        let mut tidy_at = Instant::now() + TIDY_EVERY;
        loop {
            match timeout_at(tidy_at, events.recv_many(&mut batch, BATCH)).await {
                Ok(0) => return,
                Ok(_) => self.heed(batch.drain(..)).await,
                Err(_) => {}
            }
            // However much is going on.
            if Instant::now() >= tidy_at {
                self.tidy().await;
                tidy_at = Instant::now() + TIDY_EVERY;
            }
        }
    }

    async fn heed(&mut self, events: impl Iterator<Item = Event>) {
        let (mut fresh, mut all) = (Vec::new(), false);
        for event in events {
            match event {
                Event::Watched(topic) => fresh.push(topic),
                Event::Up(host, link) => {
                    self.links.insert(host, link);
                    all = true;
                }
                Event::Down(number) => self.links.retain(|_, link| link.number != number),
                Event::Push(number, push) => all |= self.hear(number, &push),
                Event::Map => {
                    let nodes = self.topology.map().borrow().nodes();
                    self.links.retain(|host, _| nodes.iter().any(|node| node.host == *host));
                    all = true;
                }
            }
        }
        if all {
            self.subscribe(self.topics.watched()).await;
        } else if !fresh.is_empty() {
            self.subscribe(fresh).await;
        }
    }

    /// Takes in what a connection brought; whether channels must be subscribed to again.
    fn hear(&mut self, number: u64, push: &PushInfo) -> bool {
        let text = |index: usize| push.data.get(index).and_then(|value| String::from_redis_value_ref(value).ok());
        let Some(topic) = text(0).and_then(|channel| keys::topic(&channel)) else { return false };
        if push.kind == PushKind::SMessage && text(1).as_deref() != Some(&*self.own) {
            self.topics.notify(&topic);
        }
        // Unless the end of a subscription was asked for, the slot went elsewhere.
        let lost = push.kind == PushKind::SUnsubscribe && self.followed.get(&topic) == Some(&number);
        if lost {
            self.followed.remove(&topic);
        }
        lost
    }

    /// Subscribes to the channels of these topics wherever they are served now, and has everybody who
    /// watches them look once.
    async fn subscribe(&mut self, topics: Vec<Topic>) {
        let map = self.topology.map().borrow().clone();
        let mut wanted: HashMap<RedisHost, Vec<Topic>> = HashMap::new();
        for topic in topics {
            let (_, slot) = keys::channel(&topic);
            let Some(node) = map.node(slot) else { continue };
            node.nudges.want();
            let Some(link) = self.links.get(&node.host) else { continue };
            if self.followed.get(&topic) != Some(&link.number) {
                wanted.entry(node.host.clone()).or_default().push(topic);
            }
        }
        for node in map.nodes() {
            for topics in wanted.remove(&node.host).unwrap_or_default().chunks(BATCH) {
                let Some(link) = self.links.get(&node.host).cloned() else { break };
                for topic in topics {
                    self.followed.insert(topic.clone(), link.number);
                }
                let Some(refused) = self.tell(&node, link, "SSUBSCRIBE", topics).await else { break };
                for (topic, _) in topics.iter().zip(refused).filter(|(_, refused)| !refused) {
                    self.topics.notify(topic);
                }
            }
        }
    }

    /// Ends subscriptions that nobody needs, and makes those that are missing.
    async fn tidy(&mut self) {
        let watched = self.topics.watched();
        let mut idle: HashMap<u64, Vec<Topic>> = HashMap::new();
        let needed: HashSet<&Topic> = watched.iter().collect();
        self.followed.retain(|topic, number| {
            let keep = needed.contains(topic);
            if !keep {
                idle.entry(*number).or_default().push(topic.clone());
            }
            keep
        });
        let nodes = self.topology.map().borrow().nodes();
        for node in nodes {
            let Some(link) = self.links.get(&node.host).cloned() else { continue };
            for topics in idle.remove(&link.number).unwrap_or_default().chunks(BATCH) {
                if self.tell(&node, link.clone(), "SUNSUBSCRIBE", topics).await.is_none() {
                    break;
                }
            }
        }
        self.subscribe(watched).await;
    }

    /// Sends a command for each channel; tells which of them the server refused, which are then followed no
    /// more until it is tidied up. Nothing if the connection failed, which is then made again.
    async fn tell(&mut self, node: &Node, mut link: Link, command: &str, topics: &[Topic]) -> Option<Vec<bool>> {
        let mut pipeline = Pipeline::with_capacity(topics.len());
        for topic in topics {
            pipeline.cmd(command).arg(keys::channel(topic).0);
        }
        let answers = timeout(ANSWER, link.connection.send_packed_commands(&pipeline, 0, topics.len())).await;
        let Ok(Ok(answers)) = answers else {
            self.links.remove(&node.host);
            node.nudges.give_up(link.number);
            return None;
        };
        let mut refused = vec![false; topics.len()];
        for ((answer, topic), refused) in answers.iter().zip(topics).zip(&mut refused) {
            let Value::ServerError(error) = answer else { continue };
            *refused = true;
            self.followed.remove(topic);
            let fault = Fault::refusal(error);
            if matches!(fault, Fault::Moved(_)) {
                self.topology.refresh();
            } else if !self.warned {
                self.warned = true;
                let trouble = Trouble::refused(&node.host, error);
                tracing::warn!(%trouble, "Redis refuses subscriptions, so others' news comes late");
            }
        }
        Some(refused)
    }
}
