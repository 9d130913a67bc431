//! What went wrong, and what that says about the operation: pure.

use std::fmt;
use std::sync::Arc;

use redis::{RedisError, ServerError, ServerErrorKind};

use crate::config::RedisHost;

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Nobody answers there, or not yet.
    Away(Arc<str>),
    /// A replica answers where the primary should. It may be promoted, or the primary found elsewhere.
    Replica(Arc<str>),
    /// A server answers, and must not be used: it is set up wrongly, or does not let us in.
    Unfit(Arc<str>),
}

impl Trouble {
    /// Nobody answers.
    pub(super) fn away(what: impl Into<Arc<str>>) -> Self {
        Self::Away(what.into())
    }

    /// It must not be used.
    pub(super) fn unfit(what: impl Into<Arc<str>>) -> Self {
        Self::Unfit(what.into())
    }

    /// The same in other words.
    pub(super) fn told(self, how: impl Fn(&str) -> String) -> Self {
        match self {
            Self::Away(what) => Self::Away(how(&what).into()),
            Self::Replica(what) => Self::Replica(how(&what).into()),
            Self::Unfit(what) => Self::Unfit(how(&what).into()),
        }
    }

    /// What it means that a server refuses to answer.
    pub(super) fn refused(host: &RedisHost, error: &ServerError) -> Self {
        let details = without_arguments(error.details().unwrap_or_default());
        let what = format!("{host} answers {} {details}", error.code());
        if Fault::refusal(error).is_final() { Self::unfit(what) } else { Self::away(what) }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Away(what) | Self::Replica(what) | Self::Unfit(what)) = self;
        f.write_str(what)
    }
}

/// Why an attempt at an operation did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// The connection broke or the time was up: it may have happened.
    Lost(String),
    /// It happened, but no replica said that it has it.
    Unconfirmed(String),
    /// It did not happen here: another node of the cluster serves the slot.
    Moved(String),
    /// It did not happen here: the server is a replica now.
    Demoted(String),
    /// It did not happen, and may if tried again in a moment.
    Busy(String),
    /// It did not happen, and will not until somebody steps in.
    Refused(String),
}

impl Fault {
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

    /// Whether trying again would not help.
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

/// What a server says without the arguments that it repeats: they may hold a password, or what users say.
pub(super) fn without_arguments(what: &str) -> &str {
    what.split_once(", with args beginning with").map_or(what, |(before, _)| before)
}

/// Whether a script must be sent along because the server does not know it.
pub(super) fn is_unknown_script(error: &ServerError) -> bool {
    error.kind() == Some(ServerErrorKind::NoScript)
}
