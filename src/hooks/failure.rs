//! Why a hook gave no answer.

use http::StatusCode;

/// Why a hook gave no answer that counts, in one sentence without secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct HookFailure {
    pub(super) what: String,
    /// How the service answered, if it did.
    pub status: Option<StatusCode>,
    /// In how many seconds it wants to be asked again.
    pub retry_after_s: Option<u64>,
}

impl HookFailure {
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), status: None, retry_after_s: None }
    }

    /// There is no such hook in this configuration.
    #[must_use]
    pub fn missing() -> Self {
        Self::new("this replica's configuration has no hook of this name")
    }
}
