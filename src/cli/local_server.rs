//! Finds a model server on this machine if the configuration names no upstream.

use std::time::Duration;

use tokio::net::TcpStream;

use super::process::env;
use crate::config::{Options, Settings};

/// Where a local Ollama listens.
const OLLAMA: &str = "127.0.0.1:11434";
/// How long it may take to answer. Not a setting: who has an upstream names it, and this machine answers at once.
const OLLAMA_TIMEOUT: Duration = Duration::from_millis(50);

/// The settings with a local Ollama, where nothing else was named and one answers.
pub(super) async fn with_ollama(options: &Options, settings: Settings) -> Settings {
    if !settings.found_no_upstream() {
        return settings;
    }
    let answered = tokio::time::timeout(OLLAMA_TIMEOUT, TcpStream::connect(OLLAMA)).await;
    if !matches!(answered, Ok(Ok(_))) {
        return settings;
    }
    let url = format!("http://{OLLAMA}/v1");
    let found = |name: &str| if name == "OPENAI_BASE_URL" { Some(url.clone()) } else { env(name) };
    match Settings::load(options, &found) {
        Ok(mut found) => {
            found.name_found_upstream("ollama", format!("Ollama at {OLLAMA}"));
            found
        }
        Err(_) => settings,
    }
}
