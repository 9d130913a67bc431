//! Shortening a session's conversation on request.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::agent::{ContextPatch, NewRun, RulesPatch};
use crate::api::wire::RunNames;
use crate::api::wire::agent::context::ContextOptions;
use crate::api::wire::body::parse;
use crate::api::wire::error::WireError;
use crate::api::wire::usage::UsageObject;
use crate::api::wire::vocabulary::{CompactionText, RunStatusText};
use crate::types::context::Compaction;
use crate::types::memory::MOST_USER;
use crate::types::report::{CompactionReport, FlushReport};
use crate::types::{Outcome, SessionId};

/// How a session's conversation is to be shortened. An unknown field is an error.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CompactSession {
    /// The agent whose rules hold, or the model that is asked; the session's agent without it.
    #[schema(example = "demo")]
    pub model: Option<String>,
    /// How what is left out is replaced: `auto`, `llm`, `local` or `truncate`. A model is asked only where the agent does that.
    #[schema(value_type = Option<CompactionText>)]
    pub method: Option<Compaction>,
    /// How many of the newest messages are kept as they are; what the agent says without it.
    #[schema(minimum = 1, maximum = 1000, example = 6)]
    pub keep_last: Option<u32>,
    /// The user to whose memory belongs what is written down before, where the agent has a model do that and memories are users'.
    #[schema(max_length = 4096, example = "ann")]
    pub user: Option<String>,
    /// Whether to answer at once with the run that does it.
    pub background: Option<bool>,
}

/// Reads the body of `POST /v1/sessions/{id}/compact` into what is asked of a run, and whether its end is waited for.
pub fn read_compact(body: &str, new: NewRun) -> Result<(NewRun, bool), WireError> {
    let asked: CompactSession = if body.trim().is_empty() { CompactSession::default() } else { parse(body)? };
    if asked.method == Some(Compaction::Off) {
        return Err(WireError::invalid("method", "must be \"auto\", \"llm\", \"local\" or \"truncate\""));
    }
    if asked.user.as_ref().is_some_and(|user| user.len() > MOST_USER) {
        return Err(WireError::invalid("user", format!("must not be longer than {MOST_USER} bytes")));
    }
    let options = ContextOptions { keep_last: asked.keep_last, ..ContextOptions::default() };
    let checked = options.check().map_err(|error| error.at("keep_last"))?;
    let context = ContextPatch { compaction: asked.method, only: true, ..checked };
    let waits = !asked.background.unwrap_or(false);
    let rules = RulesPatch { context, ..RulesPatch::default() };
    Ok((NewRun { model: asked.model, rules, waits_for_the_end: waits, ..new }.of_user(asked.user), waits))
}

/// What became of a session's conversation.
#[derive(Debug, Serialize, ToSchema)]
pub struct CompactionObject<'a> {
    /// The run that did it.
    #[schema(example = "run_019a0000000070008000000000000000")]
    pub id: &'a str,
    /// `session.compaction`.
    pub object: &'static str,
    /// The session.
    pub session_id: Option<&'a str>,
    /// How the run ended.
    #[schema(value_type = RunStatusText, example = "completed")]
    pub status: &'static str,
    /// Whether messages were replaced. A conversation that would not be shorter is left as it is.
    pub compacted: bool,
    /// How; absent where none were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compaction: Option<CompactionEntry>,
    /// What a model wrote down before; absent where none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flush: Option<FlushEntry<'a>>,
    /// Tokens of all that was asked.
    pub usage: UsageObject,
    /// What they cost, in US dollars.
    pub cost_usd: f64,
    /// What the caller should know.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub warnings: &'a [String],
}

/// How messages were replaced once.
#[derive(Debug, Serialize, ToSchema)]
pub struct CompactionEntry {
    /// `llm`, `local` or `truncate`.
    pub method: &'static str,
    /// How often the conversation was shortened, this time included.
    pub version: u32,
    /// How many messages more are left out in what models are shown.
    pub removed_messages: u64,
    /// How many tokens the next call had before, about.
    pub before_tokens: u64,
    /// How many it has now.
    pub after_tokens: u64,
    /// How long it took.
    pub latency_ms: u64,
}

/// What a model wrote down once before messages were replaced.
#[derive(Debug, Serialize, ToSchema)]
pub struct FlushEntry<'a> {
    /// How many messages it was about.
    pub messages: u64,
    /// How often the model was called.
    pub iterations: u32,
    /// How often it wrote a note.
    pub writes: u32,
    /// Why not all is written down that might be; absent where nothing failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'a str>,
    /// How long it took.
    pub latency_ms: u64,
    /// The model's tokens.
    pub usage: UsageObject,
    /// What they cost, in US dollars.
    pub cost_usd: f64,
}

impl<'a> From<&'a FlushReport> for FlushEntry<'a> {
    fn from(report: &'a FlushReport) -> Self {
        Self {
            messages: report.messages,
            iterations: report.iterations,
            writes: report.writes,
            error: report.error.as_deref(),
            latency_ms: report.latency_ms,
            usage: (&report.usage).into(),
            cost_usd: report.cost.as_usd(),
        }
    }
}

impl From<&CompactionReport> for CompactionEntry {
    fn from(report: &CompactionReport) -> Self {
        Self {
            method: report.method.as_str(),
            version: report.version,
            removed_messages: report.removed_messages,
            before_tokens: report.before_tokens,
            after_tokens: report.after_tokens,
            latency_ms: report.latency_ms,
        }
    }
}

impl<'a> CompactionObject<'a> {
    /// What the run of these names did that ended so.
    pub fn new(names: &'a RunNames, outcome: &'a Outcome) -> Self {
        let done = outcome.report.compactions.as_ref().and_then(|done| done.0.last());
        Self {
            id: names.id.as_str(),
            object: "session.compaction",
            session_id: names.session.as_ref().map(SessionId::as_str),
            status: outcome.status().as_str(),
            compacted: done.is_some(),
            compaction: done.map(CompactionEntry::from),
            flush: outcome.report.compactions.as_ref().and_then(|done| done.1.last()).map(FlushEntry::from),
            usage: (&outcome.usage).into(),
            cost_usd: outcome.cost.as_usd(),
            warnings: &outcome.warnings,
        }
    }
}
