//! `loopgate serve`.

use std::convert::Infallible;
use std::io::IsTerminal;

use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::local_server::with_ollama;
use super::process::{Failure, complain, env, runtime};
use super::reload;
use crate::config::{Options, Settings, UpstreamKind};
use crate::failpoint;
use crate::server::{Server, Stopping};
use crate::telemetry;

pub(super) fn run(options: &Options) -> Result<(), Failure> {
    failpoint::check().map_err(Failure::config)?;
    let terminal = std::io::stderr().is_terminal();
    let format = options.log_format_on(terminal);
    let settings = Settings::load(options, &env).map_err(Failure::config)?;
    telemetry::begin(&options.log, format, terminal && env("NO_COLOR").is_none_or(|value| value.is_empty()))
        .map_err(Failure::config)?;
    runtime()?.block_on(async {
        // Before anything else: until then the signal ends the process.
        let hangup = signal(SignalKind::hangup()).map_err(Failure::new)?;
        let settings = with_ollama(options, settings).await;
        serve(options, settings, hangup).await
    })
}

async fn serve(options: &Options, settings: Settings, hangup: Signal) -> Result<(), Failure> {
    let listen = settings.server.listen;
    let (server, reloader) = Server::build(settings).await.map_err(Failure::new)?;
    let listener = TcpListener::bind(listen).await.map_err(|error| {
        let hint = "; choose another address with --listen";
        Failure::new(format_args!("cannot listen on {listen}: {error}{hint}"))
    })?;
    let address = listener.local_addr().map_err(Failure::new)?;
    complain(banner(address, reloader.settings()));
    let (stopping, told) = watch::channel(Stopping::No);
    let stopped = on_signals(stopping.clone())?;
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
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::new)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::new)?;
    Ok(async move {
        let first = tokio::select! {
            _ = terminate.recv() => Stopping::AfterDelay,
            _ = interrupt.recv() => Stopping::Soon,
        };
        stopping.send_replace(first);
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stopping.send_replace(Stopping::Now);
        std::future::pending().await
    })
}

fn banner(address: std::net::SocketAddr, settings: &Settings) -> String {
    let upstreams: Vec<_> = settings.upstreams.iter().map(|upstream| upstream.name.as_str()).collect();
    let demo = settings.upstreams.iter().find(|upstream| matches!(upstream.kind, UpstreamKind::Demo));
    let model = demo.map_or_else(|| "MODEL".to_owned(), |upstream| format!("{}/demo", upstream.name));
    let key = if settings.keys.is_empty() { "" } else { " -H 'authorization: Bearer KEY'" };
    let store = &settings.store.url;
    let origin = &settings.upstream_origin;
    let names = upstreams.join(", ");
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
