//! The servers that requests name which are open in this process, and how many there may be.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::NotOpened;
use crate::config::{McpServerConfig, RequestMcpConfig};
use crate::tools::mcp::server::{McpServer, McpServers};
use crate::tools::mcp::start::McpClients;
use crate::types::RunId;

/// How often unused servers are looked for, where they are kept for longer.
const SWEEP_EVERY: Duration = Duration::from_secs(10);
/// How long a server is tried again that failed, without a call that needs it.
const TRIED_FOR: Duration = Duration::from_secs(60);

/// The servers that requests name which are open. Cheap to clone; all generations of a process share them.
#[derive(Debug, Clone, Default)]
pub struct KeptNamed(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    all: McpServers,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    places: HashMap<(RunId, String), Place>,
    /// Whether a task looks for those that are unused.
    is_swept: bool,
}

/// A server that is open.
#[derive(Debug)]
struct Place {
    server: Arc<McpServer>,
    owner: Arc<str>,
    used: Instant,
    idle: Duration,
}

impl Place {
    /// Whether it is to end: nothing used it for a while. One that a call uses now is used by more than this.
    fn is_unused(&mut self, now: Instant) -> bool {
        if Arc::strong_count(&self.server) > 1 {
            self.used = now;
            return false;
        }
        let most = if self.server.trouble().is_some() { self.idle.min(TRIED_FOR) } else { self.idle };
        now.duration_since(self.used) >= most
    }
}

impl KeptNamed {
    /// None yet. They end with `servers`.
    #[must_use]
    pub fn beside(servers: &McpServers) -> Self {
        Self(Arc::new(Inner { all: servers.apart(), open: Mutex::default() }))
    }

    /// The server of a run with this name, opened if it is not.
    pub(super) fn get_or_open(
        &self,
        run: &RunId,
        owner: &Arc<str>,
        config: &McpServerConfig,
        (bounds, clients): (&RequestMcpConfig, &McpClients),
    ) -> Result<Arc<McpServer>, NotOpened> {
        let (key, now) = ((run.clone(), config.name.clone()), Instant::now());
        let mut open = self.0.open.lock();
        if let Some(place) = open.places.get_mut(&key) {
            place.used = now;
            return Ok(place.server.clone());
        }
        let of_owner = open.places.values().filter(|place| place.owner == *owner).count();
        if reaches(of_owner, bounds.max_servers_of_key) {
            return Err(NotOpened::TooManyOfKey(bounds.max_servers_of_key));
        }
        if reaches(open.places.len(), bounds.max_servers_of_process) {
            return Err(NotOpened::TooMany(bounds.max_servers_of_process));
        }
        let server = self.0.all.start(config, clients.clone(), false);
        let place = Place { server: server.clone(), owner: owner.clone(), used: now, idle: bounds.idle };
        open.places.insert(key, place);
        if !std::mem::replace(&mut open.is_swept, true) {
            self.0.all.spawn(sweep(self.clone()));
        }
        Ok(server)
    }

    /// Ends those of a run. A call under way goes on.
    pub(super) fn end(&self, run: &RunId) {
        self.0.open.lock().places.retain(|(of, _), _| of != run);
    }

    /// Ends those that were not used for a while. Returns how long to wait until the next are looked for; `None` if there are none.
    fn end_unused(&self) -> Option<Duration> {
        let (mut open, now) = (self.0.open.lock(), Instant::now());
        open.places.retain(|_, place| !place.is_unused(now));
        let shortest = open.places.values().map(|place| place.idle).min();
        open.is_swept = shortest.is_some();
        shortest.map(|idle| idle.min(SWEEP_EVERY))
    }

    /// How many are open.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.0.open.lock().places.len()
    }
}

fn reaches(count: usize, most: u32) -> bool {
    u32::try_from(count).is_ok_and(|count| count >= most) || u32::try_from(count).is_err()
}

/// Ends unused servers as long as there are any.
async fn sweep(kept: KeptNamed) {
    while let Some(pause) = kept.end_unused() {
        sleep(pause).await;
    }
}
