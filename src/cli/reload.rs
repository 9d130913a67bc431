//! Reads the configuration again when the process is told to (SIGHUP), and logs what that changes.

use std::io::{IsTerminal, stderr};

use tokio::signal::unix::Signal;

use super::local_server::with_ollama;
use super::process::env;
use crate::config::{Change, ConfigErrors, Counts, Options};
use crate::server::Reloader;
use crate::server::tools::fetch_documents;

/// Reloads at each signal, and counts what servers of tools have by its name. Returns when the server was started from a terminal and that is closed: it sends the same
/// signal, and means that the server is to end. Signals that come during a reload count as one.
pub(super) async fn until_terminal_closes(mut hangup: Signal, options: Options, mut reloader: Reloader) {
    let had_terminal = stderr().is_terminal();
    loop {
        let told = tokio::select! {
            told = hangup.recv() => told,
            () = reloader.tools_changed() => {
                reloader.know_tools();
                continue;
            }
        };
        if told.is_none() {
            return;
        }
        if had_terminal && !stderr().is_terminal() {
            return;
        }
        Box::pin(reload(&options, &mut reloader)).await;
    }
}

async fn reload(options: &Options, reloader: &mut Reloader) {
    let (running, again) = (reloader.settings().clone(), options.clone());
    // Files are read, and a file may be long or its disk slow.
    let loaded = tokio::task::spawn_blocking(move || running.load_again(&again, &env)).await;
    let mut next = match loaded.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic())) {
        Ok(next) => with_ollama(options, next).await,
        Err(errors) => {
            log_mistakes(&errors);
            return;
        }
    };
    let replaced = match fetch_documents(&mut next).await {
        Ok(()) => Box::pin(reloader.replace(next)).await.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    match replaced {
        Ok(changes) => log_changes(&changes),
        Err(error) => {
            tracing::error!(%error, "the configuration was not replaced; the server keeps the old one");
        }
    }
}

fn log_mistakes(ConfigErrors(mistakes): &ConfigErrors) {
    for mistake in mistakes {
        tracing::error!(%mistake, "a mistake in the configuration");
    }
    let count = mistakes.len();
    tracing::error!(mistakes = count, "the configuration was not replaced; the server keeps the old one");
}

fn log_changes(changes: &[Change]) {
    for change in changes {
        match change.counts {
            Counts::AtReload => tracing::info!(%change, "the configuration changed"),
            Counts::AtRestart => tracing::warn!(%change, "this change takes effect at the next restart"),
        }
    }
    tracing::info!(changes = changes.len(), "the configuration was reloaded");
}
