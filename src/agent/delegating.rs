//! What a run needs of others to begin runs, to find them again and to end them.

use std::fmt;

use async_trait::async_trait;

use crate::store::Unavailable;
use crate::types::delegate::{ChildEnd, StartedChild};
use crate::types::{Message, RunId, RunSpec, Tenant, Used};

/// A run that is to begin.
#[derive(Debug, Clone)]
pub struct Child {
    /// What it is called, and what it runs as.
    pub started: StartedChild,
    /// What it is to do.
    pub task: Task,
    /// How long it may take, in milliseconds.
    pub timeout_ms: u64,
    /// What of the budgets of the run that begins it is not for it, nor for those below it.
    pub kept: Used,
}

/// What a run is to do.
#[derive(Debug, Clone)]
pub enum Task {
    /// This, of which it knows nothing else.
    Alone(String),
    /// What the run that begins it is asked.
    Shared(Box<Shared>),
}

/// What a run is to do that works in place of the one that begins it.
#[derive(Debug, Clone)]
pub struct Shared {
    /// The instructions of the request.
    pub system: Vec<Message>,
    /// The conversation.
    pub messages: Vec<Message>,
    /// Whether its answer is what the caller asked for, so that it is to have the form that the caller asked for.
    pub is_last: bool,
}

/// What became of a run that was to begin.
#[derive(Debug)]
pub enum Begun {
    /// It is under way: its end will be told to the run that began it.
    Live,
    /// It has ended.
    Ended(Box<ChildEnd>),
    /// It never begins, for this reason.
    Refused(String),
    /// It cannot begin now, for this reason.
    Later(String),
}

/// Begins runs for other runs.
#[async_trait]
pub trait Delegating: fmt::Debug + Send + Sync {
    /// Begins a run for `parent`, or finds it if it was begun before. Fails if the store does not say whether it was.
    async fn begin(&self, parent: &RunSpec, child: &Child) -> Result<Begun, Unavailable>;

    /// Sees to it that a run for `parent` never begins, for this reason, unless it has: then says what became of it.
    async fn refuse(&self, parent: &RunSpec, child: &RunId, why: String) -> Result<Begun, Unavailable>;

    /// How a run ended; `None` if it has not, or does not exist.
    async fn end_of(&self, tenant: &Tenant, child: &RunId) -> Result<Option<ChildEnd>, Unavailable>;

    /// Sees to it that a run in the tree of `root` ends soon if it is under way, and never begins otherwise.
    async fn stop(&self, tenant: &Tenant, root: &RunId, child: &RunId) -> Result<(), Unavailable>;
}
