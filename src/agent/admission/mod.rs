//! A request becomes a run: the request is pinned as a specification, and the run begins, is queued, or continues a
//! waiting run.
//!
//! Knows nothing of how a run is driven; it hands a run that was accepted to [`launch`](crate::agent::launch).

mod agent_tools;
mod answer;
mod approve;
mod backoff;
mod budget;
mod candidate;
mod choose;
mod claims;
mod compact;
mod composite;
mod conflict;
mod connection;
mod delegates;
mod dry_run;
mod handoffs;
mod models;
mod named;
mod once;
mod open_answer;
mod policy;
mod previous;
mod price;
mod question;
mod remembered;
mod rules;
mod said;
mod screened;
mod select;
mod skilled;
mod specify;
mod start;
mod successor;
mod told;
mod transcript;
mod unsupported;
mod verdict;
mod waiting;

use std::sync::Arc;

pub use self::dry_run::{DryRun, Sizes};
pub use self::open_answer::{AnswerFate, OpenAnswer};
use crate::agent::control::Control;
use crate::agent::error::StartError;
use crate::agent::follow::{Follower, Followers};
use crate::agent::generation::{Generation, Generations};
use crate::agent::launch::Launcher;
use crate::agent::ledger::Ledger;
use crate::agent::ledger::head::Head;
use crate::agent::lifecycle::Lifecycle;
use crate::agent::limits::Limits;
use crate::agent::limits::left::SharedSession;
use crate::agent::ownership::Ownership;
use crate::agent::request::NewRun;
use crate::agent::session::Sessions;
use crate::agent::stored_agents::StoredAgents;
use crate::types::History;
use crate::types::session::Session;

/// Takes requests in.
#[derive(Debug)]
pub struct Admission {
    pub(super) agents: Arc<StoredAgents>,
    pub(super) ledger: Ledger,
    pub(super) generations: Arc<Generations>,
    pub(super) sessions: Arc<Sessions>,
    pub(super) limits: Arc<Limits>,
    pub(super) ownership: Arc<Ownership>,
    pub(super) followers: Arc<Followers>,
    pub(super) launcher: Arc<Launcher>,
    pub(super) control: Arc<Control>,
    pub(super) lifecycle: Arc<Lifecycle>,
}

/// A run that was started, continued or joined.
#[derive(Debug)]
pub struct Started {
    /// Its head.
    pub head: Head,
    /// Its events from where this request set in.
    pub follower: Follower,
    /// Its session, whose budgets it shares.
    pub session: Option<SharedSession>,
    /// Whether an earlier request of the same name began this.
    pub joined: bool,
    /// Whether an earlier request of the same name was answered by them already.
    pub replayed: bool,
    /// Keeps what becomes of the answer, for an equal request.
    pub answer: Option<OpenAnswer>,
}

impl Admission {
    /// Takes in requests whose runs this launcher launches.
    pub(super) fn new(launcher: &Arc<Launcher>, agents: Arc<StoredAgents>) -> Self {
        Self {
            agents,
            ledger: launcher.ledger.clone(),
            generations: launcher.generations.clone(),
            sessions: launcher.sessions.clone(),
            limits: launcher.limits.clone(),
            ownership: launcher.ownership.clone(),
            followers: launcher.followers.clone(),
            launcher: launcher.clone(),
            control: Arc::new(Control::new(launcher)),
            lifecycle: launcher.lifecycle.clone(),
        }
    }

    /// The generation that a request is served by.
    fn generation_of(&self, new: &NewRun) -> Arc<Generation> {
        new.generation.clone().unwrap_or_else(|| self.generations.current())
    }

    /// What was said before in the session of a request; nothing if it has none.
    async fn history_of(&self, new: &NewRun, session: Option<&Session>) -> Result<History, StartError> {
        match session {
            // Boxed, as most requests have no session.
            Some(session) => Ok(Box::pin(self.sessions.history(&new.tenant, session)).await?),
            None => Ok(History::default()),
        }
    }
}
