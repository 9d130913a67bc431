//! Why a server gave no answer, and whether it may have done what it was asked.
//!
//! The words are for a model and for the log: they hold no addresses and no headers.

use std::error::Error;

use rmcp::ErrorData;
use rmcp::service::{ClientInitializeError, ServiceError};
use rmcp::transport::streamable_http_client::StreamableHttpError;

use crate::tools::mcp::secrets::Secrets;
use crate::tools::mcp::streamable::HttpFault;

/// Longest part of a server's own words.
const MAX_WORDS: usize = 1_000;

/// What an error holds that stands for an answer which was not read: the server did what it was asked, or failed to.
pub(super) const UNREAD: &str = "loopgate/unread";

/// Why there is no answer, as the end of a sentence about the server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    /// It did not do what it was asked.
    #[error("{0}")]
    Failed(String),
    /// It answers the beginning of a connection in no way that is known.
    #[error("it does not answer as the protocol says")]
    Unexpected,
    /// Its program cannot be started.
    #[error("{0}")]
    NoProgram(String),
    /// It may have done what it was asked.
    #[error("{0}")]
    Lost(String),
    /// It does not know the session any more, so it did nothing.
    #[error("it has ended the session")]
    SessionExpired,
    /// It says that it does not know the session any more, in a way that the protocol does not define.
    #[error("it does not know the session any more")]
    SessionDenied,
    /// It answered with an error of its own.
    #[error("it answered: {0}")]
    Answered(String),
}

impl Fault {
    /// The connection was closed before an answer came.
    pub(super) fn closed() -> Self {
        Self::Lost("the connection to it ended before it answered".to_owned())
    }

    /// Why a request failed.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the SDK adds kinds of these")]
    pub(super) fn of(error: &ServiceError) -> Self {
        match error {
            ServiceError::McpError(error) if error.data.as_ref().is_some_and(|data| data == UNREAD) => {
                Self::Lost(error.message.clone().into_owned())
            }
            ServiceError::McpError(error) => Self::Answered(words(error)),
            ServiceError::TransportSend(error) => Self::of_transport(error.error.as_ref()),
            ServiceError::Cancelled { .. } => Self::Lost("it cancelled the call".to_owned()),
            ServiceError::UnexpectedResponse => Self::Lost("its answer is not one of the protocol".to_owned()),
            _ => Self::closed(),
        }
    }

    /// Why no connection could be opened.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the SDK adds kinds of these")]
    pub(super) fn of_start(error: &ClientInitializeError) -> Self {
        let what = match error {
            ClientInitializeError::TransportError { error, .. } => return Self::of_transport(error.error.as_ref()),
            ClientInitializeError::LegacyFallbackFailed { fallback, .. } => return Self::of_start(fallback),
            ClientInitializeError::JsonRpcError(error) => return Self::Answered(words(error)),
            ClientInitializeError::ConnectionClosed(_) => "it ended the connection before it was ready",
            ClientInitializeError::NoCompatibleProtocolVersion { .. } => {
                "it speaks no revision of the protocol that is known here"
            }
            ClientInitializeError::Cancelled => "it is not needed any more",
            _ => return Self::Unexpected,
        };
        Self::Failed(what.to_owned())
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the SDK adds kinds of these")]
    fn of_transport(error: &(dyn Error + Send + Sync + 'static)) -> Self {
        let Some(error) = error.downcast_ref::<StreamableHttpError<HttpFault>>() else {
            // A pipe broke: how much of the request was read is not known.
            return Self::closed();
        };
        match error {
            StreamableHttpError::SessionExpired => Self::SessionExpired,
            StreamableHttpError::Client(HttpFault::SessionDenied) => Self::SessionDenied,
            StreamableHttpError::Client(fault) if fault.may_have_worked() => Self::Lost(fault.to_string()),
            StreamableHttpError::Client(fault) => Self::Failed(fault.to_string()),
            _ => Self::closed(),
        }
    }

    /// The same without the server's secrets, which its own words may quote.
    pub(super) fn without(self, secrets: &Secrets) -> Self {
        let hidden = |words: String| secrets.hide(&words).into_owned();
        match self {
            Self::Failed(words) => Self::Failed(hidden(words)),
            Self::NoProgram(words) => Self::NoProgram(hidden(words)),
            Self::Lost(words) => Self::Lost(hidden(words)),
            Self::Answered(words) => Self::Answered(hidden(words)),
            Self::Unexpected | Self::SessionExpired | Self::SessionDenied => self,
        }
    }

    /// Whether it may have done what it was asked.
    pub(super) fn may_have_worked(&self) -> bool {
        matches!(self, Self::Lost(_))
    }
}

/// What a server says of an error, on one line.
fn words(error: &ErrorData) -> String {
    let text: String = error.message.chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
    let text = text.trim();
    let text = &text[..text.floor_char_boundary(MAX_WORDS)];
    format!("error {}: {text}", error.code.0)
}
