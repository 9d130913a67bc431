//! Where the parts meet: the configuration becomes an agent behind a router, and the router listens.

mod layers;
mod listen;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::agent::catalog::{Catalog, Upstream};
use crate::agent::{Agent, Generation, Quotas, Retention};
use crate::api;
use crate::api::callers::RequestRates;
use crate::config::{OpenAiUpstream, Settings, UpstreamKind};
use crate::llm::Model;
use crate::llm::demo::DemoModel;
use crate::llm::http::{ApiKey, http_client};
use crate::llm::openai::{OpenAiModel, OpenAiSettings};
use crate::llm::retry::{RetryPolicy, Retrying};
use crate::store;
use crate::tools::Registry;
use crate::tools::builtin;
use crate::tools::http::{HttpTool, HttpToolDefinition};

/// How often addresses that no longer call are forgotten.
const TIDY_EVERY: Duration = Duration::from_secs(60);

/// Why a server could not be built.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BuildError(String);

/// A server that is ready to listen.
#[derive(Debug)]
pub struct Server {
    agent: Agent,
    rates: Arc<RequestRates>,
    router: Router,
    settings: Settings,
}

impl Server {
    /// Opens the store and puts the parts together.
    pub async fn build(settings: Settings) -> Result<Self, BuildError> {
        let store = store::open(&settings.store.url).await.map_err(failed)?;
        let mut upstreams = Vec::new();
        for upstream in &settings.upstreams {
            upstreams.push(Arc::new(match &upstream.kind {
                UpstreamKind::Demo => {
                    Upstream::new(upstream.name.clone(), Arc::new(DemoModel::default()), Some(vec!["demo".to_owned()]))
                }
                UpstreamKind::OpenAi(openai) => {
                    Upstream::new(upstream.name.clone(), openai_model(&upstream.name, openai)?, openai.models.clone())
                }
            }));
        }
        let catalog = Catalog::new(settings.agents.clone(), upstreams, settings.models.clone());
        let store_settings = &settings.store;
        let keep = Retention {
            run: store_settings.run_ttl,
            session: store_settings.session_ttl,
            history_bytes: store_settings.history_cache,
        };
        let generation = Generation {
            catalog,
            tools: registry(&settings)?,
            quotas: Quotas::new(&settings.keys),
            keys: settings.keys.iter().map(|key| (key.hash, key.clone())).collect(),
            requests_per_minute: settings.server.requests_per_minute,
        };
        let agent = Agent::new(store, generation, keep);
        let rates = Arc::new(RequestRates::default());
        let router = layers::apply(api::router(agent.clone(), &rates), &settings.server);
        Ok(Self { agent, rates, router, settings })
    }

    /// The agent behind the doors.
    #[must_use]
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// The doors, for callers in the same process.
    pub fn router(&self) -> Router {
        self.router.clone()
    }

    /// Serves on `listener` until it is told to stop, then drains: readiness goes first, then new
    /// runs are refused, runs end or are left where they are, and connections close.
    pub async fn serve(self, listener: TcpListener, mut stopping: watch::Receiver<Stopping>) {
        self.agent.begin();
        let close = CancellationToken::new();
        let max_connections = self.settings.server.max_connections;
        let listening = listen::listen(listener, self.router, max_connections, close.clone());
        let tidying = async {
            loop {
                tokio::time::sleep(TIDY_EVERY).await;
                self.rates.tidy();
            }
        };
        let draining = async {
            // Without a sender nobody can stop it.
            if stopping.wait_for(|stopping| *stopping > Stopping::No).await.is_err() {
                std::future::pending::<()>().await;
            }
            tracing::info!("draining");
            self.agent.announce_end();
            let delay = tokio::time::sleep(self.settings.server.drain_delay);
            tokio::select! {
                () = delay => {}
                _ = stopping.wait_for(|stopping| *stopping > Stopping::AfterDelay) => {}
            }
            self.agent.refuse();
            tokio::select! {
                () = self.agent.idle(self.settings.server.drain_timeout) => {}
                _ = stopping.wait_for(|stopping| *stopping == Stopping::Now) => {}
            }
            self.agent.close().await;
            close.cancel();
        };
        tokio::select! {
            ((), ()) = async { tokio::join!(listening, draining) } => {}
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
    /// Nobody needs to learn of it; runs may end.
    Soon,
    /// Runs are left where they are.
    Now,
}

fn openai_model(name: &str, upstream: &OpenAiUpstream) -> Result<Arc<dyn Model>, BuildError> {
    let client = http_client(upstream.connect_timeout).map_err(failed)?;
    let settings = OpenAiSettings {
        name: name.to_owned(),
        base_url: upstream.base_url.clone(),
        api_key: upstream.api_key.as_ref().map(|key| ApiKey::new(key.expose())),
        first_byte_timeout: upstream.first_byte_timeout,
        idle_timeout: upstream.idle_timeout,
        recover_text_tool_calls: upstream.recover_text_tool_calls,
    };
    let model = OpenAiModel::new(settings, client).map_err(failed)?;
    Ok(Arc::new(Retrying::new(Arc::new(model), RetryPolicy::default())))
}

fn registry(settings: &Settings) -> Result<Registry, BuildError> {
    let mut tools = builtin::all();
    if !settings.tools.is_empty() {
        let client = crate::tools::http::client().map_err(failed)?;
        for tool in &settings.tools {
            let definition = HttpToolDefinition {
                name: tool.name.clone(),
                description: tool.description.clone(),
                method: tool.method.clone(),
                url: tool.url.clone(),
                effect: tool.effect,
                headers: tool
                    .headers
                    .iter()
                    .map(|(name, value)| Ok((name.clone(), secret(value.expose())?)))
                    .collect::<Result<_, _>>()?,
                parameters: tool.parameters.clone(),
                timeout: tool.timeout,
                max_response_bytes: usize::try_from(tool.max_response).unwrap_or(usize::MAX),
            };
            tools.push(Arc::new(HttpTool::new(definition, client.clone()).map_err(failed)?));
        }
    }
    Registry::new(tools).map_err(failed)
}

fn secret(value: &str) -> Result<http::HeaderValue, BuildError> {
    let mut value = http::HeaderValue::from_str(value).map_err(failed)?;
    value.set_sensitive(true);
    Ok(value)
}

fn failed(error: impl std::fmt::Display) -> BuildError {
    BuildError(error.to_string())
}
