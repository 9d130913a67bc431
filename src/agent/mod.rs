//! What a run is and how it moves.
//!
//! [`machine`] decides, [`drive`] does, [`follow`] reads. [`Agent`] holds the rooms and hands out those that the
//! outside may use. Each room knows only those below it. From the top:
//!
//! - [`schedules`]: requests that the server makes itself, at certain times. `delegation` begins runs for other runs, and
//!   lets runs go on as other agents.
//! - [`admission`]: a request becomes a run.
//! - [`control`], [`recovery`], [`tool_results`], [`questions`]: runs are read, steered and cancelled; orphaned runs are found; what
//!   services answer later is taken, and what users answer tools.
//! - [`launch`]: a run gets its driver here.
//! - [`drive`]: one run's task.
//! - [`session`], [`limits`]: conversations, and what callers may take together.
//! - `health`: what replicas know of upstreams.
//! - [`definitions`], [`stored_agents`], [`revocations`]: which definitions of tools count that sources offer; agents that tenants
//!   keep; which tokens of pages keys have revoked.
//! - [`ownership`], [`follow`], [`context`], [`inbox`], [`usage`], [`generation`]: which replica drives which run,
//!   readers, model requests, commands to runs, what runs took, the configuration.
//! - [`ledger`], [`machine`], [`lifecycle`]: what is stored, what a run is, how the process ends. `process` has the
//!   agent begin and end with it.
//!
//! Knows nothing of HTTP, of dialects, or of which store or model it has.

pub mod admission;
pub mod catalog;
pub mod context;
pub mod control;
pub mod definitions;
pub mod delegating;
mod delegation;
pub mod documents;
pub mod drive;
pub mod error;
pub mod follow;
pub mod generation;
mod health;
mod inbox;
mod launch;
mod ledger;
mod lifecycle;
pub mod limits;
pub mod listed;
pub mod machine;
mod naming;
mod outbox;
pub mod own_tool;
pub mod ownership;
mod policies;
mod process;
mod prompt_layers;
pub mod questions;
mod quotas;
mod recovery;
mod request;
mod request_key;
mod request_memory;
mod requester;
pub mod revocations;
mod rooms;
mod run_memory;
pub mod schedules;
pub mod session;
pub mod stored_agents;
#[cfg(test)]
pub(crate) mod tests;
pub mod tool_results;
pub mod usage;

use std::sync::Arc;

pub use admission::{Admission, AnswerFate, OpenAnswer, Started};
pub use catalog::Catalog;
pub use generation::Generation;
pub use ledger::head::Head;
pub use ledger::retention::Retention;
pub use ledger::session::Versioned;
pub use naming::{AskedServers, Naming};
pub use policies::Policies;
pub use prompt_layers::PromptLayers;
pub use quotas::Quotas;
pub use request::{
    ApprovalPatch, AskedPrompt, CallApproval, ContextPatch, GuardsPatch, LimitsPatch, LoopGuardPatch, NewRun,
    PreviousResponse, PromptPatch, RulesPatch, TriggersPatch,
};
pub use request_key::{RequestKey, RequestKeyKind};
pub use request_memory::RequestMemory;
pub use requester::Requester;

use crate::agent::control::Control;
use crate::agent::definitions::StoredDefinitions;
use crate::agent::documents::Documents;
use crate::agent::limits::Limits;
use crate::agent::questions::Questions;
use crate::agent::revocations::Revocations;
use crate::agent::rooms::Rooms;
use crate::agent::schedules::Schedules;
use crate::agent::session::Sessions;
use crate::agent::stored_agents::StoredAgents;
use crate::agent::tool_results::ToolResults;
use crate::agent::usage::Usage;
use crate::store::Store;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::run::Telemetry;

/// Starts, follows, cancels and recovers runs. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Agent {
    rooms: Arc<Rooms>,
}

impl Agent {
    /// An agent over these parts. Call [`Agent::begin`] once it runs inside a runtime.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, generation: Generation, retention: Retention) -> Self {
        Self::observed(store, generation, retention, Telemetry::default())
    }

    /// The same, whose runs are counted and traced.
    #[must_use]
    pub fn observed(store: Arc<dyn Store>, generation: Generation, retention: Retention, telemetry: Telemetry) -> Self {
        Self { rooms: Arc::new(Rooms::new(store, generation, retention, telemetry)) }
    }

    /// What happens here is counted here.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.rooms.telemetry.metrics
    }

    /// Requests become runs and sessions here.
    #[must_use]
    pub fn admission(&self) -> &Arc<Admission> {
        &self.rooms.admission
    }

    /// Runs are read, followed, steered and cancelled here.
    #[must_use]
    pub fn runs(&self) -> &Control {
        &self.rooms.control
    }

    /// What the services of tools answer later arrives here.
    #[must_use]
    pub fn tool_results(&self) -> ToolResults {
        ToolResults::new(&self.rooms.launcher)
    }

    /// What users answer questions of tools arrives here.
    #[must_use]
    pub fn questions(&self) -> Questions {
        Questions::new(&self.rooms.ledger)
    }

    /// Conversations are made, read and changed here.
    #[must_use]
    pub fn sessions(&self) -> &Arc<Sessions> {
        &self.rooms.sessions
    }

    /// What agents remember and know how to do is read and changed here.
    #[must_use]
    pub fn documents(&self) -> &Arc<Documents> {
        &self.rooms.launcher.documents
    }

    /// What runs took is counted here.
    #[must_use]
    pub fn usage(&self) -> &Arc<Usage> {
        &self.rooms.usage
    }

    /// Which definitions of tools count is decided here.
    #[must_use]
    pub fn definitions(&self) -> &StoredDefinitions {
        &self.rooms.definitions
    }

    /// The agents of tenants are kept here.
    #[must_use]
    pub fn agents(&self) -> &StoredAgents {
        &self.rooms.agents
    }

    /// Requests that are made at certain times are kept here.
    #[must_use]
    pub fn schedules(&self) -> &Arc<Schedules> {
        &self.rooms.schedules
    }

    /// What keys revoked of the tokens that they gave to pages is kept here.
    #[must_use]
    pub fn revocations(&self) -> &Revocations {
        &self.rooms.revocations
    }

    /// Callers' requests are counted here.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.rooms.limits
    }

    /// This process's name among the replicas that share its store. It has another one in its next life.
    #[must_use]
    pub fn replica(&self) -> &str {
        self.rooms.ownership.replica.id()
    }

    /// The generation of the configuration that serves requests now.
    #[must_use]
    pub fn generation(&self) -> Arc<Generation> {
        self.rooms.generations.current()
    }

    /// Serves requests and runs that begin from now on by `next`. Those that have begun keep their generation.
    pub fn replace_generation(&self, next: Generation) {
        let next = self.rooms.equipped(next);
        self.rooms.definitions.prepare(&next);
        self.rooms.generations.replace(next);
    }
}
