//! What guards found and did, as the data of named events.

use serde::Serialize;
use utoipa::ToSchema;

use crate::types::CallId;
use crate::types::guard::{InputPattern, Triggered};

/// A message that looks like an attempt to instruct the model in the operator's place.
#[derive(Debug, Serialize, ToSchema)]
pub struct FlaggedInput {
    /// The event's number.
    pub seq: u64,
    /// The message's place in what was sent, counted from 0.
    pub message: u32,
    /// The name of what it looks like.
    pub name: &'static str,
    /// The same in words.
    pub reason: &'static str,
}

/// A message that was longer than messages may be, and was cut.
#[derive(Debug, Serialize, ToSchema)]
pub struct TruncatedInput {
    /// The event's number.
    pub seq: u64,
    /// The message's place in what was sent, counted from 0.
    pub message: u32,
    /// How many characters it had.
    pub chars: u64,
    /// How many of them are left.
    pub kept: u64,
}

/// A text that failed a guardrail.
#[derive(Debug, Serialize, ToSchema)]
pub struct TriggeredGuardrail<'a> {
    /// The event's number.
    pub seq: u64,
    /// The step in which it was judged.
    pub step: u32,
    /// The guardrail.
    pub name: &'a str,
    /// What was judged: `input`, `output`, `tool_arguments` or `tool_result`.
    pub on: &'static str,
    /// `low`, `medium`, `high` or `critical`.
    pub severity: &'static str,
    /// Whether it ends the run.
    pub tripwire: bool,
    /// What is wrong.
    pub reason: &'a str,
    /// The call whose arguments or result were judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_id: Option<&'a str>,
}

impl<'a> TriggeredGuardrail<'a> {
    /// What failed.
    pub(super) fn new(seq: u64, triggered: &'a Triggered) -> Self {
        let Triggered { name, on, tripwire, severity, reason, step, message: _, call_id } = triggered;
        let call_id = call_id.as_ref().map(CallId::as_str);
        Self {
            seq,
            step: *step,
            name,
            on: on.as_str(),
            severity: severity.as_str(),
            tripwire: *tripwire,
            reason,
            call_id,
        }
    }
}

impl FlaggedInput {
    /// What a message looks like.
    pub(super) fn new(seq: u64, message: u32, pattern: InputPattern) -> Self {
        Self { seq, message, name: pattern.as_str(), reason: pattern.meaning() }
    }
}
