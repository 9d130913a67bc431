//! How far a call is, as the data of a named event.

use serde::Serialize;
use utoipa::ToSchema;

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
