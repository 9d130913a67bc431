//! What guards found and did, as the data of named events.

use serde::Serialize;
use utoipa::ToSchema;

use crate::api::wire::usage::UsageObject;
use crate::types::CallId;
use crate::types::guard::{InputPattern, Judged, Triggered, Verdict};
use crate::types::report::JudgeReport;

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

/// What a guardrail said that asked a model or a service.
#[derive(Debug, Serialize, ToSchema)]
pub struct JudgedGuardrail<'a> {
    /// The event's number.
    pub seq: u64,
    /// The step in which the text was judged.
    pub step: u32,
    /// The guardrail.
    pub name: &'a str,
    /// What was judged: `input`, `output`, `tool_arguments` or `tool_result`.
    pub on: &'static str,
    /// Who was asked: `model` or `webhook`.
    pub kind: &'static str,
    /// `pass`, `fail`, `no_answer` if nothing was said that counts, or `dropped` if the run did not wait for it.
    pub verdict: &'static str,
    /// Why, in the words of the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'a str>,
    /// How long it took.
    pub latency_ms: u64,
    /// The call whose arguments or result were judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_id: Option<&'a str>,
    /// The upstream and the model that was asked, with a slash between them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What the model call took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageObject>,
}

impl<'a> JudgedGuardrail<'a> {
    /// What was said of a text.
    pub(super) fn new(seq: u64, judged: &'a Judged) -> Self {
        let Judged { asked, verdict, reason, latency_ms, call } = judged;
        Self {
            seq,
            step: asked.step,
            name: &asked.name,
            on: asked.on.as_str(),
            kind: judged.kind(),
            verdict: verdict.as_str(),
            reason: reason.as_deref().filter(|_| *verdict == Verdict::Fail),
            latency_ms: *latency_ms,
            call_id: asked.call_id.as_ref().map(CallId::as_str),
            model: call.as_ref().map(|call| call.model.full_name()),
            usage: call.as_ref().map(|call| UsageObject::from(&call.usage)),
        }
    }
}

/// What a guardrail said, in the report.
#[derive(Debug, Serialize, ToSchema)]
pub struct VerdictObject<'a> {
    /// The guardrail.
    pub name: &'a str,
    /// What was judged.
    pub on: &'static str,
    /// In which step.
    pub step: u32,
    /// `pass`, `fail`, `no_answer` or `dropped`.
    pub verdict: &'static str,
    /// How long it took.
    pub latency_ms: u64,
    /// The upstream and the model that was asked, with a slash between them; null of a service.
    pub model: Option<&'a str>,
    /// What the model call took.
    pub usage: UsageObject,
    /// What that cost, in US dollars.
    pub cost_usd: f64,
}

impl<'a> VerdictObject<'a> {
    /// What was said of a text.
    pub(super) fn new(said: &'a JudgeReport) -> Self {
        let JudgeReport { name, on, step, verdict, latency_ms, model, usage, cost } = said;
        Self {
            name,
            on: on.as_str(),
            step: *step,
            verdict: verdict.as_str(),
            latency_ms: *latency_ms,
            model: model.as_deref(),
            usage: UsageObject::from(usage),
            cost_usd: cost.as_usd(),
        }
    }
}

impl FlaggedInput {
    /// What a message looks like.
    pub(super) fn new(seq: u64, message: u32, pattern: InputPattern) -> Self {
        Self { seq, message, name: pattern.as_str(), reason: pattern.meaning() }
    }
}
