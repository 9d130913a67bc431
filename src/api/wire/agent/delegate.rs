//! What happens to runs that another one begins, as the data of named events and as objects.

use serde::Serialize;
use utoipa::ToSchema;

use crate::api::wire::usage::UsageObject;
use crate::api::wire::vocabulary::{RunStatusText, StopReasonText};
use crate::types::StopReason;
use crate::types::delegate::{CompletedChild, StartedChild};
use crate::types::lineage::Parent;
use crate::types::taken::Taken;

/// Another agent begins to work on a call.
#[derive(Debug, Serialize, ToSchema)]
pub struct BegunDelegate<'a> {
    seq: u64,
    step: u32,
    call_id: &'a str,
    /// Its run.
    run_id: &'a str,
    agent: &'a str,
    /// How many runs are above it.
    depth: u32,
}

impl<'a> BegunDelegate<'a> {
    /// That this run is about to begin.
    pub(super) fn new(seq: u64, StartedChild { step, call_id, run, agent, depth }: &'a StartedChild) -> Self {
        Self { seq, step: *step, call_id: call_id.as_str(), run_id: run.as_str(), agent, depth: *depth }
    }
}

/// Another agent has worked on a call, or could not.
#[derive(Debug, Serialize, ToSchema)]
pub struct EndedDelegate<'a> {
    seq: u64,
    step: u32,
    call_id: &'a str,
    /// Its run.
    run_id: &'a str,
    /// How the run ended.
    #[schema(value_type = RunStatusText)]
    status: &'static str,
    /// Why; null if the run did not begin.
    #[schema(value_type = Option<StopReasonText>, required)]
    stop_reason: Option<&'static str>,
    /// The tokens of the run itself.
    usage: UsageObject,
    /// What they cost.
    cost_usd: f64,
    /// What it and all runs below it took.
    tree: TreeUsage,
}

impl<'a> EndedDelegate<'a> {
    /// That this run ended so.
    pub(super) fn new(seq: u64, completed: &'a CompletedChild) -> Self {
        let CompletedChild { step, call_id, run, status, reason, own, tree } = completed;
        Self {
            seq,
            step: *step,
            call_id: call_id.as_str(),
            run_id: run.as_str(),
            status: status.as_str(),
            stop_reason: reason.map(StopReason::as_str),
            usage: (&own.usage).into(),
            cost_usd: own.cost.as_usd(),
            tree: tree.into(),
        }
    }
}

/// What a run and all runs below it took.
#[derive(Debug, Serialize, ToSchema)]
pub struct TreeUsage {
    /// How many runs they are.
    pub runs: u32,
    /// Their tokens.
    pub usage: UsageObject,
    /// What these cost.
    pub cost_usd: f64,
}

impl From<&Taken> for TreeUsage {
    fn from(taken: &Taken) -> Self {
        Self { runs: taken.runs, usage: (&taken.usage).into(), cost_usd: taken.cost.as_usd() }
    }
}

/// The run that began another one.
#[derive(Debug, Serialize, ToSchema)]
pub struct ParentObject<'a> {
    /// The run.
    pub run_id: &'a str,
    /// The call by which it did.
    pub call_id: &'a str,
    /// The first run of the tree.
    pub root_id: &'a str,
    /// How many runs are above the one that was begun.
    pub depth: u32,
}

impl<'a> From<&'a Parent> for ParentObject<'a> {
    fn from(Parent { run, call, root, depth, .. }: &'a Parent) -> Self {
        Self { run_id: run.as_str(), call_id: call.as_str(), root_id: root.as_str(), depth: *depth }
    }
}
