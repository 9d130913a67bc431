//! Why a decision about a call is not taken.

use crate::types::{CallId, RunId};

/// Why a decision about a call that needs an approval is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApprovalError {
    /// The run has no such call in its present turn.
    #[error("run {0} has no call {1} that could be approved")]
    NoSuchCall(RunId, CallId),
    /// The call is decided, or needs no approval.
    #[error("the call {0} waits for no approval: it was decided before, needs none, or is the client's to answer")]
    Decided(CallId),
    /// The caller has approved the call, which waits for others.
    #[error("this key has approved the call {0} already: it waits for the approval of another key")]
    AwaitsOthers(CallId),
    /// The call was approved too late.
    #[error("the call {0} is no longer to be approved: its time is up, and it is denied")]
    Expired(CallId),
    /// The decision is meant for other arguments.
    #[error("the call {0} has other arguments than those that were decided: read them again, and decide about them")]
    OtherArguments(CallId),
    /// The caller may not decide.
    #[error("{0}")]
    MayNotApprove(&'static str),
}
