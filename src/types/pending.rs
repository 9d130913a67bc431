//! A call that goes on at its service, which answers it later.

use serde::{Deserialize, Serialize};

use crate::types::CallId;

/// A call that its service has accepted, and answers later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingCall {
    /// The step whose call it is.
    pub step: u32,
    /// The call.
    pub call_id: CallId,
    /// The tool.
    pub name: String,
    /// When the service was asked, Unix milliseconds.
    pub began_ms: u64,
    /// Until when the service may answer, Unix milliseconds.
    pub expires_ms: u64,
}

impl PendingCall {
    /// When the call is given up, Unix milliseconds: a little later than its service may answer, so that what arrived in time
    /// is stored by then.
    #[must_use]
    pub fn given_up_ms(&self) -> u64 {
        const GRACE_MS: u64 = 2_000;
        self.expires_ms.saturating_add(GRACE_MS)
    }
}
