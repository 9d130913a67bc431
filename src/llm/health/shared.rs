//! What processes that share a store tell each other of their upstreams.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::breaker::Change;

/// A model of an upstream, as processes name it among each other.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    /// The upstream.
    pub upstream: Arc<str>,
    /// Tells upstreams of one name apart that are configured otherwise.
    pub fingerprint: Arc<str>,
    /// The model.
    pub model: Arc<str>,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.upstream, self.model)
    }
}

/// Whether this process may probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// It may, and no other one does.
    Granted,
    /// It may not before then: another process probes, or has found that the upstream is still down. Milliseconds from now.
    Denied(u64),
    /// It need not: the others have found that the model is well.
    Closed,
}

/// The newest change of a breaker that the others do not know yet. Times are milliseconds from now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unsaved {
    /// The change.
    pub change: Change,
    /// Tells it apart from later ones.
    pub tick: u64,
}

/// What several processes have in common. Nothing waits for it but a probe.
pub trait SharedHealth: fmt::Debug + Send + Sync {
    /// There are changes that the others do not know yet.
    fn note_changes(&self);

    /// Claims the one probe that all processes have together, for as long as its call is under way. `unsaved` is the newest
    /// change that the others do not know yet.
    fn claim<'a>(&'a self, target: &'a Target, unsaved: Option<Change>) -> BoxFuture<'a, Claim>;
}
