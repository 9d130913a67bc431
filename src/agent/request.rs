//! What a caller asks of a run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use xxhash_rust::xxh3::xxh3_64;

use crate::agent::generation::Generation;
use crate::agent::naming::AskedServers;
use crate::agent::request_memory::RequestMemory;
use crate::agent::requester::Requester;
use crate::types::approval::{ApprovalDecision, ApprovalMode};
use crate::types::context::Compaction;
use crate::types::event::Decision;
use crate::types::guard::InputMode;
use crate::types::lineage::{Parent, Tree};
use crate::types::offer::{ToolChoice, ToolDefinition};
use crate::types::policy::{Layer, Policy};
use crate::types::prompt::{Channel, PromptLayer, PromptMode};
use crate::types::run::{OnConflict, OnDisconnect, OnLimit, OnUnknownOutcome, RunOptions};
use crate::types::{CallId, Message, Micros, RunId, SessionId, Shortfall, Tenant, TraceContext};

/// A valid request for a run.
#[derive(Debug, Clone)]
pub struct NewRun {
    /// What it will be called.
    pub id: RunId,
    /// Whose it is.
    pub tenant: Tenant,
    /// The name of the key that the caller showed.
    pub key_name: Option<String>,
    /// The configuration that the request is served by; `None` for the current one.
    pub generation: Option<Arc<Generation>>,
    /// The agents that the caller's key may use; `None` for all.
    pub allowed_agents: Option<Vec<String>>,
    /// The model or agent; a session may name the agent instead.
    pub model: Option<String>,
    /// The conversation that it continues.
    pub session: Option<SessionId>,
    /// The waiting run that its tool messages answer.
    pub run: Option<RunId>,
    /// The response that it continues: its messages follow the conversation up to the end of that.
    pub previous: Option<Box<PreviousResponse>>,
    /// Instructions for this run only.
    pub system: Vec<Message>,
    /// The other messages.
    pub messages: Vec<Message>,
    /// Where in `messages` those begin that answer the calls of a waiting run.
    pub answers_from: usize,
    /// The calls that they answer, in their order.
    pub answered: Vec<CallId>,
    /// What is to become of calls among them whose outcome is not known, where the client has no result.
    pub decisions: Vec<(CallId, Decision)>,
    /// Decisions about calls of the waiting run that need an approval. A request with any brings nothing else.
    pub approvals: Vec<CallApproval>,
    /// The client's own tools.
    pub client_tools: Vec<Arc<ToolDefinition>>,
    /// The servers of tools that it names.
    pub servers: Option<Arc<AskedServers>>,
    /// The trace of its caller.
    pub trace: Option<TraceContext>,
    /// The request's id.
    pub request_id: Option<String>,
    /// The caller's notes.
    pub metadata: BTreeMap<String, String>,
    /// Most output tokens of one model call.
    pub max_output_tokens: Option<u64>,
    /// Names and globs of the server's tools; `None` for all of the agent's.
    pub tools: Option<Vec<String>>,
    /// Rules for the run's tool calls, which only tighten those of others.
    pub policy: Option<Arc<Layer>>,
    /// How it asks for the approval of calls.
    pub approval: ApprovalPatch,
    /// Narrower limits than the agent's.
    pub limits: LimitsPatch,
    /// Stricter rules than the agent's.
    pub rules: RulesPatch,
    /// Stricter guards than the agent's.
    pub guards: GuardsPatch,
    /// What its prompt is to have beside the agent's.
    pub prompt: Option<Box<AskedPrompt>>,
    /// What happens at a limit; `None` for the agent's setting.
    pub on_limit: Option<OnLimit>,
    /// What happens when the session has a live run.
    pub on_conflict: OnConflict,
    /// What the run keeps as it was asked for.
    pub options: RunOptions,
    /// Whether the caller waits for the run's end, and reads nothing before.
    pub waits_for_the_end: bool,
    /// Whether no client waits for it: it begins a run or is refused at once. It neither waits for what others have reserved
    /// of a budget, nor answers a run that waits, nor takes its place.
    pub unattended: bool,
    /// Whether its client sends the whole conversation each time, by which another run can go on than that which it answers.
    pub sends_all: bool,
    /// Whether its client repeats what it answered before, which is left out beside what is new.
    pub repeats: bool,
    /// Whether it comes from a page that shows a token: it has nothing to say about calls of the server whose outcome is not known.
    pub of_page: bool,
    /// What it has of the run that begins it. Boxed, as most requests come from callers.
    pub of: Option<Box<ChildOf>>,
    /// What the caller should know about the request.
    pub warnings: Vec<String>,
    /// The claim of the caller's key under which it came, once it is made.
    pub claim: Option<KeyClaim>,
    /// The memory that is counted for all of this.
    pub memory: Arc<RequestMemory>,
}

/// A response that a request continues: a run up to the end of one of its legs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreviousResponse {
    /// Its run.
    pub run: RunId,
    /// Which of the run's responses it is: 0 is the first.
    pub leg: u32,
    /// What the request calls it.
    pub id: String,
}

/// What a run has of the run that begins it.
#[derive(Debug, Clone)]
pub struct ChildOf {
    /// That run, and the call by which it does.
    pub parent: Arc<Parent>,
    /// What it shares with the runs above it.
    pub tree: Arc<Tree>,
    /// What the calls of that run are judged by.
    pub policy: Option<Arc<Policy>>,
    /// Most model calls.
    pub max_iterations: u32,
    /// Most time, in milliseconds.
    pub timeout_ms: u64,
}

/// The claim of a caller's key.
#[derive(Debug, Clone)]
pub struct KeyClaim {
    /// The hash that names it.
    pub name: String,
    /// How long it is kept.
    pub ttl: Duration,
}

/// Limits that a request asks for.
#[derive(Debug, Clone, Copy, Default)]
pub struct LimitsPatch {
    /// Most model calls.
    pub max_iterations: Option<u32>,
    /// Most calls of server-side tools.
    pub max_tool_calls: Option<u32>,
    /// From start to end, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// For each tool call, in milliseconds.
    pub tool_timeout_ms: Option<u64>,
    /// Most tokens.
    pub token_budget: Option<u64>,
    /// Most money.
    pub cost_budget: Option<Micros>,
}

/// A decision about a call that waits for an approval.
#[derive(Debug, Clone)]
pub struct CallApproval {
    /// The call.
    pub call: CallId,
    /// The decision.
    pub decision: ApprovalDecision,
    /// The digest of the call that the decision is meant for, if the request says it.
    pub digest: Option<String>,
    /// Why.
    pub reason: Option<String>,
    /// Other arguments to make the call with.
    pub arguments: Option<String>,
    /// The result in place of the tool's.
    pub result: Option<String>,
}

/// How a request asks for the approval of calls.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct ApprovalPatch {
    /// What the run does while a call needs an approval.
    pub mode: Option<ApprovalMode>,
    /// How long a call waits for an approval, in milliseconds.
    pub timeout_ms: Option<u64>,
}

/// Rules of the loop that a request asks for.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RulesPatch {
    /// Patterns of tools whose failed call ends the run, beside the agent's.
    pub ends_run: Vec<String>,
    /// When a model that repeats itself is warned and stopped: earlier than the agent says.
    pub loop_guard: LoopGuardPatch,
    /// Whether the model is asked for a plan, and how.
    pub planning: PromptPatch,
    /// Whether the model is asked how far it has come, and how.
    pub reflection: PromptPatch,
    /// After how many tool calls it is asked that.
    pub reflect_every: Option<u32>,
    /// How a conversation is shortened that grows too long.
    pub context: ContextPatch,
}

/// How a conversation is shortened that grows too long.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ContextPatch {
    /// How what is left out is replaced.
    pub compaction: Option<Compaction>,
    /// Which part of the window it may fill: no more than the agent says.
    pub threshold: Option<f64>,
    /// How many of the newest messages are kept as they are.
    pub keep_last: Option<u32>,
    /// How many turns of the user a model is shown: no more than the agent says.
    pub turn_limit: Option<u32>,
    /// What else makes it too long.
    pub triggers: TriggersPatch,
    /// Whether nothing but that is asked for: the session's conversation is shortened now, beside other runs.
    pub only: bool,
}

/// What makes a conversation too long beside its window: no more than the agent says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriggersPatch {
    /// More messages than this that a model is shown.
    pub messages: Option<u32>,
    /// So many input tokens of all calls since it was last shortened.
    pub input_tokens: Option<u64>,
    /// Whether it is shortened in the background after a run, and not before the next call.
    pub after_run: Option<bool>,
}

/// When a model that repeats itself is warned and stopped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopGuardPatch {
    /// After so many turns with the same calls and results it is warned.
    pub warn_after: Option<u32>,
    /// After so many it is stopped.
    pub stop_after: Option<u32>,
    /// After so many turns with the same results it is warned.
    pub same_result_warn_after: Option<u32>,
    /// After so many it is stopped.
    pub same_result_stop_after: Option<u32>,
}

/// Whether something is asked of the model, and in which words.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptPatch {
    /// Whether it is; `None` for what the agent says, or yes where there are words for it.
    pub enabled: Option<bool>,
    /// In which words; `None` for the agent's.
    pub prompt: Option<String>,
}

/// What a request asks for in its prompt.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedPrompt {
    /// Which sections the server writes: no others than the agent has it write.
    pub mode: Option<PromptMode>,
    /// How answers are written.
    pub channel: Option<Channel>,
    /// The time zone of what is told of the time.
    pub time_zone: Option<String>,
    /// What the task at hand is about.
    pub extra_context: Option<String>,
    /// Layers on top of all others.
    pub layers: Vec<PromptLayer>,
}

impl AskedPrompt {
    /// Stands for it.
    #[must_use]
    pub(super) fn digest(&self) -> u64 {
        serde_json::to_vec(self).map_or(0, |bytes| xxh3_64(&bytes))
    }
}

/// Guards that a request asks for.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct GuardsPatch {
    /// What happens to messages that look like attempts to instruct the model in the operator's place.
    pub input: Option<InputMode>,
    /// The longest message of a user, in characters.
    pub max_message_chars: Option<u32>,
    /// The longest result of a tool, in bytes.
    pub max_tool_result_bytes: Option<usize>,
}

impl NewRun {
    /// A request that brings nothing but decisions about calls of a waiting run.
    #[must_use]
    pub fn deciding(tenant: Tenant, run: RunId, approvals: Vec<CallApproval>) -> Self {
        Self { run: Some(run), approvals, ..Self::bare(tenant) }
    }

    /// A request that a session's conversation be shortened in what models are shown.
    #[must_use]
    pub fn compacting(tenant: Tenant, session: SessionId) -> Self {
        let (session, on_conflict) = (Some(session), OnConflict::Concurrent);
        let context = ContextPatch { only: true, ..ContextPatch::default() };
        let rules = RulesPatch { context, ..RulesPatch::default() };
        Self { session, rules, on_conflict, waits_for_the_end: true, ..Self::bare(tenant) }
    }

    /// What a run of this id would be asked for, which says nothing yet.
    #[must_use]
    pub(super) fn again(tenant: Tenant, id: RunId) -> Self {
        Self { id, ..Self::bare(tenant) }
    }

    /// A request of another run, which says nothing yet.
    #[must_use]
    pub(super) fn child(tenant: Tenant, id: RunId, of: ChildOf) -> Self {
        Self { id, of: Some(Box::new(of)), waits_for_the_end: true, ..Self::bare(tenant) }
    }

    /// The same for this user.
    #[must_use]
    pub fn of_user(mut self, user: Option<String>) -> Self {
        if user.is_some() {
            Arc::make_mut(&mut self.options.sampling).user = user;
        }
        self
    }

    /// Whether it waits for what a budget lacks now, and has not waited for as long as it may.
    pub(super) fn awaits(&self, short: &Shortfall, since: Instant, timeout: Duration) -> bool {
        !self.unattended && short.may_pass() && since.elapsed() < timeout
    }

    /// Whether it only asks for what models are shown of its session to be shortened.
    pub(super) fn compacts(&self) -> bool {
        self.rules.context.only
    }

    /// A request that asks for nothing.
    fn bare(tenant: Tenant) -> Self {
        let options = RunOptions {
            tool_choice: ToolChoice::Auto,
            sampling: Arc::default(),
            parallel_tool_calls: true,
            on_disconnect: OnDisconnect::Continue,
            on_unknown_outcome: OnUnknownOutcome::Fail,
            reconnect_grace_ms: 0,
            hide_intermediate_text: false,
            stream_tool_arguments: false,
            max_discards: 0,
            response: None,
        };
        Self {
            id: RunId::mint(),
            tenant,
            key_name: None,
            generation: None,
            allowed_agents: None,
            model: None,
            session: None,
            run: None,
            previous: None,
            system: Vec::new(),
            messages: Vec::new(),
            answers_from: 0,
            answered: Vec::new(),
            decisions: Vec::new(),
            approvals: Vec::new(),
            client_tools: Vec::new(),
            servers: None,
            trace: None,
            request_id: None,
            metadata: BTreeMap::new(),
            max_output_tokens: None,
            tools: None,
            policy: None,
            approval: ApprovalPatch::default(),
            limits: LimitsPatch::default(),
            rules: RulesPatch::default(),
            guards: GuardsPatch::default(),
            prompt: None,
            on_limit: None,
            on_conflict: OnConflict::Reject,
            options,
            waits_for_the_end: false,
            unattended: false,
            sends_all: false,
            repeats: false,
            of_page: false,
            of: None,
            warnings: Vec::new(),
            claim: None,
            memory: Arc::default(),
        }
    }

    /// Who asks, for what is there already.
    pub(super) fn requester(&self) -> Requester<'_> {
        Requester { tenant: &self.tenant, agents: self.allowed_agents.as_deref() }
    }
}
