//! Everything that can happen in a run, in the order in which it happened.
//!
//! A run is the log of its events: its state is the fold of them, and every connection shows a view of them. Match
//! every variant by name, so that the compiler lists the places that a new variant affects.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::types::approval::{Approval, ApprovalRequest};
use crate::types::context::ContextEvent;
use crate::types::conversation::{Part, joined};
use crate::types::delegate::Delegated;
pub use crate::types::discard::DiscardReason;
use crate::types::error::{ErrorKind, RunError};
use crate::types::fallback::FellBack;
use crate::types::guard::Guarded;
use crate::types::hedge::{HedgeEnded, HedgeStarted};
use crate::types::hook::HookRan;
use crate::types::outcome::{Outcome, StopReason};
use crate::types::pending::PendingCall;
use crate::types::price::StepModel;
pub use crate::types::reservation::Reservation;
use crate::types::rules::LoopFinding;
use crate::types::run::RunOptions;
use crate::types::shortfall::{BudgetKind, BudgetOwner, Shortfall};
use crate::types::succession::Handoff;
use crate::types::tool_question::{ResolvedQuestion, ToolQuestion};
use crate::types::usage::{BudgetStatus, Usage, Used};
use crate::types::{CallId, Effect, Message, ToolCall, ToolOutcome, ToolProgress, TurnEnd};

/// An event as it stands in the log. Public events are numbered from 1 without gaps; an internal one bears the number of the
/// public one before it. A record's place in the log is therefore never below its number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The number that clients see as the event's id.
    #[serde(rename = "n")]
    pub seq: u64,
    /// When it happened, Unix milliseconds.
    #[serde(rename = "t")]
    pub at_ms: u64,
    /// What happened.
    #[serde(rename = "e")]
    pub event: Event,
}

/// Something that happened in a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are named for what they are")]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The run was accepted behind another one in its session.
    RunQueued,
    /// The run began.
    RunStarted,
    /// The run continues: another replica resumed it after a crash, or its client answered.
    RunResumed {
        /// What the client's next request brought; `None` after a crash.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        leg: Option<Leg>,
    },
    /// A model call begins; what it may take is reserved.
    StepStarted {
        /// Counted from 1; discarded steps count.
        step: u32,
        /// What was set aside for it.
        reserved: Reservation,
        /// Which model is called; `None` if the log names it already: in an earlier step, or where the run fell back to it.
        /// The first step names its model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<Arc<StepModel>>,
        /// The limit after which this is the closing answer, without tools.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        closing: Option<StopReason>,
    },
    /// Reasoning text.
    ThinkingDelta { step: u32, text: String },
    /// Answer text.
    TextDelta { step: u32, text: String },
    /// Text in which the model declines to answer.
    RefusalDelta { step: u32, text: String },
    /// Arguments as the model writes them. The call's id is minted before its name is known.
    ToolArgumentsDelta { step: u32, call_id: CallId, delta: String },
    /// The upstream failed before it said anything, and at no cost; another attempt follows.
    ProviderRetry {
        step: u32,
        upstream: String,
        model: String,
        attempt: u32,
        delay_ms: u64,
        kind: ErrorKind,
        cause: String,
    },
    /// The run goes on with another model, because the one before failed or is not asked for now.
    ProviderFallback(Box<FellBack>),
    /// A second call of the step begins beside the first, which has said nothing yet.
    HedgeStarted(Box<HedgeStarted>),
    /// One of the two calls is dropped, and the step goes on with the other.
    HedgeEnded(Box<HedgeEnded>),
    /// The model's turn is whole. Internal.
    TurnFinished { step: u32, turn: Box<Turn> },
    /// The step's text so far is void.
    StepDiscarded {
        step: u32,
        reason: DiscardReason,
        /// What the run is charged for it.
        usage: Usage,
        /// What the model call may have taken beyond `usage`. The amount is unknown: the key is charged for it,
        /// and the run, which continues, is not.
        #[serde(default, skip_serializing_if = "Used::is_nothing")]
        unconfirmed: Used,
    },
    /// A guard found something, or did something about it.
    Guarded(Box<Guarded>),
    /// Something happened to what of the conversation the model is shown.
    Context(Box<ContextEvent>),
    /// A budget is four fifths used.
    BudgetWarning { owner: BudgetOwner, kind: BudgetKind, used: u64, limit: u64 },
    /// Nothing stands against a call of a run whose calls are judged. Internal.
    CallAllowed {
        call_id: CallId,
        /// The arguments that the call is made with, if they were changed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments: Option<String>,
    },
    /// A call waits for an approval.
    ApprovalRequired(Box<ApprovalRequest>),
    /// A call that waits for an approval was decided, or its time ran out.
    ApprovalResolved(Box<Approval>),
    /// The model has repeated tool calls that brought nothing new: it is warned, or the run stops.
    LoopGuardTriggered(Box<LoopFinding>),
    /// The next model call asks the model for a plan, with this text beside the conversation.
    PlanCreated { step: u32, text: String },
    /// The next model call asks the model how far it has come, with this text beside the conversation.
    ReflectionStarted { step: u32, text: String },
    /// A server-side tool is about to be dispatched.
    ToolStarted { step: u32, call: ToolCall, effect: Effect },
    /// The service of a server-side tool goes on with a call, and answers later.
    ToolPending(Box<PendingCall>),
    /// A run that a call begins is about to begin, or ended.
    Delegated(Box<Delegated>),
    /// The run goes on as another agent once the calls of the step are answered.
    Handoff(Box<Handoff>),
    /// A server-side tool tells how far it is.
    ToolProgress { step: u32, call_id: CallId, name: String, progress: ToolProgress },
    /// A server-side call asks the user something, and goes on meanwhile.
    QuestionAsked(Box<ToolQuestion>),
    /// What was asked was answered, or no user answered it.
    QuestionResolved(Box<ResolvedQuestion>),
    /// A server-side tool with side effects has answered, and its answer is looked at before it is the call's result. Internal.
    ToolAnswered { call_id: CallId, outcome: Box<ToolOutcome> },
    /// A server-side call has its result.
    ToolFinished { step: u32, call_id: CallId, name: String, outcome: ToolOutcome },
    /// A hook was asked, and said what is to become of a call or of the run.
    HookRan(Box<HookRan>),
    /// The hooks at the run's start were asked, and what others are told of it is written. Internal.
    StartHooked,
    /// The model call and all of its server-side tools are done.
    StepCompleted {
        /// The step.
        step: u32,
        /// What its model call took.
        usage: Usage,
        /// Why the model's turn ended.
        turn_end: TurnEnd,
        /// The model call's time in milliseconds.
        latency_ms: u64,
        /// Where the run's budgets stand.
        budget: BudgetStatus,
    },
    /// The run is to stop for this reason. Internal.
    StopRequested {
        /// Why.
        reason: StopReason,
        /// What to tell the caller, for a run that is to fail.
        error: Option<RunError>,
        /// The budget that has no room, or had none until the time was up.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        short: Option<Shortfall>,
    },
    /// The run is to stop as cancelled once the step that is under way is done. Internal.
    StopAfterStep,
    /// Commands of the inbox were applied to the run. Internal.
    CommandsApplied {
        /// The number of the last command that was applied, counted from 1.
        upto: u64,
        /// What joins the conversation before the next model call.
        messages: Vec<Message>,
    },
    /// The replica that drove the run leaves it to others, by order. Internal.
    HandedOff,
    /// The run ended or waits for its client.
    RunFinished(Box<Outcome>),
}

impl Event {
    /// The claim of the key of the request that it came with, to a run that waited.
    #[must_use]
    pub fn claim(&self) -> Option<&str> {
        if let Self::RunResumed { leg: Some(leg) } = self {
            return leg.claim.as_deref();
        }
        if let Self::ApprovalResolved(approval) = self { approval.claim.as_deref() } else { None }
    }

    /// Whether clients see it and it takes a number.
    #[must_use]
    pub fn is_public(&self) -> bool {
        match self {
            Self::TurnFinished { .. }
            | Self::CallAllowed { .. }
            | Self::StopRequested { .. }
            | Self::StopAfterStep
            | Self::CommandsApplied { .. }
            | Self::ToolAnswered { .. }
            | Self::StartHooked
            | Self::HandedOff => false,
            Self::RunQueued
            | Self::RunStarted
            | Self::RunResumed { .. }
            | Self::StepStarted { .. }
            | Self::ThinkingDelta { .. }
            | Self::TextDelta { .. }
            | Self::RefusalDelta { .. }
            | Self::ToolArgumentsDelta { .. }
            | Self::ProviderRetry { .. }
            | Self::ProviderFallback(_)
            | Self::HedgeStarted(_)
            | Self::HedgeEnded(_)
            | Self::StepDiscarded { .. }
            | Self::BudgetWarning { .. }
            | Self::ApprovalRequired(_)
            | Self::ApprovalResolved(_)
            | Self::LoopGuardTriggered(_)
            | Self::PlanCreated { .. }
            | Self::ReflectionStarted { .. }
            | Self::ToolStarted { .. }
            | Self::ToolPending(_)
            | Self::Delegated(_)
            | Self::Handoff(_)
            | Self::ToolProgress { .. }
            | Self::QuestionAsked(_)
            | Self::QuestionResolved(_)
            | Self::ToolFinished { .. }
            | Self::HookRan(_)
            | Self::StepCompleted { .. }
            | Self::RunFinished(_) => true,
            Self::Guarded(guarded) => guarded.is_public(),
            Self::Context(context) => context.is_public(),
        }
    }

    /// The run is to stop for this reason, which says all.
    #[must_use]
    pub fn stop(reason: StopReason) -> Self {
        Self::StopRequested { reason, error: None, short: None }
    }

    /// Whether it is a piece of a text that is still being written: stored, but not worth a disk sync.
    #[must_use]
    pub fn is_delta(&self) -> bool {
        matches!(
            self,
            Self::TextDelta { .. }
                | Self::RefusalDelta { .. }
                | Self::ThinkingDelta { .. }
                | Self::ToolArgumentsDelta { .. }
        )
    }
}

/// What a request brings to a run that waits for its client. The run's specification has the same of the request that
/// started the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Leg {
    /// Which of the run's requests it is: 0 started the run.
    pub number: u32,
    /// The name of the claim of the caller's key under which the request came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,
    /// What the request asks for beside its messages.
    pub asked: Box<Asked>,
    /// The client's answers, in call order, then what else it said.
    pub answers: Vec<Message>,
    /// What is to become of calls whose outcome is not known, and for which the client has no result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<(CallId, Decision)>,
    /// What the client should know about its request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// What guards found in the messages, or did about it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guarded: Vec<Guarded>,
}

/// What a request that continues a run asks for. The run keeps the settings that it began with; an endpoint that shows
/// each request's part of a run as an object of its own shows these.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// The model or agent, if the request names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Its instructions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub system: Vec<Message>,
    /// The names of the client's tools that it declares; the run's specification has their definitions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub client_tools: Vec<String>,
    /// Most output tokens of one model call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// Everything else.
    pub options: RunOptions,
}

impl Leg {
    /// What is to become of this call.
    #[must_use]
    pub fn decision(&self, call: &CallId) -> Option<Decision> {
        self.decisions.iter().find(|(decided, _)| decided == call).map(|(_, decision)| *decision)
    }
}

/// What is to become of a call whose outcome is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// It is made again, with the same idempotency key.
    Retry,
    /// It is left as it is: the model is told that its outcome is not known.
    Skip,
}

/// What the model said in one turn.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Text, thinking and calls, in its order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
    /// What it took.
    pub usage: Usage,
    /// Why it ended.
    pub end: TurnEnd,
    /// From request to last byte, in milliseconds.
    pub latency_ms: u64,
    /// From request to the first piece of the answer, if it came in pieces. Counted as the turn is recorded, and not
    /// stored: nothing that reads the log asks for it.
    #[serde(skip)]
    pub first_token_ms: Option<u64>,
}

impl Turn {
    /// All answer text.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        joined(self.parts.iter().filter_map(Part::as_text))
    }

    /// The words in which the model declines.
    #[must_use]
    pub fn refusal(&self) -> Cow<'_, str> {
        joined(self.parts.iter().filter_map(Part::as_refusal))
    }

    /// All reasoning text.
    #[must_use]
    pub fn thinking(&self) -> Cow<'_, str> {
        joined(self.parts.iter().filter_map(Part::as_thinking).map(|thinking| thinking.text.as_str()))
    }

    /// The tools it called.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(Part::as_call)
    }

    /// Whether it neither says nor calls anything. It may hold thinking, which goes into no conversation.
    #[must_use]
    pub fn says_nothing(&self) -> bool {
        self.text().is_empty() && self.refusal().is_empty() && self.calls().next().is_none()
    }

    /// Whether nothing came of it, not even thinking.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.says_nothing() && self.thinking().is_empty()
    }
}
