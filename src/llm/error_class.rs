//! What an upstream's failure says of the request, of its model and of the upstream. Pure.

use serde::{Deserialize, Serialize};

/// Kinds of failure, by whom they concern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    /// No connection to the upstream came about.
    Unreachable,
    /// The upstream takes no more requests for now.
    RateLimited,
    /// The upstream is overloaded or broken.
    Overloaded,
    /// The upstream did not answer, or fell silent, for too long.
    TimedOut,
    /// The answer broke off, or cannot be understood.
    Broken,
    /// The upstream does not accept the key.
    Denied,
    /// The upstream does not allow this: to the key, or to anyone.
    Forbidden,
    /// The operator's account with the vendor is used up.
    Unpaid,
    /// The upstream has no such model.
    NotFound,
    /// What answers is not the API that the upstream is said to have, or cannot be trusted.
    Misconfigured,
    /// The conversation does not fit the model's context window.
    ContextLength,
    /// The request has too many bytes for the upstream, or parts that it does not take.
    NotTaken,
    /// The request is not valid.
    InvalidRequest,
}

impl ErrorClass {
    /// Whether the same request may succeed with another model.
    #[must_use]
    pub fn concerns_the_model_alone(self) -> bool {
        match self {
            Self::Unreachable
            | Self::RateLimited
            | Self::Overloaded
            | Self::TimedOut
            | Self::Broken
            | Self::Denied
            | Self::Forbidden
            | Self::Unpaid
            | Self::NotFound
            | Self::Misconfigured
            | Self::ContextLength
            | Self::NotTaken => true,
            Self::InvalidRequest => false,
        }
    }
}

impl ErrorClass {
    /// What the upstream does that fails so, to follow its name.
    #[must_use]
    pub fn clause(self) -> &'static str {
        match self {
            Self::Unreachable => "cannot be reached",
            Self::RateLimited => "takes no more requests for now",
            Self::Overloaded => "is overloaded or broken",
            Self::TimedOut => "does not answer in time",
            Self::Broken => "breaks off its answers",
            Self::Denied => "refuses the key",
            Self::Forbidden => "does not allow what it is asked for",
            Self::Unpaid => "has no credit left for the key",
            Self::NotFound => "does not have the model",
            Self::Misconfigured => "does not answer as its API does",
            Self::ContextLength | Self::NotTaken | Self::InvalidRequest => "refuses the request",
        }
    }
}
