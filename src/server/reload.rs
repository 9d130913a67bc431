//! Replaces the configuration of a running server.

use super::build::{self, BuildError, Clients, Running};
use super::counted;
use super::remarks;
use tokio::sync::watch;

use crate::agent::Agent;
use crate::config::{Change, Settings};

/// The settings that a server runs by, and what it takes to replace them.
#[derive(Debug)]
pub struct Reloader {
    agent: Agent,
    clients: Clients,
    settings: Settings,
    /// Tells that a server of tools has other tools.
    tools: watch::Receiver<u64>,
}

impl Reloader {
    pub(super) fn new(agent: Agent, clients: Clients, settings: Settings) -> Self {
        let mut tools = clients.servers.all().changes();
        // What came since the first generation was built.
        tools.mark_changed();
        Self { agent, clients, settings, tools }
    }

    /// Waits until a server of tools has other tools.
    pub async fn tools_changed(&mut self) {
        // Each server has the sender.
        if self.tools.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Counts the tools that servers of tools have now by their names.
    pub fn know_tools(&mut self) {
        self.tools.mark_unchanged();
        self.agent.metrics().know(counted::names(&self.settings, &self.agent.generation().tools));
    }

    /// The settings that the server runs by.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Serves by `next` what begins from now on, but for settings that are read at the start only. Returns what
    /// `next` changes. If it fails, nothing has changed. Must run to its end.
    pub async fn replace(&mut self, next: Settings) -> Result<Vec<Change>, BuildError> {
        let changes = self.settings.changes_to(&next);
        let next = next.while_running(&self.settings);
        let generation = self.agent.generation();
        let (mut clients, settings) = (std::mem::take(&mut self.clients), self.settings.clone());
        let (built, clients, next) = build::aside(move || {
            let running = Running { settings: &settings, generation: &generation };
            let built = build::generation(&next, &mut clients, Some(&running));
            (built, clients, next)
        })
        .await;
        self.clients = clients;
        let generation = built?;
        self.agent.metrics().know(counted::names(&next, &generation.tools));
        self.agent.replace_generation(generation);
        self.clients.kept.settle(&next);
        self.clients.servers.settle();
        remarks::log(&next);
        self.settings = next;
        Ok(changes)
    }
}

#[cfg(test)]
mod tests;
