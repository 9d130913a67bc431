//! Metrics: declared, counted and written.
//!
//! A metric is declared where it is registered, and `docs/metrics.md` is made of the declarations. Values of labels
//! are bounded: what names something is counted by its name only if the configuration has the name.

mod bounds;
mod context;
mod declare;
mod family;
mod guards;
mod hooks;
mod http;
mod mcp;
mod models;
mod names;
mod of_run;
mod runs;
mod schedules;
mod store;
#[cfg(test)]
mod tests;
mod text;
mod traces;
mod upstreams;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

pub use self::declare::{Row, to_markdown};
pub use self::hooks::{Delivery, HookMetrics};
pub use self::http::Connections;
pub use self::mcp::{McpMetrics, McpServerState};
pub use self::of_run::RunCounter;
pub use self::schedules::ScheduleMetrics;
pub use self::store::{LeaseLosses, NoticedBy, StoreFailure, StoreMetrics, StoreOperation};
pub use self::text::Format;
pub use self::traces::{TraceFate, TraceMetrics};
pub use self::upstreams::{CallQueueMetrics, RestMetrics, UpstreamMetrics};

use self::declare::Declarations;
use self::family::Family;
use self::http::HttpMetrics;
use self::runs::RunMetrics;
use super::fold::RunFold;
use crate::types::{RunSpec, StopReason, Tenant};

/// Counts what happens in this process, or nothing. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Metrics(Option<Arc<All>>);

#[derive(Debug)]
struct All {
    registry: Registry,
    rows: Vec<Row>,
    runs: Arc<RunMetrics>,
    http: HttpMetrics,
    store: Arc<StoreMetrics>,
    lease_losses: LeaseLosses,
    traces: Arc<TraceMetrics>,
    hooks: HookMetrics,
    schedules: ScheduleMetrics,
    upstreams: UpstreamMetrics,
    mcp: McpMetrics,
    gauges: Gauges,
    by_tenant: bool,
}

/// Most models whose breakers are shown.
const MOST_BREAKERS: usize = 50;
/// The states of a breaker.
const BREAKER_STATES: [&str; 3] = ["closed", "open", "half_open"];

/// What is read when metrics are read.
#[derive(Debug)]
struct Gauges {
    live_runs: Gauge,
    queued_runs: Gauge,
    waiting_runs: Gauge,
    readers: Gauge,
    streams: Gauge,
    reader_lag: Gauge,
    draining: Gauge,
    breakers: Family<Gauge>,
}

/// Where the breaker of a model stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakerState {
    /// The upstream.
    pub upstream: Arc<str>,
    /// The model.
    pub model: Arc<str>,
    /// `closed`, `open` or `half_open`.
    pub state: &'static str,
}

/// What the process holds at the moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Runs that are driven here.
    pub live_runs: usize,
    /// Runs that are registered here and driven nowhere: most wait for their turn in their session.
    pub queued_runs: usize,
    /// Runs of all replicas that wait for their client.
    pub waiting_runs: usize,
    /// Clients that follow runs through this process.
    pub readers: usize,
    /// Those of them that get events as these happen.
    pub streams: usize,
    /// How many events the reader has not taken that is furthest behind its run.
    pub reader_lag: u64,
    /// Whether the process is about to end.
    pub draining: bool,
}

/// The names of the configuration, which are counted by themselves.
#[derive(Debug, Clone, Default)]
pub struct Names {
    /// Agents.
    pub agents: Vec<String>,
    /// Pairs of an upstream and a model, with a slash between them.
    pub models: Vec<String>,
    /// Server-side tools.
    pub tools: Vec<String>,
    /// Tenants.
    pub tenants: Vec<String>,
}

impl Gauges {
    fn declare(to: &mut Declarations) -> Self {
        Self {
            live_runs: to.gauge("live_runs", "Runs that this replica drives."),
            queued_runs: to.gauge(
                "queued_runs",
                "Runs that are registered with this replica and not driven, most of them in the queue of their session; as \
                 of its last look, at most 30 s ago.",
            ),
            waiting_runs: to.gauge(
                "waiting_runs",
                "Runs of all replicas that wait for their client, up to 10,000; as of this replica's last look, about \
                 30 s ago. Take the maximum over replicas, not the sum.",
            ),
            readers: to.gauge("readers", "Requests that follow a run through this replica, streamed or not."),
            streams: to.gauge("streams", "Those of the readers that get events as these happen."),
            reader_lag: to.gauge(
                "reader_lag_events",
                "How many events the reader has not taken that is furthest behind its run, of runs that this replica drives.",
            ),
            breakers: to.gauges(
                "model_breaker",
                &["upstream", "model", "state"],
                "1 for the state in which the circuit breaker of a model is, of models that failed lately: `closed`, `open` (it is \
                 not asked) or `half_open` (one call probes it). Replicas share the state; take the maximum over them.",
            ),
            draining: to.gauge("draining", "1 from the signal to stop until the end of the process."),
        }
    }

    fn set(&self, figures: &Figures) {
        let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        self.live_runs.set(number(figures.live_runs));
        self.queued_runs.set(number(figures.queued_runs));
        self.waiting_runs.set(number(figures.waiting_runs));
        self.readers.set(number(figures.readers));
        self.streams.set(number(figures.streams));
        self.reader_lag.set(i64::try_from(figures.reader_lag).unwrap_or(i64::MAX));
        self.draining.set(i64::from(figures.draining));
    }
}

impl Metrics {
    /// Counts from now on; by tenant too, if that is asked for.
    #[must_use]
    pub fn new(by_tenant: bool) -> Self {
        let mut to = Declarations::new();
        let build = to.gauges("build_info", &["version"], "1, with the version of the server.");
        build.of(&[env!("CARGO_PKG_VERSION")]).set(1);
        let runs = Arc::new(RunMetrics::declare(&mut to));
        let http = HttpMetrics::declare(&mut to);
        let store = Arc::new(StoreMetrics::declare(&mut to));
        let lease_losses = LeaseLosses::declare(&mut to);
        let traces = Arc::new(TraceMetrics::declare(&mut to));
        let hooks = HookMetrics::declare(&mut to);
        let schedules = ScheduleMetrics::declare(&mut to);
        let upstreams = UpstreamMetrics::declare(&mut to);
        let mcp = McpMetrics::declare(&mut to);
        let gauges = Gauges::declare(&mut to);
        let (registry, rows) = to.into_parts();
        Self(Some(Arc::new(All {
            registry,
            rows,
            runs,
            http,
            store,
            lease_losses,
            traces,
            hooks,
            schedules,
            upstreams,
            mcp,
            gauges,
            by_tenant,
        })))
    }

    /// What is counted of the store, if anything is.
    #[must_use]
    pub fn store(&self) -> Option<Arc<StoreMetrics>> {
        self.0.as_ref().map(|all| all.store.clone())
    }

    /// What counts lost leases.
    #[must_use]
    pub fn lease_losses(&self) -> LeaseLosses {
        self.0.as_ref().map(|all| all.lease_losses.clone()).unwrap_or_default()
    }

    /// What counts connections.
    #[must_use]
    pub fn connections(&self) -> Connections {
        self.0.as_ref().map(|all| all.http.connections.clone()).unwrap_or_default()
    }

    /// What is counted of traces, if anything is.
    #[must_use]
    pub fn traces(&self) -> Option<Arc<TraceMetrics>> {
        self.0.as_ref().map(|all| all.traces.clone())
    }

    /// What counts what hooks do.
    #[must_use]
    pub fn hooks(&self) -> HookMetrics {
        self.0.as_ref().map(|all| all.hooks.clone()).unwrap_or_default()
    }

    /// What counts what schedules do.
    #[must_use]
    pub fn schedules(&self) -> ScheduleMetrics {
        self.0.as_ref().map(|all| all.schedules.clone()).unwrap_or_default()
    }

    /// What is counted of upstreams, if anything is.
    #[must_use]
    pub fn upstreams(&self) -> Option<&UpstreamMetrics> {
        self.0.as_ref().map(|all| &all.upstreams)
    }

    /// What counts what becomes of MCP servers.
    #[must_use]
    pub fn mcp(&self) -> McpMetrics {
        self.0.as_ref().map(|all| all.mcp.clone()).unwrap_or_default()
    }

    /// Counts the things of these names by themselves from now on.
    pub fn know(&self, names: Names) {
        let Some(all) = &self.0 else { return };
        all.runs.agents.know(names.agents);
        all.runs.models.know(names.models);
        all.runs.tools.know(names.tools);
        all.runs.tenants.know(names.tenants);
    }

    /// What counts the records of a run that continues where `fold` has it.
    #[must_use]
    pub fn of_run(&self, spec: &RunSpec, fold: impl FnOnce() -> RunFold) -> RunCounter {
        let Some(all) = &self.0 else { return RunCounter::default() };
        RunCounter::new(&all.runs, spec, fold(), all.by_tenant)
    }

    /// Counts the end of a run of this agent and tenant that could not be resumed.
    pub fn failed_run(&self, agent: &str, tenant: &Tenant, reason: StopReason) {
        let Some(all) = &self.0 else { return };
        all.runs.agents.of(agent).finish(reason);
        if all.by_tenant {
            all.runs.tenants.of(tenant.as_str()).finish(reason);
        }
    }

    /// Counts a request that was answered. `route` is one of the table of routes, not a path.
    pub fn answered_request(&self, route: &str, status: u16, after: Duration) {
        if let Some(all) = &self.0 {
            all.http.answered(route, status, after);
        }
    }

    /// Counts an error response.
    pub fn refused_request(&self, code: &'static str) {
        if let Some(all) = &self.0 {
            all.http.refused(code);
        }
    }

    /// Shows where the breakers of these models stand, in place of those before; the first so many of them.
    pub fn show_breakers(&self, states: impl IntoIterator<Item = BreakerState>) {
        let Some(all) = &self.0 else { return };
        all.gauges.breakers.clear();
        for BreakerState { upstream, model, state } in states.into_iter().take(MOST_BREAKERS) {
            for name in BREAKER_STATES {
                all.gauges.breakers.of(&[&upstream, &model, name]).set(i64::from(name == state));
            }
        }
    }

    /// Everything as text; `None` where nothing is counted.
    pub fn write(&self, format: Format, figures: Figures) -> Option<Result<String, fmt::Error>> {
        let all = self.0.as_ref()?;
        all.gauges.set(&figures);
        Some(format.write(&all.registry))
    }

    /// All metrics as they are documented.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        self.0.as_ref().map_or(&[], |all| &all.rows)
    }
}
