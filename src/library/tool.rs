//! Tools of the program's own.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::tools::{self, CallContext, Source, ToolSpec};
use crate::types::conversation::{self, Part, PartKind};
use crate::types::json::RawValueEq;
use crate::types::{self, SessionId, ToolProgress};

/// What a tool is, for the model that calls it.
#[derive(Debug, Clone)]
#[must_use]
pub struct ToolDefinition {
    name: String,
    description: String,
    parameters: Value,
    effect: Effect,
    timeout: Option<Duration>,
}

/// What repeating a call would do. After a crash, the server decides by it whether it makes an interrupted call again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Effect {
    /// Nothing is changed, so a call may be made again, and beside others.
    Read,
    /// Something is changed once, however often the call is made with the same [id](ToolCall::id).
    Idempotent,
    /// Each call changes something, so none is made twice. What is not declared is this.
    #[default]
    Write,
}

impl ToolDefinition {
    /// A tool that takes no arguments. The name has 1 to 64 of `A-Z a-z 0-9 _ -`; the model decides by the description when to
    /// call the tool.
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            parameters: serde_json::json!({"type": "object", "properties": {}, "additionalProperties": false}),
            effect: Effect::default(),
            timeout: None,
        }
    }

    /// The JSON schema of its arguments, of an object. The server refuses calls that do not fit it, so the tool sees none.
    pub fn parameters(self, schema: Value) -> Self {
        Self { parameters: schema, ..self }
    }

    /// What repeating a call would do; without this, [`Effect::Write`].
    pub fn effect(self, effect: Effect) -> Self {
        Self { effect, ..self }
    }

    /// Most time for a call; without this, the `tool_timeout` of the agent that calls.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }
}

/// Something that the server does for a model.
///
/// ```
/// use loopgate::{Effect, Tool, ToolAnswer, ToolCall, ToolDefinition, ToolError, Value, async_trait, json};
///
/// #[derive(Debug)]
/// struct Reverse;
///
/// #[async_trait]
/// impl Tool for Reverse {
///     fn definition(&self) -> ToolDefinition {
///         ToolDefinition::new("reverse", "Turns a text round.")
///             .parameters(json!({
///                 "type": "object",
///                 "properties": {"text": {"type": "string"}},
///                 "required": ["text"],
///             }))
///             .effect(Effect::Read)
///     }
///
///     async fn call(&self, arguments: Value, _: &ToolCall) -> Result<ToolAnswer, ToolError> {
///         let text = arguments["text"].as_str().unwrap_or_default();
///         Ok(ToolAnswer::text(text.chars().rev().collect::<String>()))
///     }
/// }
/// ```
#[async_trait]
pub trait Tool: Send + Sync + fmt::Debug + 'static {
    /// What it is. Asked once.
    fn definition(&self) -> ToolDefinition;

    /// Does it. The arguments are an object that the schema allows. The future is dropped when the call's time is up and when its
    /// run is cancelled; a panic is told to the model as a failure.
    async fn call(&self, arguments: Value, call: &ToolCall) -> Result<ToolAnswer, ToolError>;
}

/// What a tool knows of the call.
#[derive(Debug)]
pub struct ToolCall {
    context: CallContext,
}

impl ToolCall {
    /// The id of the call, the same when the call is made again after a crash: an idempotency key.
    #[must_use]
    pub fn id(&self) -> &str {
        self.context.call.as_str()
    }

    /// The id of the run.
    #[must_use]
    pub fn run(&self) -> &str {
        self.context.run.as_str()
    }

    /// The session that the run continues, where there is one.
    #[must_use]
    pub fn session(&self) -> Option<&str> {
        self.context.session.as_ref().map(SessionId::as_str)
    }

    /// Whose run it is: the tenant of the API key.
    #[must_use]
    pub fn tenant(&self) -> &str {
        self.context.tenant.as_str()
    }

    /// The end user that the request names.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.context.user.as_deref()
    }

    /// The notes of the request.
    #[must_use]
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.context.metadata
    }

    /// The agent that calls.
    #[must_use]
    pub fn agent(&self) -> &str {
        &self.context.agent
    }

    /// Counted from 1; grows when the call is made again after a crash.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.context.attempt
    }

    /// How long the call may take as a whole. The server ends it then.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.context.timeout
    }

    /// Tells those who watch the run how far the call is. Never waits; reports that come too fast are dropped.
    pub fn report(&self, done: f64, total: Option<f64>, message: &str) {
        let message = Some(message).filter(|message| !message.is_empty()).map(str::to_owned);
        self.context.progress.report(ToolProgress { done: Some(done), total, message });
    }
}

/// What a tool answers.
#[derive(Debug, Default)]
#[must_use]
pub struct ToolAnswer {
    inner: tools::ToolAnswer,
}

impl ToolAnswer {
    /// Text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { inner: tools::ToolAnswer::text(text) }
    }

    /// JSON, which a model is told as it is.
    pub fn json(value: &Value) -> Self {
        let json = to_raw_value(value).expect("a value of JSON is always JSON text");
        let bytes = json.get().len() as u64;
        Self { inner: tools::ToolAnswer { structured: Some(RawValueEq(json)), bytes, ..tools::ToolAnswer::default() } }
    }

    /// The same with a picture after it, such as one of the type `image/png`.
    pub fn with_picture(mut self, media_type: impl Into<String>, bytes: &[u8]) -> Self {
        let source = conversation::Source::Base64 { media_type: media_type.into(), data: STANDARD.encode(bytes) };
        self.inner.parts.push(Part::from(PartKind::Image { source, detail: None }));
        self.inner.bytes += bytes.len() as u64;
        self
    }
}

/// Why a call failed, in words for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// It changed nothing.
    #[error("{0}")]
    Failed(String),
    /// Whether it changed something is not known. For a tool that only [reads](Effect::Read) it is the same as a failure.
    #[error("{0}")]
    Unknown(String),
}

impl ToolError {
    /// A call that failed and changed nothing.
    #[must_use]
    pub fn failed(why: impl fmt::Display) -> Self {
        Self::Failed(why.to_string())
    }
}

/// A tool of the program's own, as the server knows tools.
#[derive(Debug)]
struct Embedded<T> {
    spec: ToolSpec,
    tool: T,
}

/// The tool as the server knows tools, and its name.
pub(super) fn embed(tool: impl Tool) -> (String, Arc<dyn tools::Tool>) {
    let ToolDefinition { name, description, parameters, effect, timeout } = tool.definition();
    let parameters = to_raw_value(&parameters).expect("a value of JSON is always JSON text");
    let effect = match effect {
        Effect::Read => types::Effect::Read,
        Effect::Idempotent => types::Effect::Idempotent,
        Effect::Write => types::Effect::Write,
    };
    let spec = ToolSpec { name: name.clone(), description, parameters, effect, timeout, source: Source::Embedded };
    (name, Arc::new(Embedded { spec, tool }))
}

#[async_trait]
impl<T: Tool> tools::Tool for Embedded<T> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, arguments: &RawValue, context: &CallContext) -> Result<tools::ToolAnswer, tools::ToolError> {
        let arguments = serde_json::from_str(arguments.get())
            .map_err(|error| tools::ToolError::Failed(format!("The arguments cannot be read: {error}.")))?;
        let call = ToolCall { context: context.clone() };
        match self.tool.call(arguments, &call).await {
            Ok(answer) => Ok(answer.inner),
            Err(ToolError::Failed(why)) => Err(tools::ToolError::Failed(why)),
            Err(ToolError::Unknown(why)) => Err(tools::ToolError::Lost(why)),
        }
    }
}
