//! Nudges between processes: each topic that this process watches is a sharded channel that it subscribes to.
//!
//! One connection to each primary carries the subscriptions. When that connection breaks, its channels are
//! subscribed to again, and the watchers of their topics are nudged once, since nudges may have been lost.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use redis::{FromRedisValue, Pipeline, PushInfo, PushKind, Value};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

use super::error::{AttemptError, ConnectionError};
use super::event::Event;
use super::keys;
use super::node::{ANSWER, Node};
use super::open_connection::OpenConnection;
use super::topology::Topology;
use crate::config::RedisHost;
use crate::store::Topic;
use crate::store::watch::Topics;

/// How often channels that no task watches any more are unsubscribed from.
const TIDY_EVERY: Duration = Duration::from_secs(2);

/// How many channels one exchange subscribes to.
const BATCH: usize = 256;

/// The task that keeps this process subscribed to the channels of the topics that its tasks watch.
#[derive(Debug)]
pub(super) struct Follower {
    topics: Arc<Topics>,
    /// The name of this process. Its own nudges were delivered without Redis.
    own: Arc<str>,
    topology: Arc<Topology>,
    /// Whether it was logged that a server refuses subscriptions.
    warned: bool,
    connections: HashMap<RedisHost, OpenConnection>,
    /// The number of the connection that carries the subscription of each topic.
    subscribed: HashMap<Topic, u64>,
}

impl Follower {
    /// Follows the channels of the topics that are watched in `topics`.
    pub(super) fn new(topics: Arc<Topics>, own: Arc<str>, topology: Arc<Topology>) -> Self {
        Self { topics, own, topology, warned: false, connections: HashMap::new(), subscribed: HashMap::new() }
    }

    /// Follows until the store is closed.
    pub(super) async fn follow(mut self, mut events: mpsc::UnboundedReceiver<Event>) {
        let mut batch = Vec::with_capacity(BATCH);
        let mut tidy_at = Instant::now() + TIDY_EVERY;
        loop {
            match timeout_at(tidy_at, events.recv_many(&mut batch, BATCH)).await {
                Ok(0) => return,
                Ok(_) => self.handle(batch.drain(..)).await,
                Err(_) => {}
            }
            // Events that never cease must not keep this from happening.
            if Instant::now() >= tidy_at {
                self.tidy().await;
                tidy_at = Instant::now() + TIDY_EVERY;
            }
        }
    }

    async fn handle(&mut self, events: impl Iterator<Item = Event>) {
        let (mut new, mut resubscribe) = (Vec::new(), false);
        for event in events {
            match event {
                Event::Watched(topic) => new.push(topic),
                Event::Opened(host, open) => {
                    self.connections.insert(host, open);
                    resubscribe = true;
                }
                Event::Closed(number) => self.connections.retain(|_, open| open.number != number),
                Event::Push(number, push) => resubscribe |= self.handle_push(number, &push),
                Event::TopologyChanged => {
                    let nodes = self.topology.map().borrow().nodes();
                    self.connections.retain(|host, _| nodes.iter().any(|node| node.host == *host));
                    resubscribe = true;
                }
            }
        }
        if resubscribe {
            self.subscribe(self.topics.watched()).await;
        } else if !new.is_empty() {
            self.subscribe(new).await;
        }
    }

    /// Delivers a message, or notes the end of a subscription. Returns whether channels must be subscribed to again.
    fn handle_push(&mut self, number: u64, push: &PushInfo) -> bool {
        let text = |index: usize| push.data.get(index).and_then(|value| String::from_redis_value_ref(value).ok());
        let Some(topic) = text(0).and_then(|channel| keys::topic(&channel)) else { return false };
        if push.kind == PushKind::SMessage && text(1).as_deref() != Some(&*self.own) {
            self.topics.notify(&topic);
        }
        // A subscription that ends unasked was to a slot that moved to another server.
        let lost = push.kind == PushKind::SUnsubscribe && self.subscribed.get(&topic) == Some(&number);
        if lost {
            self.subscribed.remove(&topic);
        }
        lost
    }

    /// Subscribes to the channels of these topics at the servers that serve their slots now, and then nudges their
    /// watchers once.
    async fn subscribe(&mut self, topics: Vec<Topic>) {
        let map = self.topology.map().borrow().clone();
        let mut wanted: HashMap<RedisHost, Vec<Topic>> = HashMap::new();
        for topic in topics {
            let (_, slot) = keys::channel(&topic);
            let Some(node) = map.node(slot) else { continue };
            node.nudges.request();
            let Some(open) = self.connections.get(&node.host) else { continue };
            if self.subscribed.get(&topic) != Some(&open.number) {
                wanted.entry(node.host.clone()).or_default().push(topic);
            }
        }
        for node in map.nodes() {
            for topics in wanted.remove(&node.host).unwrap_or_default().chunks(BATCH) {
                let Some(open) = self.connections.get(&node.host).cloned() else { break };
                for topic in topics {
                    self.subscribed.insert(topic.clone(), open.number);
                }
                let Some(refused) = self.send(&node, open, "SSUBSCRIBE", topics).await else { break };
                for (topic, _) in topics.iter().zip(refused).filter(|(_, refused)| !refused) {
                    self.topics.notify(topic);
                }
            }
        }
    }

    /// Unsubscribes from channels that no task watches, and subscribes to those that are missing.
    async fn tidy(&mut self) {
        let watched = self.topics.watched();
        let mut idle: HashMap<u64, Vec<Topic>> = HashMap::new();
        let needed: HashSet<&Topic> = watched.iter().collect();
        self.subscribed.retain(|topic, number| {
            let keep = needed.contains(topic);
            if !keep {
                idle.entry(*number).or_default().push(topic.clone());
            }
            keep
        });
        let nodes = self.topology.map().borrow().nodes();
        for node in nodes {
            let Some(open) = self.connections.get(&node.host).cloned() else { continue };
            for topics in idle.remove(&open.number).unwrap_or_default().chunks(BATCH) {
                if self.send(&node, open.clone(), "SUNSUBSCRIBE", topics).await.is_none() {
                    break;
                }
            }
        }
        self.subscribe(watched).await;
    }

    /// Sends a command for each channel and returns which of them the server refused; [`tidy`](Self::tidy) tries these
    /// again. Returns `None` if the connection failed, which is then opened again.
    async fn send(
        &mut self,
        node: &Node,
        mut open: OpenConnection,
        command: &str,
        topics: &[Topic],
    ) -> Option<Vec<bool>> {
        let mut pipeline = Pipeline::with_capacity(topics.len());
        for topic in topics {
            pipeline.cmd(command).arg(keys::channel(topic).0);
        }
        let answers = timeout(ANSWER, open.multiplexed.send_packed_commands(&pipeline, 0, topics.len())).await;
        let Ok(Ok(answers)) = answers else {
            self.connections.remove(&node.host);
            node.nudges.replace(open.number);
            return None;
        };
        let mut refused = vec![false; topics.len()];
        for ((answer, topic), refused) in answers.iter().zip(topics).zip(&mut refused) {
            let Value::ServerError(error) = answer else { continue };
            *refused = true;
            self.subscribed.remove(topic);
            let fault = AttemptError::refusal(error);
            if matches!(fault, AttemptError::Moved(_)) {
                self.topology.refresh();
            } else if !self.warned {
                self.warned = true;
                let error = ConnectionError::refused(&node.host, error);
                tracing::warn!(%error, "Redis refuses subscriptions; this replica notices changes by others late");
            }
        }
        Some(refused)
    }
}
