//! Replaces the configuration of a running server.

use super::build::{self, BuildError, Clients, Running};
use super::counted;
use super::remarks;
use crate::agent::Agent;
use crate::config::{Change, Settings};

/// The settings that a server runs by, and what it takes to replace them.
#[derive(Debug)]
pub struct Reloader {
    agent: Agent,
    clients: Clients,
    settings: Settings,
}

impl Reloader {
    pub(super) fn new(agent: Agent, clients: Clients, settings: Settings) -> Self {
        Self { agent, clients, settings }
    }

    /// The settings that the server runs by.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Serves by `next` what begins from now on, but for settings that are read at the start only. Returns what
    /// `next` changes. If it fails, nothing has changed.
    pub fn replace(&mut self, next: Settings) -> Result<Vec<Change>, BuildError> {
        let changes = self.settings.changes_to(&next);
        let next = next.while_running(&self.settings);
        let generation = self.agent.generation();
        let running = Running { settings: &self.settings, generation: &generation };
        let generation = build::generation(&next, &mut self.clients, Some(&running))?;
        self.agent.replace_generation(generation);
        self.clients.kept.settle(&next);
        self.clients.servers.settle();
        self.agent.metrics().know(counted::names(&next));
        remarks::log(&next);
        self.settings = next;
        Ok(changes)
    }
}

#[cfg(test)]
mod tests;
