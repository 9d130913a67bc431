//! The specification of a run, pinned when it starts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::types::context::View;
use crate::types::fallback::{CallTerms, Fallback};
use crate::types::guard::{GuardPoint, Guarded, Guards};
use crate::types::handoff::HandoffState;
use crate::types::hook::{HookPoint, PinnedHook};
use crate::types::json::is_default;
use crate::types::lineage::{Parent, Tree};
use crate::types::named_server::NamedServer;
use crate::types::offer::{OfferHash, ToolChoice, ToolDefinition};
use crate::types::policy::Policy;
use crate::types::price::{Price, PriceOrigin, StepModel};
use crate::types::prompt::Prompt;
use crate::types::question::{ASK_USER, Question};
use crate::types::response::ResponseTerms;
use crate::types::rules::LoopRules;
use crate::types::sampling::Sampling;
use crate::types::share::RunsAtOnce;
use crate::types::trace::{RunTrace, SpanKey, TraceContext};
use crate::types::usage::Micros;
use crate::types::{Message, RunId, SessionId, Tenant};

/// How long a run's lease lasts without renewal.
pub const LEASE_TTL: Duration = Duration::from_secs(10);

/// Bounds of one run. Zero and `None` are not "unlimited": `None` means that no such limit was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Most model calls.
    pub max_iterations: u32,
    /// Most calls of server-side tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tool_calls: Option<u32>,
    /// From start to end, without the time the run waited for its client.
    pub timeout_ms: u64,
    /// For each tool call.
    pub tool_timeout_ms: u64,
    /// Most input and output tokens together.
    pub token_budget: Option<u64>,
    /// Most money.
    pub cost_budget: Option<Micros>,
}

/// What happens when a limit ends the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnLimit {
    /// The run ends `incomplete` with the text so far, or a sentence that names the limit.
    #[default]
    Stop,
    /// A reserve is held back and the model is called once more, without tools, for a closing answer.
    Synthesize,
    /// The run fails.
    Error,
}

/// What happens when the last reader of a run has gone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnDisconnect {
    /// The run is cancelled once `reconnect_grace_ms` has passed.
    #[default]
    Cancel,
    /// The run continues to its end.
    Continue,
}

/// What happens when the session has a live run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnConflict {
    /// The request is refused and told which run it is.
    #[default]
    Reject,
    /// The run begins once those before it have ended.
    Enqueue,
    /// The live run is cancelled first.
    Interrupt,
    /// Both run, on the history as it is; each adds its messages in one piece when it ends.
    Concurrent,
}

/// What happens when it is unknown whether a call with side effects took effect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnUnknownOutcome {
    /// The run fails.
    #[default]
    Fail,
    /// The run waits until its caller says what came of the call.
    Ask,
    /// The model is told that the outcome is unknown and decides.
    TellModel,
}

/// How a run treats its model, its tools and its readers, as its caller asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunOptions {
    /// Which tool must be called first; what follows is the model's choice.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tool_choice: ToolChoice,
    /// How the model is to answer.
    #[serde(default)]
    pub sampling: Arc<Sampling>,
    /// Whether several calls of one turn may run at once.
    pub parallel_tool_calls: bool,
    /// See [`OnDisconnect`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_disconnect: OnDisconnect,
    /// See [`OnUnknownOutcome`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_unknown_outcome: OnUnknownOutcome,
    /// How long a run outlives its last reader.
    pub reconnect_grace_ms: u64,
    /// Whether a step's text is held until it is known to be the last.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hide_intermediate_text: bool,
    /// Whether arguments are shown as the model writes them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub stream_tool_arguments: bool,
    /// How many steps may be voided because the model's stream broke after text went out.
    pub max_discards: u32,
    /// What its response is to say of it, if it was asked for through the Responses API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<Arc<ResponseTerms>>,
}

impl RunOptions {
    /// Whether what was said can be read by the id of its response once it ended.
    #[must_use]
    pub fn keeps_response(&self) -> bool {
        self.response.as_ref().is_some_and(|terms| terms.store)
    }
}

/// How a run finds tools that it is not offered from the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSearch {
    /// How many of the tools that are defined with the run's are offered from the start, before any that it asks for.
    pub first: u32,
    /// The most that it has found at a time: the earliest found make room for later ones.
    pub most: u32,
}

/// Everything that shapes a run; it does not change while the run lasts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunSpec {
    /// The run.
    pub id: RunId,
    /// Whose run it is.
    pub tenant: Tenant,
    /// The name of the key that it was started with, whose budgets it takes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_name: Option<String>,
    /// How many runs of its agent and of its user there may be at once, itself included.
    #[serde(default, skip_serializing_if = "is_default")]
    pub at_once: RunsAtOnce,
    /// The conversation that it continues and extends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// Whether the run is concurrent: it runs at the same time as the session's other runs and never holds the session.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub concurrent: bool,
    /// The run that began it, and waits for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Arc<Parent>>,
    /// What it shares with the other runs of its tree, if there may be any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<Arc<Tree>>,
    /// The replica that accepted it, if it was queued: until it begins, it is registered under this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_at: Option<Arc<str>>,
    /// When it was accepted, Unix milliseconds.
    pub created_ms: u64,
    /// The model or agent as the caller named it.
    pub model: String,
    /// The agent whose configuration it runs with.
    pub agent: String,
    /// The version of that agent which it keeps, if it is one of the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<u64>,
    /// The upstream that is called.
    pub upstream: String,
    /// The model's name at that upstream.
    pub upstream_model: String,
    /// The models that it may call in place of that one, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallbacks: Vec<Fallback>,
    /// Instructions for this run only, ahead of the history.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub system: Vec<Message>,
    /// What it is told besides; `None` if that is nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<Arc<Prompt>>,
    /// How many of the session's messages precede this run's.
    #[serde(default, skip_serializing_if = "is_default")]
    pub history_len: u64,
    /// How often messages of the session were replaced before: these are counted as they stand since.
    #[serde(default, skip_serializing_if = "is_default")]
    pub splices: u64,
    /// What of the session's messages and its own the model is shown when the run begins; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<Arc<View>>,
    /// Whether all that it does is to shorten what models are shown of its session.
    #[serde(default, skip_serializing_if = "is_default")]
    pub compacts: bool,
    /// How many input tokens its session's runs took since its conversation was shortened, where its rules go by that.
    #[serde(default, skip_serializing_if = "is_default")]
    pub input_since: u64,
    /// This run's own new messages.
    pub input: Vec<Message>,
    /// Estimated tokens of `system`, `prompt`, history, `input` and the tools' schemas.
    pub context_tokens: u64,
    /// Names of the server's tools that are offered.
    pub tools: Vec<String>,
    /// How it finds more of them; `None` if it is offered all that it may call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<ToolSearch>,
    /// How those tools were defined when the run was accepted; the store has the definitions under this name.
    pub offer: OfferHash,
    /// The tools that the run answers itself, because they need it or the store.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own_tools: Vec<Arc<ToolDefinition>>,
    /// The client's own tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub client_tools: Vec<Arc<ToolDefinition>>,
    /// The servers of tools that its request named, with what they are shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub servers: Option<Arc<[NamedServer]>>,
    /// The trace that it belongs to, if it has spans or its caller names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<RunTrace>,
    /// Whether traces tell nothing that is said in it, whatever they tell of others.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hides_content: bool,
    /// Whether a request for it that does not say how it is to be answered is answered with a stream, where it may be either.
    #[serde(default, skip_serializing_if = "is_default")]
    pub streams: bool,
    /// The id of the request that began it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The name of the claim of the caller's key under which that request came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,
    /// The caller's notes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// Most tokens of input and output together that the model takes.
    pub context_window: u64,
    /// Most output tokens that are reserved for one model call.
    pub max_output_tokens: u64,
    /// Whether the request bounds the output, so that the upstream is to be told.
    #[serde(default, skip_serializing_if = "is_default")]
    pub bounds_output: bool,
    /// The run's bounds.
    pub limits: Limits,
    /// What its calls are judged by before they are made; `None` if all that the model asks for are made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Arc<Policy>>,
    /// What the model's tokens cost.
    pub price: Price,
    /// Where `price` comes from.
    #[serde(default, skip_serializing_if = "PriceOrigin::is_known")]
    pub price_origin: PriceOrigin,
    /// What its caller should know of how it was accepted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// See [`OnLimit`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_limit: OnLimit,
    /// How its loop treats what goes wrong in it.
    #[serde(default, skip_serializing_if = "LoopRules::are_default")]
    pub rules: Arc<LoopRules>,
    /// How long a model may say nothing before a second one is asked beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hedge_after_ms: Option<u64>,
    /// What its messages, answers and results are held to.
    #[serde(default, skip_serializing_if = "Guards::is_standard")]
    pub guards: Arc<Guards>,
    /// What guards found in its input, or did about it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guarded: Vec<Guarded>,
    /// The hooks that it is subject to, in the order in which they are asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<PinnedHook>,
    /// How often it was handed off, and whether it may be.
    #[serde(default, skip_serializing_if = "is_default")]
    pub handoff: HandoffState,
    /// What the caller asked for besides.
    pub options: RunOptions,
}

impl RunSpec {
    /// The first run of its tree: itself, unless another run began it.
    #[must_use]
    pub fn root(&self) -> &RunId {
        self.parent.as_ref().map_or(&self.id, |parent| &parent.root)
    }

    /// The hooks that stand at this point, of this tool where it is one of tools, in their order.
    pub fn hooks_at<'a>(&'a self, point: HookPoint, tool: Option<&'a str>) -> impl Iterator<Item = &'a PinnedHook> {
        self.hooks.iter().filter(move |hook| hook.stands_at(point, tool))
    }

    /// Whether it waits for what a hook says at this point.
    #[must_use]
    pub fn asks_hooks_at(&self, point: HookPoint) -> bool {
        self.hooks.iter().any(|hook| hook.is_asked && hook.points.contains(&point))
    }

    /// What its model is told beside the conversation.
    pub fn told(&self) -> impl Iterator<Item = &Message> {
        self.system.iter().chain(self.prompt.as_ref().and_then(|prompt| prompt.of_run.as_ref()))
    }

    /// How many bytes of text that is to a model, about.
    #[must_use]
    pub fn told_weight(&self) -> usize {
        self.told().map(Message::weight).sum()
    }

    /// The id of the trace that it belongs to.
    #[must_use]
    pub fn trace_id(&self) -> Option<String> {
        self.trace.as_ref().map(|trace| trace.id.to_string())
    }

    /// What the receiver of a request is told that is sent for this span.
    #[must_use]
    pub fn outgoing_trace(&self, span: SpanKey<'_>) -> Option<TraceContext> {
        self.trace.as_ref().map(|trace| trace.outgoing(&self.id, span))
    }

    /// Whether anything looks at its calls before they are made.
    #[must_use]
    pub fn judges_calls(&self) -> bool {
        self.policy.is_some()
            || self.asks_hooks_at(HookPoint::BeforeTool)
            || self.guards.judges(GuardPoint::ToolArguments)
    }

    /// What a call of this tool with these arguments asks the user; `None` if it is no question.
    #[must_use]
    pub fn question(&self, tool: &str, arguments: &str) -> Option<Question> {
        if tool == ASK_USER && self.may_ask_user() { Question::read(arguments) } else { None }
    }

    /// Whether its model may ask the user, by a tool of the run and not by one of the client's.
    #[must_use]
    pub fn may_ask_user(&self) -> bool {
        let has = |tools: &[Arc<ToolDefinition>]| tools.iter().any(|tool| tool.name == ASK_USER);
        has(&self.own_tools) && !has(&self.client_tools)
    }

    /// What the plan of a call of its own model depends on.
    #[must_use]
    pub fn terms(&self) -> CallTerms {
        let Self { price, context_window, max_output_tokens, .. } = *self;
        CallTerms { price, context_window, max_output_tokens }
    }

    /// The model that its steps call, unless the run falls back to another.
    #[must_use]
    pub fn step_model(&self) -> StepModel {
        StepModel {
            upstream: self.upstream.clone(),
            model: self.upstream_model.clone(),
            price: self.price,
            price_origin: self.price_origin,
        }
    }
}
