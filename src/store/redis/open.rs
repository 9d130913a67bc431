//! Opening the store: what must be right before this server starts, and what may come later.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::task::TaskTracker;

use super::RedisStore;
use super::dial::{Dialer, Mode};
use super::fault::Trouble;
use super::find::Finder;
use super::nudges::Follower;
use super::operations::Operations;
use super::topology::Topology;
use crate::config::{RedisLayout, RedisUrl};
use crate::store::watch::Topics;

/// How long a server that is not there holds the start up.
const START: Duration = Duration::from_secs(3);

/// Why a deployment is refused. Names hosts, never passwords.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(String);

impl RedisStore {
    /// Opens the store in the deployment that a URL names.
    ///
    /// Servers that are set up wrongly, too old, replicas, or do not let us in are refused. Servers that are not
    /// there are waited for a moment, and then sought in the background; until they are found, everything
    /// is unavailable.
    pub async fn open(url: &RedisUrl) -> Result<Self, Refusal> {
        let mode = if matches!(url.layout, RedisLayout::Cluster) { Mode::Cluster } else { Mode::Standalone };
        let dialer = |login, database| {
            let dialer = Dialer::new(login, database, url.tls.as_ref(), mode);
            dialer.map_err(|error| Refusal(format!("the certificates to trust cannot be read: {error}")))
        };
        let finder = match &url.layout {
            RedisLayout::Single => Finder::Fixed(url.hosts[0].clone()),
            RedisLayout::Sentinel { master, login } => {
                Finder::Sentinels { hosts: url.hosts.clone(), master: master.clone(), dialer: dialer(login, 0)? }
            }
            RedisLayout::Cluster => Finder::Cluster { hosts: url.hosts.clone(), dialer: dialer(&url.login, 0)? },
        };
        let own: Arc<str> = uuid::Uuid::now_v7().simple().to_string().into();
        let (events, heard) = mpsc::unbounded_channel();
        let topology = Arc::new(Topology::new(finder, dialer(&url.login, url.database)?, events.clone()));
        let topics = Arc::new(Topics::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(Follower::new(topics.clone(), own.clone(), topology.clone()).follow(heard));
        let store = Self {
            name: url.to_string(),
            topology,
            operations: Operations::new(own),
            topics,
            events,
            background: TaskTracker::new(),
            _tasks: tasks,
        };
        store.wait_until_usable().await?;
        Ok(store)
    }

    async fn wait_until_usable(&self) -> Result<(), Refusal> {
        let deadline = Instant::now() + START;
        loop {
            match timeout_at(deadline, self.topology.usable()).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(Trouble::Unfit(what))) => return Err(Refusal(what.to_string())),
                Ok(Err(_)) if Instant::now() < deadline => sleep(START / 20).await,
                Ok(Err(Trouble::Replica(what))) => return Err(Refusal(what.to_string())),
                Ok(Err(Trouble::Away(_))) | Err(_) => {
                    tracing::warn!(store = %self.name, "starting without Redis, which does not answer yet");
                    return Ok(());
                }
            }
        }
    }
}
