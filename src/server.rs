//! Where the parts meet: the configuration becomes an agent behind a router, and the router listens.

mod build;
mod counted;
mod entrance;
mod health;
mod kept;
mod layers;
mod listen;
mod mcp;
mod names;
pub mod prices;
mod reload;
pub mod remarks;
pub mod tools;
mod traces;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use self::build::{BuildError, Embedded};
pub use self::reload::Reloader;

use self::build::Clients;
pub use self::listen::bind;
use self::listen::{Bounds, Limits};
use self::traces::Exporting;
use crate::agent::{Agent, Retention};
use crate::api::auth::RequestRates;
use crate::api::{self, MetricsAccess};
use crate::config::{MetricsConfig, Settings, StoreUrl};
use crate::store;
use crate::store::measured::Measured;
use crate::telemetry::metrics::{Connections, Metrics};
use crate::telemetry::run::Telemetry;
use crate::telemetry::traces::export::Exporter;
use crate::tools::mcp::McpServers;

/// How often callers that no longer call are forgotten. Not a setting: it only frees memory.
const TIDY_EVERY: Duration = Duration::from_secs(60);

/// Most open connections of readers of the metrics, if these have an address of their own. Not a setting: there are few.
const METRICS_CONNECTIONS: u32 = 64;

/// Where metrics are read that have an address of their own.
#[derive(Debug)]
struct MetricsDoor {
    address: SocketAddr,
    router: Router,
    listener: Option<TcpListener>,
}

/// Who may read the metrics where requests are answered; and at which other address, and who there.
fn access(config: &MetricsConfig) -> (MetricsAccess, Option<(SocketAddr, MetricsAccess)>) {
    let access = if config.open { MetricsAccess::Public } else { MetricsAccess::Key };
    match (config.enabled, config.listen) {
        (false, _) => (MetricsAccess::Disabled, None),
        (true, None) => (access, None),
        (true, Some(address)) => (MetricsAccess::Disabled, Some((address, access))),
    }
}

/// A server that is ready to listen.
#[derive(Debug)]
pub struct Server {
    agent: Agent,
    rates: Arc<RequestRates>,
    router: Router,
    bounds: Bounds,
    metrics: Option<MetricsDoor>,
    exporter: Option<Exporter>,
    servers: McpServers,
    drain_delay: Duration,
    drain_timeout: Duration,
}

impl Server {
    /// Opens the store and puts the parts together. The settings can be replaced through the [`Reloader`].
    pub async fn build(settings: Settings) -> Result<(Self, Reloader), BuildError> {
        Box::pin(Self::build_with(settings, Embedded::default())).await
    }

    /// The same for a program that has tools and models of its own, which its settings name.
    pub async fn build_with(settings: Settings, embedded: Embedded) -> Result<(Self, Reloader), BuildError> {
        let store = store::open(&settings.store.url, settings.store.tenant_limit, settings.store.backup.as_ref());
        let store = store.await.map_err(BuildError::new)?;
        let metrics =
            if settings.metrics.enabled { Metrics::new(settings.metrics.tenants) } else { Metrics::default() };
        let mut clients = Clients::new(metrics.clone(), embedded);
        let mut settings = settings;
        tools::fetch_documents(&mut settings).await.map_err(BuildError::new)?;
        let (built, mut clients, settings) = Box::pin(build::aside(move || {
            let built = build::generation(&settings, &mut clients, None);
            (built, clients, settings)
        }))
        .await;
        let generation = built?;
        clients.servers.settle();
        remarks::log(&settings);
        let keep = Retention {
            run: settings.store.run_ttl,
            wait: settings.store.wait_ttl,
            session: settings.store.session_ttl,
            history_bytes: settings.store.history_cache,
            ended_bytes: matches!(settings.store.url, StoreUrl::Memory).then_some(settings.store.memory_limit),
            inbox_bytes: settings.server.max_inbox,
            tenant_bytes: settings.store.tenant_limit,
            usage: settings.store.usage_ttl,
            usage_rows: settings.store.usage_rows,
            run_bytes: settings.server.run_memory,
        };
        metrics.know(counted::names(&settings, &generation.tools));
        let store = match metrics.store() {
            Some(counted) => Arc::new(Measured::new(store, counted)),
            None => store,
        };
        let (traces, exporter) = traces::build(&settings.traces, &metrics)?;
        let agent = Agent::observed(store, generation, keep, Telemetry { metrics, traces });
        let rates = Arc::new(RequestRates::default());
        let config = &settings.server;
        let (here, elsewhere) = access(&settings.metrics);
        let server = Self {
            router: layers::apply(api::router(agent.clone(), &rates, here), config, agent.clone()),
            rates,
            bounds: Bounds {
                limits: Limits { connections: config.max_connections, per_address: config.max_connections_per_address },
                header_timeout: config.header_timeout,
                keep_alive: config.keep_alive,
                write_timeout: config.write_timeout,
            },
            metrics: elsewhere.map(|(address, access)| MetricsDoor {
                address,
                router: layers::apply(api::metrics::router(agent.clone(), access), config, agent.clone()),
                listener: None,
            }),
            exporter,
            servers: clients.servers.all(),
            drain_delay: settings.drain_delay(),
            drain_timeout: config.drain_timeout,
            agent: agent.clone(),
        };
        Ok((server, Reloader::new(agent, clients, settings)))
    }

    /// Listens for readers of the metrics, if these have an address of their own. Returns the address.
    pub fn listen_for_metrics(&mut self) -> Result<Option<SocketAddr>, BuildError> {
        let Some(door) = &mut self.metrics else { return Ok(None) };
        let listener = bind(door.address)
            .map_err(|error| BuildError::new(format_args!("cannot listen on {} for metrics: {error}", door.address)))?;
        let address = listener.local_addr().map_err(BuildError::new)?;
        door.listener = Some(listener);
        Ok(Some(address))
    }

    /// The agent that serves its requests.
    #[must_use]
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// The router, for callers in the same process.
    pub fn router(&self) -> Router {
        self.router.clone()
    }

    /// Serves on `listener` until it is told to stop, then drains: readiness goes first, then new
    /// runs are refused, runs end or are left where they are, and connections close.
    pub async fn serve(self, listener: TcpListener, mut stopping: watch::Receiver<Stopping>) {
        self.agent.begin();
        let close = CancellationToken::new();
        let counted = self.agent.metrics().connections();
        let listening = listen::listen(listener, self.router, self.bounds, close.clone(), counted);
        let bounds = Bounds { limits: Limits { connections: METRICS_CONNECTIONS, per_address: None }, ..self.bounds };
        let metrics_close = close.clone();
        let metrics_door = async move {
            let Some(MetricsDoor { router, listener: Some(listener), .. }) = self.metrics else { return };
            listen::listen(listener, router, bounds, metrics_close, Connections::default()).await;
        };
        let tidying = async {
            loop {
                tokio::time::sleep(TIDY_EVERY).await;
                self.rates.tidy();
            }
        };
        let exporting = Exporting::begin(self.exporter, &self.agent);
        let draining = async {
            // Without a sender there will be no order to stop.
            if stopping.wait_for(|stopping| *stopping > Stopping::No).await.is_err() {
                std::future::pending::<()>().await;
            }
            self.agent.announce_end();
            // The line comes after the stage is reached, so that a reader of the log may rely on it.
            tracing::info!("draining");
            let delay = tokio::time::sleep(self.drain_delay);
            tokio::select! {
                () = delay => {}
                _ = stopping.wait_for(|stopping| *stopping > Stopping::AfterDelay) => {}
            }
            self.agent.refuse();
            tokio::select! {
                () = self.agent.idle(self.drain_timeout) => {}
                _ = stopping.wait_for(|stopping| *stopping == Stopping::Now) => {}
            }
            self.agent.leave().await;
            close.cancel();
            // Other replicas drive the runs by now, and nothing waits for a collector but the end of this process.
            tokio::select! {
                () = exporting.end() => {}
                _ = stopping.wait_for(|stopping| *stopping == Stopping::Now) => {}
            }
            // No run calls their tools any more.
            self.servers.close().await;
            self.agent.close().await;
        };
        tokio::select! {
            ((), (), ()) = async { tokio::join!(listening, metrics_door, draining) } => {}
            () = tidying => {}
        }
    }
}

/// How urgently a server is to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stopping {
    /// Not at all.
    No,
    /// Balancers need time to learn of it; runs may end.
    AfterDelay,
    /// No balancer needs time to learn of it; runs may end.
    Soon,
    /// Runs are left where they are.
    Now,
}
