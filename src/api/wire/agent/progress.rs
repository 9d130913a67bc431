//! How far a call is, as the data of a named event.

use serde::Serialize;
use utoipa::ToSchema;

use crate::types::pending::PendingCall;
use crate::types::{CallId, ToolProgress};

/// How far a server-side call is.
#[derive(Debug, Serialize, ToSchema)]
pub struct CallProgress<'a> {
    seq: u64,
    step: u32,
    call_id: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

impl<'a> CallProgress<'a> {
    /// What a tool told of this call.
    pub(super) fn new(seq: u64, step: u32, call_id: &'a CallId, name: &'a str, progress: &'a ToolProgress) -> Self {
        let ToolProgress { done, total, message } = progress;
        Self { seq, step, call_id: call_id.as_str(), name, progress: *done, total: *total, message: message.as_deref() }
    }
}

/// A server-side call that its service goes on with.
#[derive(Debug, Serialize, ToSchema)]
pub struct DeferredCall<'a> {
    seq: u64,
    step: u32,
    call_id: &'a str,
    name: &'a str,
    /// Until when the service may answer, Unix milliseconds.
    expires_ms: u64,
}

impl<'a> DeferredCall<'a> {
    /// That the service of this call has accepted it.
    pub(super) fn new(seq: u64, PendingCall { step, call_id, name, expires_ms, .. }: &'a PendingCall) -> Self {
        Self { seq, step: *step, call_id: call_id.as_str(), name, expires_ms: *expires_ms }
    }
}
