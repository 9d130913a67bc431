//! `loopgate serve`.

use std::convert::Infallible;
use std::io::IsTerminal;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::{Failure, complain, env, runtime};
use crate::config::{Options, Settings, UpstreamKind, UpstreamOrigin};
use crate::failpoint;
use crate::server::{Server, Stopping};
use crate::telemetry;

/// Where a local Ollama listens.
const OLLAMA: &str = "127.0.0.1:11434";
/// How long it may take to answer.
const OLLAMA_TIMEOUT: Duration = Duration::from_millis(50);

pub(super) fn run(options: &Options) -> Result<(), Failure> {
    failpoint::check().map_err(Failure::config)?;
    let terminal = std::io::stderr().is_terminal();
    let format = options.log_format_on(terminal);
    let settings = Settings::load(options, &env).map_err(Failure::config)?;
    telemetry::begin(&options.log, format, terminal && env("NO_COLOR").is_none_or(|value| value.is_empty()))
        .map_err(Failure::config)?;
    runtime()?.block_on(async {
        let settings = with_ollama(options, settings).await;
        serve(settings).await
    })
}

async fn serve(settings: Settings) -> Result<(), Failure> {
    let listen = settings.server.listen;
    let server = Server::build(settings.clone()).await.map_err(Failure::new)?;
    let listener = TcpListener::bind(listen).await.map_err(|error| {
        let hint = "; choose another address with --listen";
        Failure::new(format_args!("cannot listen on {listen}: {error}{hint}"))
    })?;
    let address = listener.local_addr().map_err(Failure::new)?;
    complain(banner(address, &settings));
    let (stopping, told) = watch::channel(Stopping::No);
    let signals = on_signals(stopping)?;
    tokio::select! {
        () = server.serve(listener, told) => {}
        never = signals => match never {},
    }
    Ok(())
}

/// SIGTERM leaves balancers time to look elsewhere, Ctrl-C does not; a second signal of either kind
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

/// The settings with a local Ollama, where nothing else was named and one answers.
pub(super) async fn with_ollama(options: &Options, settings: Settings) -> Settings {
    if !settings.found_no_upstream() {
        return settings;
    }
    let answered = tokio::time::timeout(OLLAMA_TIMEOUT, tokio::net::TcpStream::connect(OLLAMA)).await;
    if !matches!(answered, Ok(Ok(_))) {
        return settings;
    }
    let url = format!("http://{OLLAMA}/v1");
    let found = |name: &str| if name == "OPENAI_BASE_URL" { Some(url.clone()) } else { env(name) };
    match Settings::load(options, &found) {
        Ok(mut found) => {
            for upstream in &mut found.upstreams {
                "ollama".clone_into(&mut upstream.name);
            }
            found.upstream_origin = UpstreamOrigin::Found(format!("Ollama at {OLLAMA}"));
            found
        }
        Err(_) => settings,
    }
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
