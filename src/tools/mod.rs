//! Tools that the server executes.
//!
//! A tool takes a JSON object and returns text and pictures. Other modules offer tools, check arguments, measure and
//! record calls; a tool knows nothing of runs, models or stores.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::value::RawValue;

pub use arguments::check_arguments;
pub use progress::ProgressSink;
pub use questions::{AskedQuestion, QuestionSink, UserQuestion};

use crate::config::{Hints, Identity};
use crate::types::conversation::Part;
use crate::types::json::RawValueEq;
use crate::types::tool::Measurement;
use crate::types::{CallId, Effect, RunId, SessionId, Tenant, TraceContext};

mod arguments;
pub mod builtin;
#[cfg(feature = "run-code")]
pub mod code;
pub mod definitions;
pub mod fit;
pub mod http;
pub mod invoke;
pub mod live;
pub mod mcp;
mod media;
pub mod progress;
pub mod questions;
pub mod registry;
pub mod schema;
pub mod source;
#[cfg(test)]
mod testing;
pub mod truncate;
pub mod workspace;

pub use definitions::Definitions;
pub use invoke::invoke;
pub use live::LiveTools;
pub use registry::{RegisteredTool, Registry, RegistryError};
pub use source::ToolSource;
pub use workspace::Workspaces;

/// What a tool is, for the model and for `GET /v1/tools`.
#[derive(Debug, Clone)]
pub struct ToolSpec {
    /// 1–64 of `A-Z a-z 0-9 _ -`.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// JSON schema of its arguments, an object.
    pub parameters: Box<RawValue>,
    /// What repeating a call would do.
    pub effect: Effect,
    /// How long a call may take, where that is less than the run allows.
    pub timeout: Option<Duration>,
    /// Where it comes from.
    pub source: Source,
}

/// Where a tool comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Part of Loopgate.
    Builtin,
    /// An HTTP endpoint of the configuration.
    Http,
    /// A server of the Model Context Protocol.
    Mcp,
    /// An operation of an OpenAPI document that the configuration names.
    OpenApi,
    /// Part of the program that the server is part of.
    Embedded,
}

impl Source {
    /// The source as `GET /v1/tools` names it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Builtin => "builtin",
            Self::Http => "http",
            Self::Mcp => "mcp",
            Self::OpenApi => "openapi",
            Self::Embedded => "embedded",
        }
    }
}

/// What a call knows of its surroundings.
#[derive(Debug, Clone)]
pub struct CallContext {
    /// Whose run it is.
    pub tenant: Tenant,
    /// The session that the run continues, where there is one.
    pub session: Option<SessionId>,
    /// The end user, where the caller names one.
    pub user: Option<String>,
    /// The caller's notes.
    pub metadata: BTreeMap<String, String>,
    /// The agent that calls.
    pub agent: String,
    /// The run that calls.
    pub run: RunId,
    /// The call; the same when the call is repeated.
    pub call: CallId,
    /// The step of the run, counted from 1.
    pub step: u32,
    /// Counted from 1; grows when the call is repeated after a crash.
    pub attempt: u32,
    /// The span of the call, and its trace.
    pub trace: Option<TraceContext>,
    /// The id of the request that began the run.
    pub request_id: Option<String>,
    /// How long the call may take from now. The caller enforces it.
    pub timeout: Duration,
    /// Grows whenever another process takes over the run. A service that has seen a greater fence for this run may
    /// refuse the call, because it comes from a stalled process.
    pub fence: u64,
    /// Where the tool reports its progress.
    pub progress: ProgressSink,
    /// Where the tool asks the user something.
    pub questions: QuestionSink,
    /// By which token the call may be answered later, if it may.
    pub callback_token: Option<String>,
}

/// What the request of a run says of its caller, at any length.
#[derive(Debug, Clone, Copy)]
pub struct Told<'a> {
    /// The end user.
    pub user: Option<&'a str>,
    /// The caller's notes.
    pub metadata: &'a BTreeMap<String, String>,
}

/// What a tool answers. It gives its parts as they are: the caller of [`invoke()`] makes them fit, see [`fit`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolAnswer {
    /// What the model is told.
    pub parts: Vec<Part>,
    /// The same as JSON, where the tool gives it so.
    pub structured: Option<RawValueEq>,
    /// Whether it describes a failure.
    pub is_error: bool,
    /// What was received, in bytes.
    pub bytes: u64,
    /// The status of the answer, where it has one.
    pub status: Option<u16>,
    /// What it measured; the run's report tells it.
    pub measurements: Vec<Measurement>,
    /// Whether it only says that the call goes on, and is answered later with the call's token.
    pub is_pending: bool,
}

impl ToolAnswer {
    /// An answer of plain text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { bytes: text.len() as u64, parts: vec![Part::text(text)], ..Self::default() }
    }
}

/// Why a call failed, in words for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// It had no effect that the words do not tell.
    #[error("{0}")]
    Failed(String),
    /// It was on its way, and its answer was lost: it may have taken effect.
    #[error("{0}")]
    Lost(String),
}

/// Something that the server can do for a model.
#[async_trait]
pub trait Tool: Send + Sync + fmt::Debug + 'static {
    /// What it is.
    fn spec(&self) -> &ToolSpec;

    /// What its service is told of a run's caller and is too long for that, so that no call could be made.
    fn too_long(&self, _told: Told<'_>) -> Option<Identity> {
        None
    }

    /// Whether its service is told anything of a run's caller, so that [`Self::too_long`] is to be asked.
    fn tells_caller(&self) -> bool {
        false
    }

    /// What its source says that a call does, whether or not it is believed. It is accepted with the definition.
    fn hints(&self) -> Hints {
        Hints::default()
    }

    /// Whether it answers without waiting, from its arguments and the clock alone. There is nothing between such a call and
    /// its answer, so both are recorded together.
    fn only_computes(&self) -> bool {
        false
    }

    /// How long after a call its answer may come, if the tool may say that the call goes on. Only such a call has a token.
    fn answers_within(&self) -> Option<Duration> {
        None
    }

    /// How long users may take to answer what one call asks them, if a call may ask. It comes beside the time of the call.
    fn asks_within(&self) -> Option<Duration> {
        None
    }

    /// Does it. `arguments` is a JSON object that the schema allows. Dropping the future stops it.
    async fn call(&self, arguments: &RawValue, context: &CallContext) -> Result<ToolAnswer, ToolError>;
}
