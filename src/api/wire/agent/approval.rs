//! Approvals: the events that tell of them, and the decisions that a client sends.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::agent::CallApproval;
use crate::api::wire::agent::object::Arguments;
use crate::api::wire::body::{missing, parse};
use crate::api::wire::error::WireError;
use crate::types::CallId;
use crate::types::approval::{Approval, ApprovalDecision, ApprovalRequest};
use crate::types::guard::MAX_RESULT_BYTES;

/// Most decisions of one request; no turn has as many calls.
const MOST: usize = 1_000;
/// Most characters of a reason.
const LONGEST_REASON: usize = 2_000;

/// A call that waits for an approval.
#[derive(Debug, Serialize, ToSchema)]
pub struct RequiredApproval<'a> {
    /// The event's number.
    pub seq: u64,
    /// The step whose call it is.
    pub step: u32,
    /// The call.
    pub call_id: &'a str,
    /// The tool.
    pub name: &'a str,
    /// The arguments that it would be made with.
    #[schema(value_type = Value)]
    pub arguments: Arguments<'a>,
    /// What a decision is bound to: SHA-256 of the tool's name, a line feed and the arguments' JSON text.
    pub arguments_digest: String,
    /// Why it needs an approval.
    pub reason: &'a str,
    /// When it is denied without a decision, Unix milliseconds.
    pub expires_ms: u64,
}

/// What was decided of a call that waited for an approval.
#[derive(Debug, Serialize, ToSchema)]
pub struct ResolvedApproval<'a> {
    /// The event's number.
    pub seq: u64,
    /// The step whose call it is.
    pub step: u32,
    /// The call.
    pub call_id: &'a str,
    /// The tool.
    pub name: &'a str,
    /// `approve`, `deny`, `skip`, or `expire` if no decision came in time.
    pub decision: &'static str,
    /// The name of the key of the caller who decided; null without keys, and if no decision came in time.
    pub by: Option<&'a str>,
    /// The end user who decided, as the token or the request of that caller names them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<&'a str>,
    /// Why, in the words of that caller.
    pub reason: Option<&'a str>,
    /// The arguments that the call is made with, if that caller changed them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub arguments: Option<Arguments<'a>>,
    /// Whether the call waits on, for the approval of others.
    pub awaits_others: bool,
}

impl<'a> RequiredApproval<'a> {
    /// The event of this number.
    pub fn new(seq: u64, ApprovalRequest { step, call, reason, expires_ms }: &'a ApprovalRequest) -> Self {
        Self {
            seq,
            step: *step,
            call_id: call.id.as_str(),
            name: &call.name,
            arguments: Arguments::new(&call.arguments),
            arguments_digest: call.digest(),
            reason,
            expires_ms: *expires_ms,
        }
    }
}

impl<'a> ResolvedApproval<'a> {
    /// The event of this number.
    pub fn new(seq: u64, approval: &'a Approval) -> Self {
        let Approval { step, call_id, name, decision, by, user, reason, arguments, .. } = approval;
        Self {
            seq,
            step: *step,
            call_id: call_id.as_str(),
            name,
            decision: decision.as_str(),
            by: by.as_deref(),
            user: user.as_deref(),
            reason: reason.as_deref(),
            arguments: arguments.as_deref().map(Arguments::new),
            awaits_others: approval.awaits_others,
        }
    }
}

/// Decisions about calls that wait for an approval. An unknown field is an error.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Approvals<'a> {
    /// A decision for each of these calls. The run goes on once all calls that wait are decided.
    #[serde(borrow)]
    #[schema(required, min_items = 1, max_items = 1_000)]
    pub approvals: Option<Vec<CallDecision<'a>>>,
    /// Whether to answer with server-sent events.
    pub stream: Option<bool>,
    /// Whether the last event and the plain response bear the report.
    pub include_report: Option<bool>,
}

/// A decision about a call. An unknown field is an error.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CallDecision<'a> {
    /// The call.
    pub call_id: String,
    /// `approve` has it made; `deny` tells the model that it was denied, and `skip` to go on without it.
    pub decision: DecisionText,
    /// Why; the model is told of a denial's reason.
    #[schema(max_length = 2_000)]
    pub reason: Option<String>,
    /// Other arguments, which the call is made with if it is approved. They are checked and judged like the model's.
    #[serde(borrow, default, deserialize_with = "given")]
    #[schema(value_type = Option<Value>)]
    pub arguments: Option<&'a RawValue>,
    /// A result in place of the tool's, if the call is approved: the tool is not called. A text, or any
    /// JSON, of at most 51,200 bytes.
    #[serde(borrow, default, deserialize_with = "given")]
    #[schema(value_type = Option<Value>)]
    pub result: Option<&'a RawValue>,
    /// The digest of what was decided; if it is not that of the call that waits, nothing is decided.
    pub arguments_digest: Option<String>,
}

/// A member that is there, `null` too: to take a `null` for nothing would make a call that has a result.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// What is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = ApprovalDecision)]
pub enum DecisionText {
    /// The call is made.
    Approve,
    /// It is denied.
    Deny,
    /// It is skipped.
    Skip,
}

/// What a request with decisions asks for.
#[derive(Debug)]
pub struct Decided {
    /// The decisions, at least one.
    pub approvals: Vec<CallApproval>,
    /// Whether to answer with server-sent events.
    pub stream: bool,
    /// Whether the answer bears the report.
    pub include_report: bool,
}

/// Reads the body of `POST /v1/runs/{id}/approvals`.
pub fn read_approvals(body: &str) -> Result<Decided, WireError> {
    let Approvals { approvals, stream, include_report } = parse(body)?;
    let approvals = approvals.ok_or_else(|| missing("approvals"))?;
    if approvals.is_empty() || approvals.len() > MOST {
        return Err(WireError::invalid("approvals", format!("must have 1 to {MOST} decisions")));
    }
    let approvals: Vec<_> =
        approvals.into_iter().enumerate().map(|(index, one)| one.check(index)).collect::<Result<_, _>>()?;
    for (index, one) in approvals.iter().enumerate() {
        if approvals.iter().take(index).any(|other| other.call == one.call) {
            let path = format!("approvals[{index}].call_id");
            return Err(WireError::invalid(path, "is decided twice in this request"));
        }
    }
    Ok(Decided { approvals, stream: stream.unwrap_or(false), include_report: include_report.unwrap_or(true) })
}

impl CallDecision<'_> {
    fn check(self, index: usize) -> Result<CallApproval, WireError> {
        let invalid = |member: &str, why: &str| Err(WireError::invalid(format!("approvals[{index}].{member}"), why));
        let is_approved = self.decision == DecisionText::Approve;
        if !is_approved && self.arguments.is_some() {
            return invalid("arguments", "may only be given with the decision `approve`");
        }
        if !is_approved && self.result.is_some() {
            return invalid("result", "may only be given with the decision `approve`");
        }
        if self.arguments.is_some() && self.result.is_some() {
            return invalid("result", "may not be given with other arguments: the tool is not called");
        }
        if self.arguments.is_some_and(|arguments| arguments.get() == "null") {
            return invalid("arguments", "must be an object, not null");
        }
        if self.result.is_some_and(|result| result.get().len() > MAX_RESULT_BYTES) {
            return Err(WireError::invalid(
                format!("approvals[{index}].result"),
                format!("must have at most {MAX_RESULT_BYTES} bytes"),
            ));
        }
        if self.reason.as_ref().is_some_and(|reason| reason.chars().count() > LONGEST_REASON) {
            return invalid("reason", "must have at most 2000 characters");
        }
        let decision = match self.decision {
            DecisionText::Approve => ApprovalDecision::Approve,
            DecisionText::Deny => ApprovalDecision::Deny,
            DecisionText::Skip => ApprovalDecision::Skip,
        };
        Ok(CallApproval {
            call: CallId::foreign(&self.call_id),
            decision,
            digest: self.arguments_digest,
            reason: self.reason,
            arguments: self.arguments.map(|arguments| arguments.get().to_owned()),
            result: self.result.map(text),
        })
    }
}

/// A text as it is, any other JSON as it is written.
fn text(raw: &RawValue) -> String {
    serde_json::from_str::<Value>(raw.get())
        .ok()
        .and_then(|value| value.as_str().map(str::to_owned))
        .unwrap_or_else(|| raw.get().to_owned())
}
