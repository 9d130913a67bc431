//! Runs as resources: the run object, the list of runs, and the messages that a client sends to a live run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::agent::Head;
use crate::agent::control::RunView;
use crate::api::wire::RunNames;
use crate::api::wire::agent::budget::Budget;
use crate::api::wire::agent::delegate::ParentObject;
use crate::api::wire::agent::events::native;
use crate::api::wire::agent::object::AgentObject;
use crate::api::wire::body::{missing, parse};
use crate::api::wire::error::WireError;
use crate::api::wire::openai_chat::described::ChatMessage;
use crate::api::wire::openai_chat::message::check_messages;
use crate::api::wire::openai_error::ErrorObject;
use crate::api::wire::usage::UsageObject;
use crate::api::wire::vocabulary::{RunStatusText, StopReasonText};
use crate::types::progress::Progress;
use crate::types::trace::TraceId;
use crate::types::{Message, Role, RunStatus, SessionId, StopReason, Tenant};

/// A run.
#[derive(Debug, Serialize, ToSchema)]
pub struct RunObject<'a> {
    /// The run.
    #[schema(example = "run_019a0000000070008000000000000000")]
    pub id: &'a str,
    /// `run`.
    pub object: &'static str,
    /// Where it stands.
    #[schema(value_type = RunStatusText, example = "completed")]
    pub status: &'static str,
    /// Whose it is; absent but for keys that see the runs of all tenants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<&'a str>,
    /// Its session.
    pub session_id: Option<&'a str>,
    /// The trace that it belongs to: that of its request's `traceparent`, or its own while traces are sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "0af7651916cd43dd8448eb211c80319c")]
    pub trace_id: Option<TraceId>,
    /// The run that began it, and waits for it; absent for one that a request began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentObject<'a>>,
    /// `compaction` for a run that only shortens its session's conversation; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub purpose: Option<&'static str>,
    /// The model or agent as it was asked for.
    pub model: &'a str,
    /// The agent that it runs as.
    #[schema(example = "default")]
    pub agent_name: &'a str,
    /// The upstream and its model that it began with, with a slash between them.
    #[schema(example = "openai/gpt-5")]
    pub called_model: &'a str,
    /// The end user, as the request that began it named them.
    pub user: Option<&'a str>,
    /// The version of the agent that it keeps; absent unless that is one of the [store](#agents).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<u64>,
    /// The notes of the request that began it.
    #[schema(value_type = BTreeMap<String, String>)]
    pub metadata: &'a BTreeMap<String, String>,
    /// When it was accepted, Unix milliseconds.
    pub created_ms: u64,
    /// When it ended or began to wait, Unix milliseconds.
    pub ended_ms: Option<u64>,
    /// Why it ended or waits.
    #[schema(value_type = Option<StopReasonText>)]
    pub stop_reason: Option<&'static str>,
    /// How it ended; in lists and while it is under way it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentObject<'a>>,
    /// How far it came; absent in lists, and unless it is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<ProgressObject<'a>>,
    /// Tokens of all steps, so far while it is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageObject>,
    /// The final text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_text: Option<&'a str>,
    /// The words in which the model declined to answer, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<&'a str>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorObject>,
}

impl<'a> RunObject<'a> {
    /// A run that was just accepted.
    pub fn queued(head: &'a Head) -> Self {
        Self { status: RunStatus::Queued.as_str(), ..head.into() }
    }

    /// A run for who may read what it answered, else no more than where it stands.
    pub fn shown(view: &'a RunView, with_answer: bool) -> Self {
        if with_answer { view.into() } else { (&view.head).into() }
    }

    /// The same, for who must be told whose it is.
    #[must_use]
    pub fn of(self, tenant: Option<&'a Tenant>) -> Self {
        Self { tenant: tenant.map(Tenant::as_str), ..self }
    }
}

impl<'a> From<&'a Head> for RunObject<'a> {
    fn from(head: &'a Head) -> Self {
        Self {
            id: head.id.as_str(),
            object: "run",
            status: head.status.as_str(),
            tenant: None,
            session_id: head.session.as_ref().map(SessionId::as_str),
            trace_id: head.trace.as_ref().map(|trace| trace.id),
            parent: head.parent.as_deref().map(ParentObject::from),
            purpose: head.compacts.then_some("compaction"),
            model: &head.model,
            agent_name: &head.agent,
            called_model: &head.called_model,
            user: head.user.as_deref(),
            agent_version: head.agent_version,
            metadata: &head.metadata,
            created_ms: head.created_ms,
            ended_ms: head.ended_ms,
            stop_reason: head.reason.map(StopReason::as_str),
            agent: None,
            progress: None,
            usage: None,
            output_text: None,
            refusal: None,
            error: None,
        }
    }
}

impl<'a> From<&'a RunView> for RunObject<'a> {
    fn from(view: &'a RunView) -> Self {
        let RunView { head, outcome, progress } = view;
        let Some(outcome) = outcome else {
            let usage = progress.as_ref().map(|progress| (&progress.usage).into());
            let progress = progress.as_ref().map(|progress| ProgressObject::new(progress, head));
            return Self { progress, usage, ..head.into() };
        };
        Self {
            agent: Some(AgentObject::new(&head.id, head.session.as_ref(), outcome, true)),
            usage: Some((&outcome.usage).into()),
            output_text: Some(&outcome.output_text),
            refusal: Some(outcome.refusal.as_str()).filter(|text| !text.is_empty()),
            error: outcome.error.as_ref().map(ErrorObject::from),
            ..head.into()
        }
    }
}

/// How far a run under way came. What a model call in flight takes is not known yet.
#[derive(Debug, Serialize, ToSchema)]
pub struct ProgressObject<'a> {
    /// The current step, counted from 1; 0 before the first.
    pub step: u32,
    /// Model calls that counted.
    pub iterations: u32,
    /// Tool calls that were answered.
    pub tool_calls: u32,
    /// Where the budgets stand.
    pub budget: Budget,
    /// The calls of the server's tools that have begun and have no result.
    pub tools: Vec<OpenCallObject<'a>>,
    /// The replica that drives the run, as its log names itself; null where no replica does, or where it is not known.
    #[schema(required)]
    pub replica: Option<&'a str>,
    /// What happened last.
    #[schema(required)]
    pub last_event: Option<LastEvent>,
}

/// A tool call that has begun.
#[derive(Debug, Serialize, ToSchema)]
pub struct OpenCallObject<'a> {
    /// The call.
    pub call_id: &'a str,
    /// The tool.
    pub name: &'a str,
    /// When it began, Unix milliseconds.
    pub started_ms: u64,
}

/// The newest event of a run.
#[derive(Debug, Serialize, ToSchema)]
pub struct LastEvent {
    /// Its number.
    pub seq: u64,
    /// Its type, as on the stream of events; `text` for a piece of text.
    #[schema(value_type = String, example = "step.started")]
    pub r#type: &'static str,
    /// When it happened, Unix milliseconds.
    pub at_ms: u64,
}

impl<'a> ProgressObject<'a> {
    fn new(progress: &'a Progress, head: &Head) -> Self {
        let Progress { step, iterations, tool_calls, budget, open_calls, last, replica, usage: _ } = progress;
        let tools = open_calls.iter().map(|call| OpenCallObject {
            call_id: call.call_id.as_str(),
            name: &call.name,
            started_ms: call.since_ms,
        });
        let last_event = last.as_ref().map(|record| {
            let names = RunNames::from(head);
            let r#type = native(record, &names, false).map_or("text", |event| event.name());
            LastEvent { seq: record.seq, r#type, at_ms: record.at_ms }
        });
        Self {
            step: *step,
            iterations: *iterations,
            tool_calls: *tool_calls,
            budget: budget.into(),
            tools: tools.collect(),
            replica: replica.as_deref(),
            last_event,
        }
    }
}

/// What joins a live run's conversation. An unknown field is an error.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Steering<'a> {
    /// Messages of the roles `user`, `system` and `developer`.
    #[serde(borrow)]
    #[schema(value_type = Vec<ChatMessage>, required, min_items = 1, max_items = 10_000)]
    pub messages: Option<Vec<&'a RawValue>>,
}

/// Reads the body of `POST /v1/runs/{id}/messages`.
pub fn read_steering(body: &str) -> Result<Vec<Message>, WireError> {
    let steering: Steering<'_> = parse(body)?;
    let messages = check_messages(&steering.messages.ok_or_else(|| missing("messages"))?, false)?.all;
    let misplaced = messages.iter().position(|message| matches!(message.role, Role::Assistant | Role::Tool));
    match misplaced {
        Some(index) => {
            let message = "only user, system and developer messages can join a live run";
            Err(WireError::invalid(format!("messages[{index}].role"), message))
        }
        None => Ok(messages),
    }
}

/// How a run is cancelled. The body may be left out.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Cancellation {
    /// When the run stops: `immediate`, or `after_step`.
    pub mode: Option<CancelMode>,
}

/// When a cancelled run stops.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CancelMode {
    /// At once: the model call and the tool calls that are under way are stopped.
    #[default]
    Immediate,
    /// Once the step that is under way is done.
    AfterStep,
}

/// When the run is to stop, by the body of the request.
pub fn read_cancellation(body: &str) -> Result<CancelMode, WireError> {
    if body.trim_ascii().is_empty() {
        return Ok(CancelMode::default());
    }
    Ok(parse::<Cancellation>(body)?.mode.unwrap_or_default())
}

/// OpenAI's list shape.
#[derive(Debug, Serialize, ToSchema)]
pub struct List<T> {
    /// `list`.
    pub object: &'static str,
    /// The entries.
    pub data: Vec<T>,
    /// The first entry's id.
    pub first_id: Option<String>,
    /// The last entry's id; what the next page is `after`.
    pub last_id: Option<String>,
    /// Whether there are more.
    pub has_more: bool,
}

impl<T> List<T> {
    /// A page of entries, `id` naming each.
    pub fn new(data: Vec<T>, has_more: bool, id: impl Fn(&T) -> String) -> Self {
        let (first_id, last_id) = (data.first().map(&id), data.last().map(&id));
        Self { object: "list", data, first_id, last_id, has_more }
    }

    /// The same, where the search for entries gave up at the one of this id: the next page goes on after it.
    #[must_use]
    pub fn searched_to(self, id: Option<String>) -> Self {
        if self.has_more || id.is_none() { self } else { Self { last_id: id, has_more: true, ..self } }
    }

    /// A whole list, whose entries have no ids to page by.
    pub fn whole(data: Vec<T>) -> Self {
        Self { object: "list", data, first_id: None, last_id: None, has_more: false }
    }
}
