//! Models: a request in, a stream of deltas out.
//!
//! Knows nothing of runs, of how tools are executed, or of stores. A model either finishes its turn or fails. A
//! stream that ends without a finished turn is a failure.

pub mod anthropic;
mod call_id;
mod classify;
pub mod connect;
mod drafts;
pub mod error_class;
pub mod gemini;
pub mod health;
pub mod http;
mod kept;
mod left_out;
mod model_name;
mod named_event;
mod object;
mod object_schema;
pub mod offered;
pub mod openai;
mod own_member;
pub mod pairing;
pub mod pricing;
pub mod queue;
pub mod refusal;
mod repeated;
pub mod responses;
pub mod retry;
pub mod sse;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod text;
pub mod told_window;
mod turn_calls;
mod turns;
mod unsupported;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use tokio::time::Instant;

use self::offered::OfferedModel;
use self::pairing::Pairing;
use self::refusal::Refusal;
use self::told_window::Told;
use crate::types::conversation::{Part, PartKind, Thinking, joined};
use crate::types::offer::{ToolChoice, ToolOffer};
use crate::types::sampling::Sampling;
use crate::types::tool::WrittenCalls;
use crate::types::{Conversation, ErrorKind, Message, Tenant, TraceContext, TurnEnd, Usage};

pub mod demo;

pub use self::openai::messages::parts as message_parts;
pub use self::unsupported::{Place, Unsupported};

/// What a model is asked.
#[derive(Debug, Clone)]
pub struct ModelRequest {
    /// The model's name at its upstream.
    pub model: String,
    /// What was said so far.
    pub conversation: Conversation,
    /// The tools that it may call.
    pub tools: ToolOffer,
    /// Which of them it must call.
    pub tool_choice: ToolChoice,
    /// How it is to answer.
    pub sampling: Arc<Sampling>,
    /// Most output tokens; `None` leaves that to the upstream.
    pub max_tokens: Option<u64>,
    /// Whether several tools may be called in one turn.
    pub parallel_tool_calls: bool,
    /// Whether no client reads the answer before it is whole, so that a model that [may](Model::may_answer_in_one_piece) is
    /// to give it in one piece.
    pub in_one_piece: bool,
    /// The span that it is sent for, and its trace.
    pub trace: Option<TraceContext>,
    /// The id of the request that began its run.
    pub request_id: Option<String>,
    /// Whether the caller has another model to ask if this one fails, so that waiting for this one is not worth much.
    pub has_fallback: bool,
    /// Whose request it is.
    pub tenant: Tenant,
    /// The same number for requests that begin alike: those of one session, or else of one run. A server that answered one
    /// of them may still know how they begin.
    pub affinity: u64,
    /// Whether it repeats a request that failed.
    pub is_repeat: bool,
    /// Whether another call of the same request is made at the same time.
    pub pairing: Pairing,
    /// When the caller gives up; retries do not reach beyond it.
    pub deadline: Instant,
}

/// Something the model said, in order. [`Delta::Finished`] is the last item of a stream that did not fail.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the fields are named for what they are")]
pub enum Delta {
    /// Answer text; everything that had arrived together is one delta.
    Text(String),
    /// Text in which the model declines to answer.
    Refusal(String),
    /// Reasoning text.
    Thinking(String),
    /// A piece of a call's arguments; `index` counts the turn's calls from 0.
    CallArguments { index: usize, delta: String },
    /// The call waits for its turn at an upstream that is asked by so many calls at once: nothing of it is sent.
    Queued,
    /// Its turn came after so long, and it is sent now.
    Dequeued { waited: Duration },
    /// The upstream took the request and began to answer, though it has said nothing yet.
    Begun,
    /// An attempt failed before anything was said, and at no cost; another follows after `delay`.
    Retry { attempt: u32, delay: Duration, kind: ErrorKind, cause: String },
    /// The turn is whole.
    Finished(Box<ModelTurn>),
}

/// A whole turn, as assembled from its deltas.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelTurn {
    /// Text, thinking and calls, in the model's order.
    pub parts: Vec<ModelPart>,
    /// What the upstream says it took; `None` if it did not say.
    pub usage: Option<Usage>,
    /// Why it ended.
    pub end: TurnEnd,
}

/// Something that a turn holds.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelPart {
    /// Anything but a call.
    Part(Part),
    /// A tool call. The caller of the model gives it its id.
    Call(ModelCall),
}

impl ModelTurn {
    /// A turn of some thinking, then some text, then some calls.
    #[must_use]
    pub fn of(thinking: &str, text: &str, calls: Vec<ModelCall>) -> Self {
        let thinking = PartKind::Thinking(Thinking { text: thinking.to_owned(), seal: None });
        let said = [Part::from(thinking), Part::text(text)].into_iter().filter(|part| !part.is_empty());
        Self {
            parts: said.map(ModelPart::Part).chain(calls.into_iter().map(ModelPart::Call)).collect(),
            ..Self::default()
        }
    }

    /// All answer text.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        said(&self.parts)
    }

    /// How many bytes it holds: text, thinking and arguments.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let bytes = |part: &ModelPart| match part {
            ModelPart::Part(part) => {
                let thinking = part.as_thinking().map_or(0, |thinking| thinking.text.len());
                part.as_text().or(part.as_refusal()).map_or(0, str::len) + thinking
            }
            ModelPart::Call(call) => call.name.len() + call.arguments.len(),
        };
        self.parts.iter().map(bytes).sum()
    }

    /// The calls; arguments may be malformed JSON.
    pub fn calls(&self) -> impl Iterator<Item = &ModelCall> {
        self.parts.iter().filter_map(|part| if let ModelPart::Call(call) = part { Some(call) } else { None })
    }
}

/// All answer text among these parts.
#[must_use]
pub fn said(parts: &[ModelPart]) -> Cow<'_, str> {
    joined(parts.iter().filter_map(|part| if let ModelPart::Part(part) = part { part.as_text() } else { None }))
}

/// One tool call as the model wrote it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelCall {
    /// The tool's name.
    pub name: String,
    /// JSON text, meant to be an object.
    pub arguments: String,
}

/// A stream of deltas.
pub type DeltaStream = BoxStream<'static, Result<Delta, ModelError>>;

/// Something that answers like a language model.
pub trait Model: Send + Sync + fmt::Debug + 'static {
    /// Begins a turn. Dropping the stream ends the call.
    fn stream(&self, request: ModelRequest) -> DeltaStream;

    /// The models that its upstream offers.
    fn list_models(&self) -> BoxFuture<'_, Result<Vec<OfferedModel>, ModelError>>;

    /// The members of a request that its upstream is not sent for this model, because it would refuse them.
    fn unsent<'s>(&self, _model: &str, _sampling: &'s Sampling) -> Vec<&'s str> {
        Vec::new()
    }

    /// The first part of a message that its upstream cannot take, counted from 0, and why.
    fn refuses_part(&self, _message: &Message) -> Option<(usize, String)> {
        None
    }

    /// What of a new request its upstream cannot do, though the answer depends on it; `None` if there is nothing. The
    /// messages are those of the request.
    fn refuses(&self, _sampling: &Sampling, _messages: &[Message]) -> Option<Unsupported> {
        None
    }

    /// Whether its upstream is asked for an answer in one piece where a request says so. Such an answer begins to arrive
    /// after its last token, so until then nothing tells how much of it was made.
    fn may_answer_in_one_piece(&self) -> bool {
        false
    }

    /// Why this model of its upstream is not asked for now; `None` if it is.
    fn refusal(&self, _model: &str) -> Option<Refusal> {
        None
    }

    /// Whether its upstream has several servers or keys, so that a second call can be made elsewhere while one is under way.
    fn has_elsewhere(&self) -> bool {
        false
    }

    /// Whether a request that failed may be repeated: the calls before have earned a retry, which is taken.
    fn take_retry(&self) -> bool {
        true
    }

    /// Which tool calls that it writes as text are taken for calls: small models do that.
    fn written_calls(&self) -> WrittenCalls {
        WrittenCalls::None
    }
}

/// Why a model call failed. Messages are fit for users: they hold no key and no upstream body beyond
/// its error message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// What kind of failure it is.
    pub kind: ModelErrorKind,
    /// One sentence for the user.
    pub message: String,
    /// The upstream's HTTP status, if it answered with one.
    pub status: Option<u16>,
    /// How long the upstream asks to wait before another attempt.
    pub retry_after: Option<Duration>,
    /// What the call may have cost.
    pub spent: Spent,
    /// How far the failure reaches.
    pub extent: Extent,
    /// What the upstream says that the call took.
    pub usage: Option<Usage>,
    /// Whether the upstream cannot read the reasoning that the request brought back.
    pub refuses_reasoning: bool,
    /// What the upstream says of the window, where it refused the conversation as too long.
    pub told: Option<Box<Told>>,
}

impl ModelError {
    /// A failure before anything was sent.
    #[must_use]
    pub fn new(kind: ModelErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            status: None,
            retry_after: None,
            spent: Spent::Nothing,
            extent: Extent::Model,
            usage: None,
            refuses_reasoning: false,
            told: None,
        }
    }

    /// The same, of a call that may have cost this much.
    #[must_use]
    pub fn having(self, spent: Spent) -> Self {
        Self { spent, ..self }
    }

    /// What failed, in terms of a run.
    #[must_use]
    pub fn failure(&self) -> ErrorKind {
        match self.kind {
            ModelErrorKind::Transient => ErrorKind::UpstreamUnavailable,
            ModelErrorKind::Timeout => ErrorKind::UpstreamTimeout,
            ModelErrorKind::Rejected if matches!(self.status, Some(400 | 422)) => ErrorKind::RequestRejected,
            ModelErrorKind::Rejected => ErrorKind::UpstreamRejected,
            ModelErrorKind::ContextLength => ErrorKind::ContextLength,
        }
    }
}

/// How far a failure reaches: what else it is to be expected of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// The model of the upstream, whichever server of several is asked.
    Model,
    /// What the model wrote, which is no fault of the server that passed it on.
    Answer,
    /// One server of several, while another one can be asked.
    Address,
    /// The connection, which was kept and is closed just as it is used.
    Connection,
}

impl Extent {
    /// Whether it says something of the model.
    #[must_use]
    pub fn is_of_model(self) -> bool {
        matches!(self, Self::Model | Self::Answer)
    }
}

/// What a call that failed may have cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spent {
    /// Nothing: the request was not sent, or the upstream refused it.
    Nothing,
    /// Its input: the request was sent and no answer began, or the upstream or its gateway failed while it was at it.
    Input,
    /// Up to all that it was allowed: the upstream had begun to answer, or nothing tells whether it had.
    Unknown,
}

/// Kinds of failure, by what can be done about them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelErrorKind {
    /// Not reached, overloaded or broken: another attempt may succeed.
    Transient,
    /// It did not answer, or fell silent, for too long.
    Timeout,
    /// It refused the request; repeating it cannot help.
    Rejected,
    /// The context does not fit the model.
    ContextLength,
}
