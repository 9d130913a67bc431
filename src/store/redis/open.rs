//! Opens the store. Some mistakes keep the replica from starting; others may be mended while it runs.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::task::TaskTracker;

use super::RedisStore;
use super::dial::{Dialer, Mode};
use super::error::ConnectionError;
use super::find::Finder;
use super::nudges::Follower;
use super::operations::Operations;
use super::topology::Topology;
use crate::config::{RedisLayout, RedisUrl};
use crate::store::watch::Topics;

/// How long the start waits for a Redis that does not answer.
const START_TIMEOUT: Duration = Duration::from_secs(3);

/// Why a deployment of Redis is refused. The text names hosts, never passwords.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub(super) String);

/// How the primaries of a deployment are found, and how connections to them are opened.
pub(super) fn ways_in(url: &RedisUrl) -> Result<(Finder, Dialer), Refusal> {
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
    Ok((finder, dialer(&url.login, url.database)?))
}

impl RedisStore {
    /// Opens the store in the deployment that a URL names.
    ///
    /// Fails if a server has wrong settings, is too old, is a replica or refuses the login. Servers that do not
    /// answer are waited for shortly and then looked for in the background; until they are found, every operation
    /// fails as unavailable.
    #[cfg(test)]
    pub async fn open(url: &RedisUrl) -> Result<Self, Refusal> {
        Self::open_for(url, None).await
    }

    /// The same. Warns of servers that have less memory than a tenant may use.
    pub async fn open_for(url: &RedisUrl, tenant_limit: Option<u64>) -> Result<Self, Refusal> {
        let (finder, mut dialer) = ways_in(url)?;
        dialer.tenant_limit = tenant_limit;
        let clock = dialer.clock.clone();
        let own: Arc<str> = uuid::Uuid::now_v7().simple().to_string().into();
        let (events, received) = mpsc::unbounded_channel();
        let topology = Arc::new(Topology::new(finder, dialer, events.clone()));
        let topics = Arc::new(Topics::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(Follower::new(topics.clone(), own.clone(), topology.clone()).follow(received));
        let store = Self {
            name: url.to_string(),
            topology,
            operations: Operations::new(own),
            clock,
            topics,
            events,
            background: TaskTracker::new(),
            _tasks: tasks,
        };
        store.wait_until_usable().await?;
        Ok(store)
    }

    async fn wait_until_usable(&self) -> Result<(), Refusal> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            match timeout_at(deadline, self.topology.usable()).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(ConnectionError::Unfit(what))) => return Err(Refusal(what.to_string())),
                Ok(Err(_)) if Instant::now() < deadline => sleep(START_TIMEOUT / 20).await,
                Ok(Err(ConnectionError::Replica(what))) => return Err(Refusal(what.to_string())),
                Ok(Err(ConnectionError::Unreachable(_))) | Err(_) => {
                    tracing::warn!(store = %self.name, "starting without Redis, which does not answer yet");
                    return Ok(());
                }
            }
        }
    }
}
