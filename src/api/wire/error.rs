//! Errors of a client's request, before a dialect gives them a shape.

use crate::types::{ErrorKind, RunError};

/// Declares the codes with their list; the line above each is what the error tables say of it.
macro_rules! error_codes {
    ($($(#[doc = $meaning:literal])+ $code:ident,)+) => {
        /// Everything that a client may be told. Each dialect has one table that says what these are
        /// called there.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum ErrorCode {
            $($(#[doc = $meaning])+ $code,)+
        }

        impl ErrorCode {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$code,)+];

            /// What failed, in one sentence.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$code => concat!($($meaning),+).trim_ascii(),)+
                }
            }
        }
    };
}

error_codes! {
    /// The request is not valid HTTP.
    MalformedRequest,
    /// The body is not JSON.
    InvalidJson,
    /// A value is of the wrong type or out of its range.
    InvalidValue,
    /// A member or header that must be there is not.
    MissingField,
    /// A member is not known, in an object that takes no unknown ones.
    UnknownField,
    /// A guard refuses what the request says.
    GuardrailBlocked,
    /// The conversation does not fit the model.
    ContextLength,
    /// The upstream says that the request is not valid.
    RequestRejected,
    /// The run was to fail at its limits, and reached that of model calls.
    IterationLimit,
    /// The run was to fail at its limits, and reached that of tool calls.
    ToolCallLimit,
    /// The run was to fail at its limits, and its model repeated tool calls that brought nothing new.
    LoopGuard,
    /// The API key is missing or not valid.
    InvalidApiKey,
    /// The token is not valid here: it is not signed by this server, its key is gone, or it stands where none may.
    InvalidToken,
    /// The token has expired.
    TokenExpired,
    /// The token was revoked.
    TokenRevoked,
    /// The API key lacks the scope for this, or may not use the agent; or the token is not for this.
    Forbidden,
    /// The server has no keys, or no secret, to give tokens.
    TokensDisabled,
    /// A server without keys is called by a name that others may have pointed to it.
    HostNotAllowed,
    /// A server without keys is called by a web page that the operator does not allow.
    OriginNotAllowed,
    /// The agent has no such tool.
    ToolNotAllowed,
    /// There is no such agent or model.
    ModelNotFound,
    /// The tenant has no such agent, or no such version of it.
    AgentNotFound,
    /// There is no such tool whose definition could change.
    ToolNotFound,
    /// There is no such session for this tenant.
    SessionNotFound,
    /// There is no such document of this memory, or no such skill.
    DocumentNotFound,
    /// The session has no such layer.
    LayerNotFound,
    /// There is no such run for this tenant.
    RunNotFound,
    /// There is no such schedule for this tenant.
    ScheduleNotFound,
    /// There is another schedule with this id.
    ScheduleExists,
    /// There is no such response that this caller could read.
    ResponseNotFound,
    /// There is no such conversation for this tenant.
    ConversationNotFound,
    /// There is no such item of a response or a conversation.
    ItemNotFound,
    /// There is no such response that could be continued.
    PreviousResponseNotFound,
    /// The response that the request continues has not ended.
    PreviousResponseNotReady,
    /// The conversation has a live run, which the error names.
    ConversationLocked,
    /// There is no such call that could be approved or answered.
    CallNotFound,
    /// There is nothing at this path.
    UnknownUrl,
    /// The path does not take this method.
    MethodNotAllowed,
    /// The body took too long to arrive, or the run was to fail at its limits and its time is up.
    RequestTimeout,
    /// The body is too large.
    PayloadTooLarge,
    /// The path is too long.
    UriTooLong,
    /// The headers are too many or too long.
    HeadersTooLarge,
    /// The body is not declared as plain JSON.
    UnsupportedMediaType,
    /// The agent is part of the server's configuration.
    AgentReadOnly,
    /// The session has a live run, which the error names.
    SessionBusy,
    /// The run does not wait for what was sent to it.
    RunNotWaiting,
    /// The run takes no more messages while it is live.
    InboxFull,
    /// Someone else changed the same thing at the same time.
    VersionConflict,
    /// The client names an event that the log does not have yet.
    EventIdAhead,
    /// The run's events are no longer kept.
    EventsExpired,
    /// The call was approved too late.
    ApprovalExpired,
    /// The call was answered too late.
    CallExpired,
    /// The result of the first request with this idempotency key is no longer kept.
    ResultExpired,
    /// The idempotency key was used for another request.
    IdempotencyKeyReused,
    /// An MCP server that the request names did not list its tools.
    McpServerFailed,
    /// The API key asks too often, or has too many runs at once.
    RateLimited,
    /// A budget or quota is used up.
    BudgetExceeded,
    /// The tenant stores as much as it may.
    StorageFull,
    /// The server failed; its log says why.
    Internal,
    /// It is unknown whether a call of a tool with side effects took effect.
    OutcomeUnknown,
    /// A tool call failed, and the run was not to go on then.
    ToolFailed,
    /// The run was interrupted too often without progress.
    CrashLoop,
    /// Part of what the run needs is no longer in the store or the configuration.
    StoreLostState,
    /// The body has a transfer-encoding other than `chunked`.
    TransferEncoding,
    /// The upstream failed or refused the request.
    UpstreamFailed,
    /// The model answered nothing, twice.
    EmptyResponse,
    /// The upstream did not answer, or fell silent, for too long.
    UpstreamTimeout,
    /// The server has no room for the request now.
    Overloaded,
    /// The store does not answer.
    StoreUnavailable,
    /// The server is shutting down.
    Draining,
}

impl From<ErrorKind> for ErrorCode {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::UpstreamUnavailable | ErrorKind::UpstreamRejected => Self::UpstreamFailed,
            ErrorKind::RequestRejected => Self::RequestRejected,
            ErrorKind::UpstreamTimeout => Self::UpstreamTimeout,
            ErrorKind::ContextLength => Self::ContextLength,
            ErrorKind::EmptyResponse => Self::EmptyResponse,
            ErrorKind::OutcomeUnknown => Self::OutcomeUnknown,
            ErrorKind::ToolFailed => Self::ToolFailed,
            ErrorKind::CrashLoop => Self::CrashLoop,
            ErrorKind::StoreLostState => Self::StoreLostState,
            ErrorKind::IterationLimit => Self::IterationLimit,
            ErrorKind::ToolCallLimit => Self::ToolCallLimit,
            ErrorKind::LoopGuard => Self::LoopGuard,
            ErrorKind::BudgetExceeded => Self::BudgetExceeded,
            ErrorKind::TimeLimit => Self::RequestTimeout,
            ErrorKind::HookDenied => Self::Forbidden,
            ErrorKind::Internal => Self::Internal,
        }
    }
}

/// What is wrong, and with which value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireError {
    /// What failed.
    pub code: ErrorCode,
    /// Path of the value at fault.
    pub param: Option<String>,
    /// One or two sentences that clients may see.
    pub message: String,
}

impl WireError {
    /// An error of this code.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, param: None, message: message.into() }
    }

    /// A value out of its range.
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidValue, message).at(param)
    }

    /// Names the value at fault.
    #[must_use]
    pub fn at(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// Puts the value at fault within `parent`.
    #[must_use]
    pub fn within(mut self, parent: &str) -> Self {
        self.param = Some(match self.param {
            Some(param) if param.starts_with('[') => format!("{parent}{param}"),
            Some(param) => format!("{parent}.{param}"),
            None => parent.to_owned(),
        });
        self
    }
}

impl From<&RunError> for WireError {
    fn from(error: &RunError) -> Self {
        Self::new(error.kind.into(), &error.message)
    }
}
