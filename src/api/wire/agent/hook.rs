//! What a hook said, as clients see it.

use serde::Serialize;
use utoipa::ToSchema;

use crate::types::CallId;
use crate::types::hook::HookRan;

/// What a hook of the operator's said. How it is reached, and why it failed, is in the server's log only.
#[derive(Debug, Serialize, ToSchema)]
pub struct HookEvent<'a> {
    seq: u64,
    step: u32,
    /// The hook.
    name: &'a str,
    /// `run_start`, `before_tool`, `after_tool` or `on_error`.
    point: &'static str,
    /// The call that it was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    call_id: Option<&'a str>,
    /// `pass`, `allow`, `ask`, `deny` or `answer`.
    decision: &'static str,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    /// What it tells the caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    /// Whether it changed the call's arguments or result.
    rewritten: bool,
    /// Whether it gave no answer that counts, so that the decision is what the operator wants to hold then.
    failed: bool,
    latency_ms: u64,
}

impl<'a> HookEvent<'a> {
    pub(super) fn new(seq: u64, ran: &'a HookRan) -> Self {
        let reply = &ran.reply;
        Self {
            seq,
            step: ran.step,
            name: &ran.hook,
            point: ran.point.as_str(),
            call_id: ran.call_id.as_ref().map(CallId::as_str),
            decision: reply.decision.as_str(),
            reason: reply.reason.as_deref(),
            message: reply.message.as_deref(),
            rewritten: reply.arguments.is_some() || reply.result.is_some(),
            failed: ran.failed,
            latency_ms: ran.latency_ms,
        }
    }
}
