//! The `agent` object: what the last event and every plain response say of a run.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::api::wire::agent::budget::Budget;
use crate::api::wire::agent::delegate::TreeUsage;
use crate::api::wire::agent::guarded::VerdictObject;
use crate::api::wire::compaction::{CompactionEntry, FlushEntry};
use crate::api::wire::turn_end::finish_reason;
use crate::api::wire::usage::UsageObject;
use crate::api::wire::vocabulary::{RunStatusText, StopReasonText};
use crate::types::outcome::{self, Outcome};
use crate::types::report::{CallReport, DecisionReport, Report, StepReport};
use crate::types::taken::Taken;
use crate::types::tool::Measurement;
use crate::types::{Micros, RunId, SessionId, StopReason};

/// How a run ended or why it waits.
#[derive(Debug, Serialize, ToSchema)]
pub struct AgentObject<'a> {
    /// The run.
    #[schema(example = "run_019a0000000070008000000000000000")]
    pub run_id: &'a str,
    /// Its session.
    pub session_id: Option<&'a str>,
    /// `completed`, `incomplete`, `requires_action`, `cancelled` or `failed`.
    #[schema(value_type = RunStatusText, example = "completed")]
    pub status: &'static str,
    /// Why the loop stopped.
    #[schema(value_type = StopReasonText, example = "done")]
    pub stop_reason: &'static str,
    /// Whether the model had nothing to say, so that there is nothing to show.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub silent: bool,
    /// Which limit ended the run, in a sentence; null if none did.
    pub message: Option<Cow<'static, str>>,
    /// What the model thought in its last turn, if it said nothing else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<&'a str>,
    /// Model calls that counted.
    pub iterations: u32,
    /// Tool calls that were answered.
    pub tool_calls: u32,
    /// What the model calls cost, in US dollars.
    pub cost_usd: f64,
    /// Tokens of all model calls of the run.
    pub usage: UsageObject,
    /// What the run took and all runs below it; absent if it began none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<TreeUsage>,
    /// Where the budgets stand.
    pub budget: Budget,
    /// What the run waits for.
    pub required_action: Option<RequiredAction<'a>>,
    /// Things the caller should know.
    pub warnings: &'a [String],
    /// What happened, step by step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<ReportObject<'a>>,
}

/// What a run waits for.
#[derive(Debug, Serialize, ToSchema)]
pub struct RequiredAction<'a> {
    /// `approval`, `client_tools`, `ask_user`, or `outcome_unknown` if it is unknown whether one of the calls took effect.
    pub r#type: &'static str,
    /// The calls to decide about, or to answer with `tool` messages.
    pub calls: Vec<RequiredCall<'a>>,
}

/// A call that the client is to answer.
#[derive(Debug, Serialize, ToSchema)]
pub struct RequiredCall<'a> {
    /// The id that the `tool` message names.
    pub call_id: &'a str,
    /// The function.
    pub name: &'a str,
    /// Its arguments.
    #[schema(value_type = Value)]
    pub arguments: Arguments<'a>,
    /// SHA-256 of the tool's name, a line feed and the arguments' JSON text, in hexadecimal.
    pub arguments_digest: String,
    /// What became of it at the server, where it is unknown whether it took effect, or why it needs an approval; null for one
    /// of the client's tools.
    pub reason: Option<&'a str>,
    /// When it no longer can be answered, Unix milliseconds.
    pub expires_ms: Option<u64>,
}

/// Tool arguments: the object that the model wrote, or its text if that is not JSON.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Arguments<'a> {
    /// Valid JSON on one line.
    Json(&'a RawValue),
    /// Valid JSON that was written on several lines, which a line of an event cannot hold.
    Joined(Value),
    /// Anything else.
    Text(&'a str),
}

/// What a run did and how long it took.
#[derive(Debug, Serialize, ToSchema)]
pub struct ReportObject<'a> {
    /// From start to end, without waiting for the client.
    pub total_ms: u64,
    /// In model calls.
    pub llm_time_ms: u64,
    /// In tool calls, summed.
    pub tool_time_ms: u64,
    /// The steps.
    pub steps: Vec<StepObject<'a>>,
    /// What guardrails said that asked a model or a service.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub guardrails: Vec<VerdictObject<'a>>,
    /// Each time that earlier messages were replaced in what models are shown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub compactions: Vec<CompactionEntry>,
    /// Each time that a model wrote down what matters before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flushes: Vec<FlushEntry<'a>>,
}

/// One model call and its tools.
#[derive(Debug, Serialize, ToSchema)]
pub struct StepObject<'a> {
    /// Counted from 1.
    pub index: u32,
    /// `initial` or `tool_followup`.
    pub kind: &'static str,
    /// The model call's time.
    pub llm_latency_ms: u64,
    /// The tools' time, summed.
    pub tool_latency_ms: u64,
    /// The model call's tokens.
    pub usage: UsageObject,
    /// The model that answered, as `upstream/model`, if the run had fallen back to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<&'a str>,
    /// The upstream's own finish reason.
    pub finish_reason: &'a str,
    /// In call order.
    pub tool_calls: Vec<CallObject<'a>>,
}

/// One tool call.
#[derive(Debug, Serialize, ToSchema)]
pub struct CallObject<'a> {
    /// The call.
    pub call_id: &'a str,
    /// The tool.
    pub name: &'a str,
    /// Its arguments.
    #[schema(value_type = Value)]
    pub arguments: Arguments<'a>,
    /// The result's size.
    pub result_bytes: u64,
    /// The tool's time.
    pub latency_ms: u64,
    /// Whether it was never dispatched.
    pub skipped: bool,
    /// Whether it was dispatched, and it is unknown whether it took effect.
    pub outcome_unknown: bool,
    /// The result, if it describes a failure.
    pub error: Option<&'a str>,
    /// What the tool measured, by name.
    pub metrics: BTreeMap<&'a str, MetricObject<'a>>,
    /// What was decided of it while it waited for an approval.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<DecisionObject<'a>>,
}

/// A decision about a call that waited for an approval.
#[derive(Debug, Serialize, ToSchema)]
pub struct DecisionObject<'a> {
    /// `approve`, `deny`, `skip`, or `expire` if none came in time.
    pub decision: &'static str,
    /// The name of the key of the caller who decided.
    pub by: Option<&'a str>,
    /// The end user who decided, as the token or the request of that caller names them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<&'a str>,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'a str>,
}

/// Something that a tool measured.
#[derive(Debug, Serialize, ToSchema)]
pub struct MetricObject<'a> {
    /// How much.
    pub value: f64,
    /// In which unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<&'a str>,
}

impl<'a> AgentObject<'a> {
    /// What `outcome` says of the run.
    pub fn new(run: &'a RunId, session: Option<&'a SessionId>, outcome: &'a Outcome, with_report: bool) -> Self {
        let calls = &outcome.required_calls;
        Self {
            run_id: run.as_str(),
            session_id: session.map(SessionId::as_str),
            status: outcome.status().as_str(),
            stop_reason: outcome.reason.as_str(),
            silent: outcome.reason == StopReason::NoReply,
            message: outcome.message(),
            reasoning: thought_alone(outcome),
            iterations: outcome.iterations,
            tool_calls: outcome.tool_calls,
            cost_usd: Micros::as_usd(outcome.cost),
            usage: (&outcome.usage).into(),
            tree: outcome
                .delegated
                .as_ref()
                .map(|below| (&Taken::of_one(outcome.usage, outcome.cost).and(below)).into()),
            budget: Budget::at_the_end(outcome),
            required_action: (!calls.is_empty()).then(|| RequiredAction {
                r#type: action(outcome.reason),
                calls: calls.iter().map(RequiredCall::new).collect(),
            }),
            warnings: &outcome.warnings,
            report: with_report.then(|| ReportObject::new(&outcome.report)),
        }
    }
}

/// What a run that waits for this reason waits for.
fn action(reason: StopReason) -> &'static str {
    if reason == StopReason::Approval {
        "approval"
    } else if reason == StopReason::AskUser {
        "ask_user"
    } else if reason == StopReason::ToolPending {
        "tool_pending"
    } else if reason == StopReason::OutcomeAsked {
        "outcome_unknown"
    } else {
        "client_tools"
    }
}

/// What the model thought, if it said nothing else.
fn thought_alone(outcome: &Outcome) -> Option<&str> {
    let says = !outcome.output_text.is_empty() || !outcome.refusal.is_empty() || !outcome.required_calls.is_empty();
    Some(outcome.reasoning.as_str()).filter(|thinking| !says && !thinking.is_empty())
}

impl<'a> RequiredCall<'a> {
    /// A call that a run waits for.
    pub fn new(required: &'a outcome::RequiredCall) -> Self {
        let outcome::RequiredCall { call, reason, expires_ms } = required;
        Self {
            call_id: call.id.as_str(),
            name: &call.name,
            arguments: Arguments::new(&call.arguments),
            arguments_digest: call.digest(),
            reason: reason.as_deref(),
            expires_ms: *expires_ms,
        }
    }
}

impl<'a> Arguments<'a> {
    /// The arguments as the model wrote them.
    pub fn new(text: &'a str) -> Self {
        let json = if text.contains(['\n', '\r']) {
            serde_json::from_str(text).map(Self::Joined)
        } else {
            serde_json::from_str(text).map(Self::Json)
        };
        json.unwrap_or(Self::Text(text))
    }
}

impl<'a> ReportObject<'a> {
    fn new(report: &'a Report) -> Self {
        Self {
            total_ms: report.total_ms,
            llm_time_ms: report.llm_time_ms,
            tool_time_ms: report.tool_time_ms,
            steps: report.steps.iter().enumerate().map(|(place, step)| StepObject::new(place, step)).collect(),
            guardrails: report.guardrails.iter().flat_map(|said| &said.0).map(VerdictObject::new).collect(),
            compactions: report.compactions.iter().flat_map(|done| &done.0).map(CompactionEntry::from).collect(),
            flushes: report.compactions.iter().flat_map(|done| &done.1).map(FlushEntry::from).collect(),
        }
    }
}

impl<'a> StepObject<'a> {
    fn new(place: usize, step: &'a StepReport) -> Self {
        Self {
            index: step.index,
            kind: if place == 0 { "initial" } else { "tool_followup" },
            llm_latency_ms: step.llm_latency_ms,
            tool_latency_ms: step.tool_latency_ms,
            usage: UsageObject::from(&step.usage),
            fallback: step.fallback.as_deref(),
            finish_reason: finish_reason(&step.turn_end),
            tool_calls: step.tool_calls.iter().map(CallObject::new).collect(),
        }
    }
}

impl<'a> MetricObject<'a> {
    fn named(measured: &'a Measurement) -> (&'a str, Self) {
        (&measured.name, Self { value: measured.value, unit: measured.unit.as_deref() })
    }
}

impl<'a> DecisionObject<'a> {
    fn new(decided: &'a DecisionReport) -> Self {
        let DecisionReport { decision, by, user, reason } = decided;
        Self { decision: decision.as_str(), by: by.as_deref(), user: user.as_deref(), reason: reason.as_deref() }
    }
}

impl<'a> CallObject<'a> {
    fn new(call: &'a CallReport) -> Self {
        Self {
            call_id: call.call_id.as_str(),
            name: &call.name,
            arguments: Arguments::new(&call.arguments),
            result_bytes: call.result_bytes,
            latency_ms: call.latency_ms,
            skipped: call.skipped,
            outcome_unknown: call.outcome_unknown,
            error: call.error.as_deref(),
            metrics: call.measurements.iter().map(MetricObject::named).collect(),
            decisions: call.decisions.iter().map(DecisionObject::new).collect(),
        }
    }
}
