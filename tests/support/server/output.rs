//! What a process writes, and what is to be found in it.

use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::sync::watch;

use crate::support::MAX_WAIT;

/// What a process writes, both streams together.
#[derive(Debug, Clone)]
pub(super) struct Output {
    text: Arc<Mutex<String>>,
    changed: Arc<watch::Sender<()>>,
}

impl Default for Output {
    fn default() -> Self {
        Self { text: Arc::default(), changed: Arc::new(watch::Sender::new(())) }
    }
}

impl Output {
    pub(super) fn text(&self) -> String {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) async fn collect(self, from: impl AsyncRead + Unpin) {
        let mut lines = BufReader::new(from).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let mut text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
            writeln!(text, "{line}").expect("a string takes it");
            drop(text);
            self.changed.send_replace(());
        }
    }

    /// What is written from byte `from` on until the configuration was read, or refused.
    pub(super) async fn read_config(&self, from: usize) -> String {
        let mut changed = self.changed.subscribe();
        loop {
            let text = self.text()[from..].to_owned();
            if text.contains("the configuration was reloaded") || text.contains("keeps the old one") {
                return text;
            }
            changed.changed().await.expect("we hold a sender");
        }
    }

    /// The first line that contains `words`.
    pub(super) async fn line(&self, words: &str) -> String {
        let mut changed = self.changed.subscribe();
        loop {
            if let Some(line) = self.text().lines().find(|line| line.contains(words)) {
                return line.to_owned();
            }
            changed.changed().await.expect("we hold a sender");
        }
    }

    /// The address that it says it listens on.
    pub(super) async fn url(&self) -> String {
        let mut changed = self.changed.subscribe();
        let named = async {
            loop {
                if let Some(url) = find_url(&self.text()) {
                    return url;
                }
                changed.changed().await.expect("we hold a sender");
            }
        };
        let named = tokio::time::timeout(MAX_WAIT, named).await;
        named.unwrap_or_else(|_| panic!("the server names no address:\n{}", self.text()))
    }
}

fn find_url(text: &str) -> Option<String> {
    const BEFORE: &str = "http://127.0.0.1:";
    text.match_indices(BEFORE).find_map(|(at, _)| {
        let port: String = text[at + BEFORE.len()..].chars().take_while(char::is_ascii_digit).collect();
        // A port of 0 is what was asked for, not where it is.
        (!port.is_empty() && port != "0").then(|| format!("{BEFORE}{port}"))
    })
}
