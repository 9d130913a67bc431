//! What a driver needs of others for its run to go on as another agent.

use std::fmt;

use async_trait::async_trait;

use crate::agent::context::toolbox::Toolbox;
use crate::agent::drive::notices::Notices;
use crate::agent::generation::Generation;
use crate::agent::limits::tree::TreeAccounts;
use crate::agent::machine::Run;
use crate::store::Unavailable;
use crate::types::{History, RunSpec};

/// What a run is to be handed over with.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The run as it is.
    pub run: &'a Run,
    /// The session's earlier messages.
    pub history: &'a History,
    /// The configuration that it is driven by.
    pub generation: &'a Generation,
    /// How many bytes the tools have that its model is offered now.
    pub offered: usize,
    /// The agent that is to go on.
    pub to: &'a str,
}

/// What a run is once another agent goes on with it.
#[derive(Debug)]
pub struct Successor {
    /// Its specification.
    pub spec: RunSpec,
    /// How many more tokens its next call has because of that.
    pub heavier: i64,
    /// The first place of the conversation that the agent is shown; `None` for all.
    pub shown_from: Option<u64>,
}

/// What a driver drives a run with.
#[derive(Debug)]
pub struct Equipment {
    /// The tools that it may call.
    pub tools: Toolbox,
    /// What it shares with the runs above and below it.
    pub tree: Option<Box<TreeAccounts>>,
    /// The hooks that are told of it.
    pub notices: Option<Box<Notices>>,
}

/// What specifies runs anew for other agents. Each live run has it, so a pointer to it is small.
#[derive(Debug)]
pub struct Successors(pub Box<dyn HandingOver>);

/// Specifies runs anew for other agents.
#[async_trait]
pub trait HandingOver: fmt::Debug + Send + Sync {
    /// What a run is as another agent, or why it cannot be; what it is offered then is stored. Fails if the store does not answer.
    async fn specify(&self, wanted: Wanted<'_>) -> Result<Result<Box<Successor>, String>, Unavailable>;

    /// What a run is driven with that was handed off. `None` if the store lost the definitions of its tools.
    async fn equip(&self, spec: &RunSpec, generation: &Generation) -> Result<Option<Equipment>, Unavailable>;
}
