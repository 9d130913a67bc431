//! Models of the program's own.

use std::fmt;
use std::future::ready;
use std::sync::Arc;

use async_stream::stream;
use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::llm::offered::OfferedModel;
use crate::llm::{self, Delta, DeltaStream, ModelCall, ModelError, ModelErrorKind, ModelTurn, message_parts};
use crate::types::conversation::Part;
use crate::types::{Message, Role, TurnEnd, Usage};

/// Pieces of an answer that wait to be taken on.
const PIECES: usize = 64;

/// Something that answers like a language model.
///
/// ```
/// use loopgate::{Answer, Failure, Model, ModelRequest, async_trait};
///
/// #[derive(Debug)]
/// struct Echo;
///
/// #[async_trait]
/// impl Model for Echo {
///     fn names(&self) -> Vec<String> {
///         vec!["echo".to_owned()]
///     }
///
///     async fn answer(&self, request: ModelRequest, answer: &mut Answer) -> Result<(), Failure> {
///         let said = request.messages.last().map_or("", |message| &message.text);
///         answer.text("You said: ").await;
///         answer.text(said).await;
///         Ok(())
///     }
/// }
/// ```
#[async_trait]
pub trait Model: Send + Sync + fmt::Debug + 'static {
    /// The names of its models, at least one.
    fn names(&self) -> Vec<String>;

    /// Answers. What is said is streamed to the client as it is said; the turn ends when this returns. The future is dropped when
    /// the run is cancelled or its time is up.
    async fn answer(&self, request: ModelRequest, answer: &mut Answer) -> Result<(), Failure>;
}

/// What a model is asked.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ModelRequest {
    /// Which of its models.
    pub model: String,
    /// What was said so far, the system prompt first.
    pub messages: Vec<ModelMessage>,
    /// The tools that it may call.
    pub tools: Vec<AskedTool>,
    /// Most output tokens.
    pub max_tokens: Option<u64>,
    /// How freely it is to choose its words.
    pub temperature: Option<f64>,
}

/// A message.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ModelMessage {
    /// Who said it.
    pub speaker: Speaker,
    /// Its text. Pictures and the like are described in words.
    pub text: String,
    /// The tools that the model called in it: id, name and arguments.
    pub calls: Vec<(String, String, String)>,
    /// The id of the call that it answers.
    pub answers: Option<String>,
}

/// Who said a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    /// The operator or the caller: instructions.
    System,
    /// The person or program that asks.
    User,
    /// The model.
    Model,
    /// A tool that was called.
    Tool,
}

/// A tool that a model may call.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AskedTool {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The JSON schema of its arguments.
    pub parameters: Value,
}

/// What a model says.
#[derive(Debug)]
pub struct Answer {
    pieces: mpsc::Sender<Delta>,
    text: String,
    calls: Vec<ModelCall>,
    usage: Option<Usage>,
    end: TurnEnd,
}

impl Answer {
    /// Says some text.
    pub async fn text(&mut self, text: impl AsRef<str> + Send) {
        let text = text.as_ref();
        if text.is_empty() {
            return;
        }
        self.text.push_str(text);
        // Nothing takes it on if the call is about to be dropped.
        let _ = self.pieces.send(Delta::Text(text.to_owned())).await;
    }

    /// Calls a tool, once the turn has ended.
    pub fn call(&mut self, name: impl Into<String>, arguments: &Value) {
        self.calls.push(ModelCall { name: name.into(), arguments: arguments.to_string() });
    }

    /// Says how many tokens the request and the answer took. Without this they are estimated.
    pub fn took(&mut self, input_tokens: u64, output_tokens: u64) {
        let (prompt_tokens, completion_tokens) = (input_tokens, output_tokens);
        self.usage = Some(Usage { prompt_tokens, completion_tokens, ..Usage::default() });
    }

    /// Says that the answer ends here because it is as long as it may be.
    pub fn is_cut_off(&mut self) {
        self.end = TurnEnd::Length;
    }

    fn into_turn(self) -> ModelTurn {
        let Self { text, calls, usage, end, .. } = self;
        let end = if end == TurnEnd::Stop && !calls.is_empty() { TurnEnd::ToolCalls } else { end };
        ModelTurn { usage, end, ..ModelTurn::of("", &text, calls) }
    }
}

/// Why there is no answer, in words for the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Another attempt may succeed; the server makes some.
    #[error("{0}")]
    ForNow(String),
    /// The request cannot be answered, however often it is made.
    #[error("{0}")]
    Refused(String),
}

/// A model of the program's own, as the server knows models.
#[derive(Debug)]
struct Embedded<M> {
    model: Arc<M>,
}

/// The model as the server knows models, and its names.
pub(super) fn embed(model: impl Model) -> (Vec<String>, Arc<dyn llm::Model>) {
    (model.names(), Arc::new(Embedded { model: Arc::new(model) }))
}

impl<M: Model> llm::Model for Embedded<M> {
    fn stream(&self, request: llm::ModelRequest) -> DeltaStream {
        let model = self.model.clone();
        Box::pin(stream! {
            let request = match read(&request) {
                Ok(request) => request,
                Err(error) => {
                    yield Err(error);
                    return;
                }
            };
            let (pieces, mut said) = mpsc::channel(PIECES);
            let mut answer =
                Answer { pieces, text: String::new(), calls: Vec::new(), usage: None, end: TurnEnd::Stop };
            let answering = async move { model.answer(request, &mut answer).await.map(|()| answer.into_turn()) };
            tokio::pin!(answering);
            let ended = loop {
                tokio::select! {
                    biased;
                    Some(piece) = said.recv() => yield Ok(piece),
                    ended = &mut answering => break ended,
                }
            };
            while let Ok(piece) = said.try_recv() {
                yield Ok(piece);
            }
            yield match ended {
                Ok(turn) => Ok(Delta::Finished(Box::new(turn))),
                Err(Failure::ForNow(why)) => Err(ModelError::new(ModelErrorKind::Transient, why)),
                Err(Failure::Refused(why)) => Err(ModelError::new(ModelErrorKind::Rejected, why)),
            };
        })
    }

    fn list_models(&self) -> BoxFuture<'_, Result<Vec<OfferedModel>, ModelError>> {
        ready(Ok(self.model.names().iter().map(|name| name.as_str().into()).collect())).boxed()
    }
}

/// The request in terms of this door.
fn read(request: &llm::ModelRequest) -> Result<ModelRequest, ModelError> {
    let unreadable = |error: serde_json::Error| {
        ModelError::new(ModelErrorKind::Rejected, format!("a message of the request cannot be read: {error}"))
    };
    let tools = request.tools.tools().map(|tool| AskedTool {
        name: tool.name.clone(),
        description: tool.description.clone().unwrap_or_default(),
        parameters: tool.parameters.as_ref().and_then(|json| serde_json::from_str(json.get()).ok()).unwrap_or_default(),
    });
    Ok(ModelRequest {
        model: request.model.clone(),
        messages: request.conversation.iter().map(message).collect::<Result<_, _>>().map_err(unreadable)?,
        tools: tools.collect(),
        max_tokens: request.max_tokens,
        temperature: request.sampling.temperature,
    })
}

fn message(message: &Message) -> Result<ModelMessage, serde_json::Error> {
    let parts = &message_parts(message)?.list;
    let speaker = match message.role {
        Role::System | Role::Developer => Speaker::System,
        Role::User => Speaker::User,
        Role::Assistant => Speaker::Model,
        Role::Tool => Speaker::Tool,
    };
    let result = parts.iter().find_map(Part::as_result);
    let own = parts
        .iter()
        .filter(|part| part.as_call().is_none() && part.as_result().is_none() && part.as_thinking().is_none());
    let text = match result {
        Some(result) if result.parts.is_empty() => {
            result.structured.as_ref().map_or_else(String::new, |json| json.get().to_owned())
        }
        Some(result) => words(result.parts.iter()),
        None => words(own),
    };
    let calls = parts.iter().filter_map(Part::as_call);
    Ok(ModelMessage {
        speaker,
        text,
        calls: calls.map(|call| (call.id.as_str().to_owned(), call.name.clone(), call.arguments.clone())).collect(),
        answers: result.map(|result| result.call.as_str().to_owned()),
    })
}

fn words<'a>(parts: impl Iterator<Item = &'a Part>) -> String {
    parts.map(Part::in_words).collect::<Vec<_>>().join("\n")
}
