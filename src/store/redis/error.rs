//! Errors of connections and of attempts, and what a server's error means for the operation: pure.

use std::fmt;
use std::sync::Arc;

use redis::{RedisError, ServerError, ServerErrorKind};

use crate::config::RedisHost;

/// Why there is no connection that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ConnectionError {
    /// No server answers at the address, or not yet.
    Unreachable(Arc<str>),
    /// A replica answers where the primary should. It may be promoted, or the primary may be found elsewhere.
    Replica(Arc<str>),
    /// A server answers that cannot be used: its settings are wrong, or it refuses the login.
    Unfit(Arc<str>),
}

impl ConnectionError {
    /// No server answers.
    pub(super) fn unreachable(what: impl Into<Arc<str>>) -> Self {
        Self::Unreachable(what.into())
    }

    /// The server cannot be used.
    pub(super) fn unfit(what: impl Into<Arc<str>>) -> Self {
        Self::Unfit(what.into())
    }

    /// The same error with its text changed.
    pub(super) fn map_text(self, change: impl Fn(&str) -> String) -> Self {
        match self {
            Self::Unreachable(what) => Self::Unreachable(change(&what).into()),
            Self::Replica(what) => Self::Replica(change(&what).into()),
            Self::Unfit(what) => Self::Unfit(change(&what).into()),
        }
    }

    /// What a server's error means for the connection.
    pub(super) fn refused(host: &RedisHost, error: &ServerError) -> Self {
        let details = without_arguments(error.details().unwrap_or_default());
        let what = format!("{host} answers {} {details}", error.code());
        if AttemptError::refusal(error).is_final() { Self::unfit(what) } else { Self::unreachable(what) }
    }
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Unreachable(what) | Self::Replica(what) | Self::Unfit(what)) = self;
        f.write_str(what)
    }
}

/// Why an attempt at an operation did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AttemptError {
    /// The connection broke or no answer came in time. The operation may have happened.
    Lost(String),
    /// The operation happened, but no replica confirmed it.
    Unconfirmed(String),
    /// The operation did not happen: another node of the cluster serves the slot.
    Moved(String),
    /// The operation did not happen: the server is a replica now.
    Demoted(String),
    /// The operation did not happen, and may succeed in a moment.
    Busy(String),
    /// The operation did not happen, and will fail again until an operator changes something.
    Refused(String),
}

impl AttemptError {
    /// What a failed exchange means.
    pub(super) fn of(error: &RedisError) -> Self {
        match error.code() {
            Some(code) => Self::of_server(code, error.detail().unwrap_or_default()),
            None => Self::Lost(error.to_string()),
        }
    }

    /// What a server's refusal means.
    pub(super) fn refusal(error: &ServerError) -> Self {
        Self::of_server(error.code(), error.details().unwrap_or_default())
    }

    /// Whether another attempt would fail too.
    pub(super) fn is_final(&self) -> bool {
        matches!(self, Self::Refused(_))
    }

    fn of_server(code: &str, what: &str) -> Self {
        let what = format!("{code} {}", without_arguments(what));
        match code {
            "READONLY" => Self::Demoted(what),
            "MOVED" => Self::Moved(what),
            "LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "ASK" | "BUSY" | "NOREPLICAS" => Self::Busy(what),
            _ => Self::Refused(what),
        }
    }
}

/// A server's error text without the arguments of the command, which may hold a password or text of users.
pub(super) fn without_arguments(what: &str) -> &str {
    what.split_once(", with args beginning with").map_or(what, |(before, _)| before)
}

/// Whether the error says that the server does not know the script by its hash.
pub(super) fn is_unknown_script(error: &ServerError) -> bool {
    error.kind() == Some(ServerErrorKind::NoScript)
}
