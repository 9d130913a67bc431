//! Why the agent refuses or fails, one enum for each operation. `api::error` maps them to responses.

mod approval;
mod field;
mod fork;
mod previous;
mod splice;

use std::time::Duration;

pub use self::approval::ApprovalError;
pub use self::field::Field;
pub use self::fork::{ForkError, NotMade};
pub use self::previous::PreviousError;
pub use self::splice::SpliceError;
use crate::store::{CommitError, Unavailable};
use crate::types::share::Sharing;
use crate::types::{CallId, RunId, SessionId, Shortfall};

/// Why a run was not started or continued.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No agent and no upstream's model has this name.
    #[error("there is no agent or model {name:?}{} GET /v1/models lists them", did_you_mean(nearest.as_deref()))]
    ModelNotFound {
        /// What the request names.
        name: String,
        /// What it may mean.
        nearest: Option<String>,
    },
    /// The agent's model is gone.
    #[error("the agent {agent:?} runs the model {model:?}, which no upstream has")]
    AgentModelNotFound {
        /// What the request names.
        agent: String,
        /// What the configuration names.
        model: String,
    },
    /// The agent has no model of its own, and there is none that must be meant.
    #[error(
        "the agent {0:?} has no model of its own, and the upstreams do not have just one: agents.{0}.model in the \
         configuration names it"
    )]
    AgentWithoutModel(String),
    /// An agent of the store names what the configuration no longer has.
    #[error("the agent {agent:?} cannot be used as the server is configured now: {why}")]
    AgentUnreadable {
        /// What the request names.
        agent: String,
        /// What is wrong with its settings.
        why: String,
    },
    /// Several upstreams have this model.
    #[error("several upstreams have the model {name:?}: write one of {candidates}")]
    ModelAmbiguous {
        /// The bare name.
        name: String,
        /// `upstream/model` names.
        candidates: String,
    },
    /// Neither the request nor its session names a model.
    #[error("name a model or an agent")]
    ModelMissing,
    /// The key may not use this agent.
    #[error("this key may not use the agent {0:?}")]
    AgentForbidden(String),
    /// What came of a call is not for the caller to say.
    #[error(
        "what came of the call {0} is not known; the holder of a key says what is to become of it, and no token does"
    )]
    OutcomeForbidden(CallId),
    /// No tool of the agent has this name.
    #[error(
        "the agent has no tool that matches {name:?}{} GET /v1/tools lists the server's tools",
        did_you_mean(nearest.as_deref())
    )]
    ToolNotAllowed {
        /// What the request names.
        name: String,
        /// What it may mean.
        nearest: Option<String>,
    },
    /// A value is out of its range.
    #[error("{message}")]
    Invalid {
        /// Which value.
        field: Field,
        /// What is wrong and what would be right.
        message: String,
    },
    /// A cost budget is in force, and no price is known for the model.
    #[error("{0}")]
    PriceUnknown(String),
    /// A guard refuses what is said.
    #[error("{message}")]
    Blocked {
        /// Where it is said.
        field: Field,
        /// Why.
        message: String,
    },
    /// The messages do not fit the model.
    #[error("{0}")]
    ContextLength(String),
    /// A budget has no room for a model call.
    #[error("{short}")]
    BudgetExceeded {
        /// The budget, and what is missing.
        short: Shortfall,
        /// How long the run may take: so long it waits for what other runs have reserved.
        timeout: Duration,
    },
    /// The key has as many live runs as it may have.
    #[error("this key may have {0} runs at once; try again when one of them has ended")]
    TooManyRuns(u32),
    /// The agent, or the user, has as many live runs as it may have.
    #[error("{sharing} may have {most} runs at once; try again when one of them has ended")]
    TooManyRunsOf {
        /// Whose runs they are.
        sharing: Sharing,
        /// How many there may be.
        most: u32,
    },
    /// Too many requests begin runs of the agent, or of the user.
    #[error("{sharing} may begin {per_minute} runs a minute")]
    TooManyStarts {
        /// Whose runs they are.
        sharing: Sharing,
        /// How many requests there may be in a minute.
        per_minute: u32,
        /// How long until the next is taken.
        wait: Duration,
    },
    /// The request may not name servers of tools.
    #[error("{0}")]
    ServersForbidden(String),
    /// A server that the request names did not list its tools.
    #[error("{0}")]
    ServerFailed(String),
    /// The runs of the key are connected to as many servers that requests name as they may be.
    #[error("{0}; try again when one of these runs has ended")]
    TooManyServersOfKey(String),
    /// All runs are connected to as many of them as they may be.
    #[error("{0}; try again in a moment")]
    TooManyServers(String),
    /// The conversations of live runs take as much memory as they may.
    #[error("the live runs of this server take as much memory as they may; try again in a moment")]
    OutOfMemory,
    /// The session has a live run.
    #[error("session {session} has a live run, {run}; follow that run, or try again when it has ended")]
    SessionBusy {
        /// The session.
        session: SessionId,
        /// Its live run.
        run: RunId,
    },
    /// A run shortens the session's conversation already.
    #[error("the conversation of session {session} is being shortened by the run {run}; follow that run")]
    Compacting {
        /// The session.
        session: SessionId,
        /// The run.
        run: RunId,
    },
    /// There is no such session whose conversation could be shortened.
    #[error("session {0} does not exist")]
    SessionNotFound(SessionId),
    /// The session changed meanwhile, again and again.
    #[error("session {0} is being changed by others; try again")]
    VersionConflict(SessionId),
    /// There is no such run, or it is another tenant's.
    #[error("run {0} does not exist")]
    RunNotFound(String),
    /// The run does not wait for tool results.
    #[error("run {0} waits neither for tool results nor for approvals")]
    NotWaiting(RunId),
    /// The run waits for approvals.
    #[error("run {run} waits for the approval of calls of {tools}: POST /v1/runs/{run}/approvals decides them")]
    WaitsForApproval {
        /// The run.
        run: RunId,
        /// The tools that are to be called.
        tools: String,
    },
    /// The run waits for services that answer calls later.
    #[error(
        "run {run} waits for the services behind {tools}, which answer it by themselves; there is nothing else to answer now"
    )]
    WaitsForServices {
        /// The run.
        run: RunId,
        /// The tools that were called.
        tools: String,
    },
    /// A run of the session waits for approvals.
    #[error(
        "session {session} has a run, {run}, that waits for the approval of a tool call: POST /v1/runs/{run}/approvals decides \
         it, and with `on_conflict: \"interrupt\"` this request cancels that run"
    )]
    SessionWaits {
        /// The session.
        session: SessionId,
        /// Its run.
        run: RunId,
    },
    /// A decision about a call is not taken.
    #[error(transparent)]
    Approval(#[from] ApprovalError),
    /// The response that it names is not continued.
    #[error(transparent)]
    Previous(#[from] PreviousError),
    /// The server is about to end.
    #[error("the server is shutting down; try again in a moment")]
    Draining,
    /// An earlier request with the same key is in its way.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// The tenant may not store more.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] Unavailable),
}

/// Between a name that leads nowhere and where to look it up: what it may mean.
pub fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map_or_else(|| ";".to_owned(), |nearest| format!("; did you mean {nearest:?}?"))
}

/// Why something is not stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StorageError {
    /// The tenant stores as much as it may.
    #[error(
        "this would take {bytes} bytes of storage, and of the {limit} bytes that may be stored for this key's tenant \
         {stored} are taken; delete sessions, or wait until older runs and sessions expire"
    )]
    Full {
        /// Of this request.
        bytes: u64,
        /// What is taken, as far as is counted.
        stored: u64,
        /// In all.
        limit: u64,
        /// Until it is counted anew what has expired, at most.
        recount_in: Duration,
    },
    /// The request alone is more than the tenant may store.
    #[error(
        "this would take {bytes} bytes of storage; no more than {limit} may be stored for this key's tenant in all"
    )]
    TooLarge {
        /// Of this request.
        bytes: u64,
        /// In all.
        limit: u64,
    },
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] Unavailable),
}

/// Why a request that may have come before is not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// The key was used for another request.
    #[error("this idempotency key was used for another request; use a new key for a new request")]
    Reused,
    /// What the first of these requests led to is no longer kept.
    #[error("the result of the first request with this idempotency key has expired; use a new key to run it again")]
    Gone,
    /// The same request is being processed elsewhere, and takes long.
    #[error("the same request is being processed; try again in a moment")]
    Busy,
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] Unavailable),
}

/// Why a run or session could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// There is no such run, or it is another tenant's.
    #[error("run {0} does not exist")]
    RunNotFound(String),
    /// The run is one of an agent that the key may not use.
    #[error("run {run} is one of the agent {agent:?}, which this key may not use")]
    AgentForbidden {
        /// The run.
        run: RunId,
        /// Its agent.
        agent: String,
    },
    /// There is no such session, or it is another tenant's.
    #[error("session {0} does not exist")]
    SessionNotFound(String),
    /// A session with this id exists already.
    #[error("session {0} exists already")]
    SessionExists(SessionId),
    /// The session has a live run.
    #[error("session {session} has a live run, {run}; cancel that run first")]
    SessionBusy {
        /// The session.
        session: SessionId,
        /// Its live run.
        run: RunId,
    },
    /// The session's metadata would have more entries than this.
    #[error("may have at most {0} entries")]
    TooMuchMetadata(usize),
    /// The session changed meanwhile, again and again.
    #[error("session {0} is being changed by other requests; try again")]
    VersionConflict(SessionId),
    /// The run's events are no longer kept.
    #[error("the events of run {0} are no longer kept")]
    EventsExpired(RunId),
    /// The caller has seen events that the log does not have.
    #[error("event {asked} does not exist; the last event of the run is {last}")]
    EventIdAhead {
        /// What the caller named.
        asked: u64,
        /// The log's last.
        last: u64,
    },
    /// What is to be sent to a run is larger than all that it takes while it is live.
    #[error("the messages have {bytes} bytes; a live run takes {limit} in all")]
    CommandTooLarge {
        /// Of this request.
        bytes: u64,
        /// Of all requests.
        limit: u64,
    },
    /// The run's inbox is full.
    #[error("run {0} was sent as many messages as it takes while it is live; continue when it has ended")]
    InboxFull(RunId),
    /// The run has ended.
    #[error("run {0} has ended")]
    NotLive(RunId),
    /// The input guard of the run refuses a message.
    #[error("{message}")]
    InputBlocked {
        /// The message's place, counted from 0.
        place: usize,
        /// Why.
        message: String,
    },
    /// A part of a message is nothing that the run's model takes.
    #[error("{why}")]
    PartRefused {
        /// The message, counted from 0.
        message: usize,
        /// The part of it, counted from 0.
        part: usize,
        /// What is wrong with it.
        why: String,
    },
    /// The request came before, and that is in its way.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// The tenant may not store more.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] Unavailable),
}

/// What a commit's failure means whose preconditions were just read: others were faster too often, or the store is away.
pub(super) fn unavailable(error: CommitError) -> Unavailable {
    match error {
        CommitError::Unavailable(unavailable) => unavailable,
        CommitError::VersionConflict { .. }
        | CommitError::SequenceConflict { .. }
        | CommitError::CeilingReached { .. }
        | CommitError::Fenced { .. } => Unavailable(error.to_string()),
    }
}
