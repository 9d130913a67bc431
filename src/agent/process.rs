//! How the agent begins, drains and ends with its process.

use std::sync::Arc;
use std::time::Duration;

use crate::agent::Agent;
use crate::agent::rooms::Rooms;
use crate::llm::health::ModelStanding;
use crate::llm::health::breaker::Standing;
use crate::store::Unavailable;
use crate::telemetry::metrics::{BreakerState, Figures, McpServerState};
use crate::tools::definitions::own_name;
use crate::tools::{RegisteredTool, ToolSource};

/// How often a draining process looks whether its runs have ended.
const IDLE_POLL: Duration = Duration::from_millis(20);

impl Agent {
    /// Begins the background work: it renews leases and lists of models, resumes orphaned runs, does what is due, fires schedules,
    /// removes files that no session and no run needs, shortens conversations after runs, and releases slots without a run. It ends when the agent has drained.
    pub fn begin(&self) {
        self.beside_runs("renewing leases", |rooms| async move { rooms.ownership.leases.keep().await });
        self.beside_runs("watching replicas", |rooms| async move { rooms.ownership.watch_replicas().await });
        self.beside_runs("finding runs without a driver", |rooms| async move { rooms.recovery.sweep().await });
        self.beside_runs("doing what is due", |rooms| async move { rooms.recovery.sweep_due().await });
        self.beside_runs("firing schedules", |rooms| async move {
            rooms.schedules.keep(&rooms.lifecycle).await;
        });
        self.beside_runs("removing files", |rooms| async move { rooms.recovery.sweep_workspaces().await });
        self.beside_runs("shortening conversations", |rooms| async move {
            rooms.admission.clone().compact_after_runs().await;
        });
        self.beside_runs("freeing slots", |rooms| async move { rooms.limits.sweep_slots(&rooms.generations).await });
        self.beside_runs("sharing the health of upstreams", |rooms| async move { rooms.health.keep().await });
        self.beside_runs("agreeing on tools", |rooms| async move { rooms.definitions.keep().await });
        self.beside_runs("listing models", |rooms| async move { rooms.generations.keep_models_fresh().await });
    }

    /// Does `work` in a task of its own, so that a failure does not stop other work.
    fn beside_runs<F>(&self, what: &'static str, work: impl Fn(Arc<Rooms>) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let rooms = self.rooms.clone();
        self.rooms.lifecycle.spawn_supervised(what, move || work(rooms.clone()));
    }

    /// Announces that the process is about to end. New runs are still accepted. If other replicas can resume them, runs
    /// are handed over before their next step.
    pub fn announce_end(&self) {
        self.rooms.lifecycle.announce_end();
    }

    /// Takes no new runs from now on.
    pub fn refuse(&self) {
        self.rooms.lifecycle.refuse();
    }

    /// Returns once no run is driven and followed here and all that ended are counted, but for those that could not be, or
    /// after `timeout`.
    pub async fn idle(&self, timeout: Duration) {
        let Rooms { active, lifecycle, launcher, .. } = &*self.rooms;
        let idle = async {
            while active.len() > 0 || lifecycle.readers() > 0 || !launcher.uncounted.have_been_tried() {
                tokio::time::sleep(IDLE_POLL).await;
            }
        };
        if tokio::time::timeout(timeout, idle).await.is_err() {
            let (runs, readers) = (active.len(), lifecycle.readers());
            tracing::warn!(runs, readers, "runs did not end within drain_timeout; they are resumed later");
        }
    }

    /// Stops driving the runs that are still live. The logs of the runs are their checkpoints: other replicas resume them,
    /// or the next process that opens the store.
    pub async fn leave(&self) {
        self.rooms.lifecycle.leave().await;
        if let Err(error) = self.rooms.ownership.replica.retire().await {
            tracing::warn!(%error, "could not unregister this replica; the others will find that it is gone");
        }
    }

    /// Leaves the runs, and closes the store.
    pub async fn close(&self) {
        self.leave().await;
        self.rooms.ledger.store().close().await;
    }

    /// Whether the process is about to end.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.rooms.lifecycle.is_ending()
    }

    /// Whether the store takes commits.
    pub async fn health(&self) -> Result<(), Unavailable> {
        self.rooms.ledger.store().health().await
    }

    /// The first upstream without which the process is not ready, and which is left alone because its calls fail.
    #[must_use]
    pub fn missing_upstream(&self) -> Option<String> {
        let generation = self.generation();
        let needed: Vec<&str> = generation.catalog.needed().collect();
        if needed.is_empty() {
            return None;
        }
        let standings = generation.health.standings();
        let failing = standings.iter().find(|model| model.is_failing() && needed.contains(&&*model.upstream));
        failing.map(|model| model.upstream.to_string())
    }

    /// Whether a server of tools that was started with the process is still to list its tools. One that fails to is waited for no
    /// longer.
    #[must_use]
    pub fn awaits_tools(&self) -> bool {
        let generation = self.generation();
        let now = generation.tools.current();
        let is_known = |tool: &Arc<RegisteredTool>| {
            let name = &tool.spec().name;
            now.get(name).is_some() || now.held().contains_key(name)
        };
        generation.servers.iter().any(|server| {
            let listed = server.tools().filter(|tools| !tools.is_empty());
            server.is_awaited() || listed.is_some_and(|tools| !tools.iter().any(is_known))
        })
    }

    /// How the MCP servers of the configuration are doing.
    #[must_use]
    pub fn mcp_servers(&self) -> Vec<McpServerState> {
        let generation = self.generation();
        let now = generation.tools.current();
        let states = generation.servers.iter().map(|server| {
            let is_own = |tool: &&String| own_name(server.name(), tool).is_some();
            let held = now.held().keys().filter(is_own).count();
            McpServerState { name: server.name().to_owned(), state: server.standing(), held }
        });
        states.collect()
    }

    /// Where the breakers of models stand that failed lately, those that are not closed first.
    #[must_use]
    pub fn breakers(&self) -> Vec<BreakerState> {
        let mut standings = self.generation().health.standings();
        standings.sort_by_key(|model| model.standing == Standing::Closed);
        let states = standings.into_iter().map(|ModelStanding { upstream, model, standing, .. }| {
            let state = match standing {
                Standing::Closed => "closed",
                Standing::Open => "open",
                Standing::HalfOpen => "half_open",
            };
            BreakerState { upstream, model, state }
        });
        states.collect()
    }

    /// What the process holds now, for its metrics.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let Rooms { active, lifecycle, recovery, .. } = &*self.rooms;
        Figures {
            live_runs: active.len(),
            queued_runs: recovery.backlog.queued(),
            waiting_runs: recovery.backlog.waiting(),
            readers: lifecycle.readers(),
            streams: lifecycle.streams(),
            reader_lag: active.reader_lag(),
            draining: lifecycle.is_ending(),
        }
    }

    /// How many runs are driven here.
    #[must_use]
    pub fn active_runs(&self) -> usize {
        self.rooms.active.len()
    }
}
