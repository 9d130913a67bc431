//! `loopgate serve`.

use std::convert::Infallible;
use std::io::IsTerminal;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::SignalStream;

use super::local_server::with_ollama;
use super::process::{Failure, env, runtime, takes_colours};
use super::reload;
use crate::config::{LogFormat, Options, Settings, UpstreamKind};
use crate::failpoint;
use crate::server::{Server, Stopping, bind};
use crate::telemetry::logs::{self, Log};

pub(super) fn run(options: &Options) -> Result<(), Failure> {
    failpoint::check().map_err(Failure::config)?;
    let terminal = std::io::stderr().is_terminal();
    let format = options.log_format_on(terminal);
    let settings = Settings::load(options, &env).map_err(Failure::config)?;
    // Dropped when all is over, so that the last lines are written.
    let log = logs::begin(&options.log, format, takes_colours(terminal)).map_err(Failure::config)?;
    let served = runtime()?.block_on(async {
        // Before anything else: until then the signal ends the process.
        let hangup = signal(SignalKind::hangup()).map_err(Failure::new)?;
        let settings = with_ollama(options, settings).await;
        Box::pin(serve(options, settings, hangup, &log)).await
    });
    served.map_err(|failure| match format {
        LogFormat::Text => failure,
        LogFormat::Json => failure.logged(),
    })
}

async fn serve(options: &Options, settings: Settings, hangup: Signal, log: &Log) -> Result<(), Failure> {
    let listen = settings.server.listen;
    let (mut server, reloader) = Box::pin(Server::build(settings)).await.map_err(Failure::new)?;
    let listener = bind(listen).map_err(|error| {
        let hint = "; choose another address with --listen";
        Failure::new(format_args!("cannot listen on {listen}: {error}{hint}"))
    })?;
    let address = listener.local_addr().map_err(Failure::new)?;
    let metrics = server.listen_for_metrics().map_err(Failure::new)?;
    // Before it says that it listens: who reads that may end it.
    let (stopping, told) = watch::channel(Stopping::No);
    let stopped = on_signals(stopping.clone())?;
    match options.log_format_on(std::io::stderr().is_terminal()) {
        LogFormat::Text => log.print(&banner(address, reloader.settings())),
        LogFormat::Json => log_start(address, reloader.settings(), server.agent().replica()),
    }
    if let Some(metrics) = metrics {
        tracing::info!("metrics are read at http://{metrics}/metrics");
    }
    // In a task of its own: reading files may take time, and connections must be accepted meanwhile.
    let mut reloading = JoinSet::new();
    reloading.spawn(reload::until_terminal_closes(hangup, options.clone(), reloader));
    let terminal_closed = async {
        if let Some(Ok(())) = reloading.join_next().await {
            stopping.send_replace(Stopping::Soon);
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = server.serve(listener, told) => {}
        never = stopped => match never {},
        () = terminal_closed => {}
    }
    Ok(())
}

/// SIGTERM leaves load balancers time to look elsewhere, Ctrl-C does not; a second signal of either kind
/// does not wait for runs.
fn on_signals(stopping: watch::Sender<Stopping>) -> Result<impl Future<Output = Infallible>, Failure> {
    let signals = |kind| signal(kind).map(SignalStream::new).map_err(Failure::new);
    let terminate = signals(SignalKind::terminate())?.map(|()| Stopping::AfterDelay);
    let interrupt = signals(SignalKind::interrupt())?.map(|()| Stopping::Soon);
    Ok(async move {
        let mut stops = terminate.merge(interrupt);
        if let Some(first) = stops.next().await {
            stopping.send_replace(first);
        }
        if stops.next().await.is_some() {
            stopping.send_replace(Stopping::Now);
        }
        std::future::pending().await
    })
}

/// Says where the server listens to machines, which read nothing but lines of the log.
fn log_start(address: std::net::SocketAddr, settings: &Settings, replica: &str) {
    let (upstreams, origin, store) = (upstream_names(settings), &settings.upstream_origin, &settings.store.url);
    let version = env!("CARGO_PKG_VERSION");
    tracing::info!(version, replica, %upstreams, %origin, %store, "loopgate listens on http://{address}");
}

fn upstream_names(settings: &Settings) -> String {
    let names: Vec<_> = settings.upstreams.iter().map(|upstream| upstream.name.as_str()).collect();
    names.join(", ")
}

/// What a person at a terminal is told.
fn banner(address: std::net::SocketAddr, settings: &Settings) -> String {
    let demo = settings.upstreams.iter().find(|upstream| matches!(upstream.kind, UpstreamKind::Demo));
    let model = demo.map_or_else(|| "MODEL".to_owned(), |upstream| format!("{}/demo", upstream.name));
    let key = if settings.keys.is_empty() { "" } else { " -H 'authorization: Bearer KEY'" };
    let store = &settings.store.url;
    let origin = &settings.upstream_origin;
    let names = upstream_names(settings);
    format!(
        "loopgate {version} listens on http://{address}\n\
         upstreams: {names} ({origin})\n\
         store:     {store}\n\
         docs:      http://{address}/docs\n\n\
         Try:\n\n  \
         curl -N http://{address}/v1/agent/completions{key} -H 'content-type: application/json' \\\n    \
         -d '{{\"model\": \"{model}\", \"stream\": true, \"messages\": [{{\"role\": \"user\", \
         \"content\": \"What is 1234 * 5678, and what time is it in Oslo?\"}}]}}'\n",
        version = env!("CARGO_PKG_VERSION"),
    )
}
