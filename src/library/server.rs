//! The server, inside a program.

use std::net::SocketAddr;
use std::path::PathBuf;

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::model::{self, Model};
use super::tool::{self, Tool};
use crate::config::{Options, Settings};
use crate::server::{self, Embedded, Stopping, bind};

/// A server that is running. Dropping it stops it at once; [`Server::stop`] lets its runs end.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stopping: watch::Sender<Stopping>,
    /// Aborted when it is dropped.
    serving: JoinSet<()>,
}

/// Why a server does not start, in words for its operator.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct StartError(String);

impl StartError {
    fn new(why: impl std::fmt::Display) -> Self {
        Self(why.to_string())
    }
}

/// A server to be.
#[derive(Debug, Default)]
#[must_use = "it does nothing until it is started"]
pub struct ServerBuilder {
    options: Options,
    embedded: Embedded,
    fault: Option<String>,
}

impl ServerBuilder {
    /// Adds a tool. Agents have it if their `tools` name it; the `default` agent has it unless the configuration says what that agent's
    /// tools are.
    pub fn tool(mut self, tool: impl Tool) -> Self {
        let (name, tool) = tool::embed(tool);
        self.options.embedded.tools.push(name);
        self.embedded.tools.push(tool);
        self
    }

    /// Adds a model under the name of an upstream: requests and agents name it `UPSTREAM/MODEL`. If the configuration declares no
    /// upstreams, those that are added are the only ones.
    pub fn model(mut self, upstream: impl Into<String>, model: impl Model) -> Self {
        let upstream = upstream.into();
        let (names, model) = model::embed(model);
        self.options.embedded.upstreams.push((upstream.clone(), names));
        self.embedded.models.insert(upstream, model);
        self
    }

    /// Reads this file of configuration. Without this and [`config`](Self::config), it is `loopgate.toml` in the working directory,
    /// if that exists.
    pub fn config_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.options.config = Some(path.into());
        self
    }

    /// Takes this text for the file of configuration.
    pub fn config(mut self, toml: impl Into<String>) -> Self {
        self.options.embedded.config = Some(toml.into());
        self
    }

    /// Listens here, whatever the configuration says. The port 0 stands for any that is free.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.options.listen = Some(address);
        self
    }

    /// Keeps runs and sessions in this store, whatever the configuration says: `memory:`, `embedded:DIR` or `redis://HOST`.
    pub fn store(mut self, url: &str) -> Self {
        match url.parse() {
            Ok(url) => self.options.store = Some(url),
            Err(why) => self.fault = Some(format!("the URL of the store is refused: {why}")),
        }
        self
    }

    /// Reads the configuration, opens the store and listens. Must be called in a Tokio runtime with all drivers and more than one
    /// thread.
    pub async fn start(self) -> Result<Server, StartError> {
        if let Some(why) = self.fault {
            return Err(StartError(why));
        }
        // Only fails if a provider is installed already, which then serves as well.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let settings = Settings::load(&self.options, &|name| std::env::var(name).ok()).map_err(StartError::new)?;
        let listen = settings.server.listen;
        let (mut server, _) =
            Box::pin(server::Server::build_with(settings, self.embedded)).await.map_err(StartError::new)?;
        let listener = bind(listen).map_err(|error| StartError(format!("cannot listen on {listen}: {error}")))?;
        let address = listener.local_addr().map_err(StartError::new)?;
        server.listen_for_metrics().map_err(StartError::new)?;
        let (stopping, told) = watch::channel(Stopping::No);
        let mut serving = JoinSet::new();
        serving.spawn(server.serve(listener, told));
        Ok(Server { address, stopping, serving })
    }
}

impl Server {
    /// A server to be, with the configuration of the binary: its file, and the variables that name keys.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its address as a URL, such as `http://127.0.0.1:8080`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Takes no new runs, lets those under way end for as long as `server.drain_timeout` says, and closes. Over a store that replicas
    /// share, others go on with the rest.
    pub async fn stop(mut self) {
        self.stopping.send_replace(Stopping::Soon);
        // It ends in this task, or has panicked, which its log tells.
        let _ = self.serving.join_next().await;
    }

    /// Serves until the program is told to stop by Ctrl-C or, where there is such a thing, SIGTERM; then stops.
    pub async fn run(self) {
        told_to_stop().await;
        self.stop().await;
    }
}

async fn told_to_stop() {
    use tokio::signal::unix::{SignalKind, signal};
    let interrupted = tokio::signal::ctrl_c();
    match signal(SignalKind::terminate()) {
        Ok(mut terminated) => {
            tokio::select! {
                _ = interrupted => {}
                _ = terminated.recv() => {}
            }
        }
        Err(_) => drop(interrupted.await),
    }
}
