//! Sessions as resources.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::agent::Versioned;
use crate::agent::session::fork::Fork;
use crate::agent::session::{NewSession, SessionPatch};
use crate::api::wire::body::{bad_money, bad_session_id, bad_tokens, check_metadata, malformed, parse};
use crate::api::wire::error::WireError;
use crate::api::wire::openai_chat::described::ChatMessage;
use crate::api::wire::openai_chat::message::check_messages;
use crate::api::wire::openai_chat::message::encoded;
use crate::api::wire::restored::RestoreWarning;
use crate::api::wire::usage::UsageObject;
use crate::api::wire::vocabulary::metadata;
use crate::types::session::{LastRun, Session};
use crate::types::{Message, Micros, RunId, SessionId};

/// Longest time a session may be kept, in seconds: ten years.
const MAX_TTL_S: u64 = 10 * 366 * 24 * 3600;

/// A session.
#[derive(Debug, Serialize, ToSchema)]
pub struct SessionObject {
    /// The session.
    #[schema(example = "sess_42")]
    pub id: String,
    /// `session`.
    pub object: &'static str,
    /// When it was created, Unix milliseconds.
    pub created_ms: u64,
    /// When it last changed, Unix milliseconds.
    pub updated_ms: u64,
    /// The agent of requests that name no model.
    pub agent: Option<String>,
    /// The end user whom a run of it named last.
    pub user: Option<String>,
    /// What its newest run runs as; null before the first.
    #[schema(required)]
    pub last_run: Option<LastRunObject>,
    /// The caller's notes.
    pub metadata: BTreeMap<String, String>,
    /// Grows with every change.
    pub version: u64,
    /// Messages in its history.
    pub message_count: u64,
    /// Runs that ended in it.
    pub runs: u64,
    /// The run that holds it now.
    pub active_run_id: Option<String>,
    /// Tokens of all its ended runs.
    pub usage: UsageObject,
    /// Cost of all its ended runs, in US dollars.
    pub cost_usd: f64,
    /// Its budgets.
    pub budget: SessionBudgetObject,
    /// How often its history was shortened in what models are sent.
    pub compactions: u64,
    /// How long it is kept after its last change, in seconds; null means the server's setting.
    pub ttl_s: Option<u64>,
    /// What it had otherwise where it was exported; in answers to imports alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub warnings: Vec<RestoreWarning>,
}

/// What the newest run of a session runs as.
#[derive(Debug, Serialize, ToSchema)]
pub struct LastRunObject {
    /// The agent.
    #[schema(example = "default")]
    pub agent: String,
    /// The upstream and its model that it began with, with a slash between them.
    #[schema(example = "openai/gpt-5")]
    pub model: String,
}

impl From<&LastRun> for LastRunObject {
    fn from(LastRun { id: _, agent, model }: &LastRun) -> Self {
        Self { agent: agent.clone(), model: model.clone() }
    }
}

/// A session's budgets.
#[derive(Debug, Serialize, ToSchema)]
pub struct SessionBudgetObject {
    /// Most tokens of all runs.
    pub token_limit: Option<u64>,
    /// What is left of them.
    pub tokens_remaining: Option<u64>,
    /// Most money of all runs, in US dollars.
    pub cost_limit_usd: Option<f64>,
    /// What is left of it.
    pub cost_remaining_usd: Option<f64>,
}

impl From<&Versioned> for SessionObject {
    fn from(Versioned { session, version }: &Versioned) -> Self {
        let left = |budget: Micros| budget.saturating_sub(session.cost).as_usd();
        Self {
            id: session.id.to_string(),
            object: "session",
            created_ms: session.created_ms,
            updated_ms: session.updated_ms,
            agent: session.agent.clone(),
            user: session.user.clone(),
            last_run: session.last_run.as_deref().map(LastRunObject::from),
            metadata: session.metadata.clone(),
            version: *version,
            message_count: session.message_count,
            runs: session.runs,
            active_run_id: session.active_run.as_ref().map(RunId::to_string),
            usage: (&session.usage).into(),
            cost_usd: session.cost.as_usd(),
            budget: SessionBudgetObject {
                token_limit: session.token_budget,
                tokens_remaining: session.token_budget.map(|limit| limit.saturating_sub(session.usage.total())),
                cost_limit_usd: session.cost_budget.map(Micros::as_usd),
                cost_remaining_usd: session.cost_budget.map(left),
            },
            compactions: compactions(session),
            ttl_s: session.ttl_s,
            warnings: Vec::new(),
        }
    }
}

fn compactions(session: &Session) -> u64 {
    let summary = session.context.as_ref().and_then(|context| context.view.summary.as_ref());
    summary.map_or(0, |summary| u64::from(summary.version))
}

/// A session to create. An unknown field is an error.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSession<'a> {
    /// The id; minted without it.
    #[schema(pattern = "^[A-Za-z0-9_.:-]{1,128}$")]
    pub id: Option<String>,
    /// The agent of requests that name no model.
    pub agent: Option<String>,
    /// Up to 16 short entries.
    #[schema(schema_with = metadata)]
    pub metadata: Option<BTreeMap<String, String>>,
    /// Its first messages.
    #[serde(borrow)]
    #[schema(value_type = Option<Vec<ChatMessage>>, max_items = 10_000)]
    pub messages: Option<Vec<&'a RawValue>>,
    /// Most tokens of all its runs.
    #[schema(minimum = 1, maximum = 9_007_199_254_740_992_u64)]
    pub token_budget: Option<u64>,
    /// Most money of all its runs, in US dollars.
    #[schema(exclusive_minimum = 0, maximum = 1_000_000_000)]
    pub cost_budget_usd: Option<f64>,
    /// How long it is kept after its last change, in seconds.
    #[schema(minimum = 1, maximum = 316_224_000)]
    pub ttl_s: Option<u64>,
}

/// Where to fork a session. An unknown field is an error.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForkSession {
    /// How many of its messages the new session begins with; all of them without it.
    #[schema(example = 2)]
    pub at: Option<u64>,
    /// The new session's id; minted without it.
    #[schema(pattern = "^[A-Za-z0-9_.:-]{1,128}$")]
    pub id: Option<String>,
}

/// What to change in a session. An unknown field is an error.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PatchSession {
    /// Entries to set, or to remove where null.
    pub metadata: Option<BTreeMap<String, Option<String>>>,
    /// The token budget; null removes it.
    #[schema(minimum = 1, maximum = 9_007_199_254_740_992_u64)]
    #[serde(default, deserialize_with = "present")]
    pub token_budget: Option<Option<u64>>,
    /// The cost budget in US dollars; null removes it.
    #[schema(exclusive_minimum = 0, maximum = 1_000_000_000)]
    #[serde(default, deserialize_with = "present")]
    pub cost_budget_usd: Option<Option<f64>>,
}

fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Reads the body of `POST /v1/sessions`; an empty one is `{}`.
pub fn read_create(body: &str) -> Result<NewSession, WireError> {
    let create: CreateSession<'_> = if body.trim().is_empty() { CreateSession::default() } else { parse(body)? };
    let id = create.id.as_deref().map(|id| SessionId::parse(id).ok_or_else(|| bad_session_id("id"))).transpose()?;
    check_metadata(create.metadata.as_ref())?;
    check_ttl(create.ttl_s)?;
    let messages = match create.messages.as_deref() {
        None | Some([]) => Vec::new(),
        Some(raw) => check_messages(raw, false)?.all,
    };
    Ok(NewSession {
        id,
        agent: create.agent,
        metadata: create.metadata.unwrap_or_default(),
        messages,
        token_budget: tokens(create.token_budget)?,
        cost_budget: money(create.cost_budget_usd)?,
        ttl_s: create.ttl_s,
        memory: std::sync::Arc::default(),
    })
}

/// Reads the body of `POST /v1/sessions/{id}/fork`; an empty one is `{}`.
pub fn read_fork(body: &str, round_down: bool) -> Result<Fork, WireError> {
    let fork: ForkSession = if body.trim().is_empty() { ForkSession::default() } else { parse(body)? };
    let id = fork.id.as_deref().map(|id| SessionId::parse(id).ok_or_else(|| bad_session_id("id"))).transpose()?;
    Ok(Fork { at: fork.at, id, round_down })
}

/// Reads the body of `PATCH /v1/sessions/{id}`.
pub fn read_patch(body: &str) -> Result<SessionPatch, WireError> {
    let patch: PatchSession = parse(body)?;
    let metadata = patch.metadata.unwrap_or_default();
    let set = metadata.iter().filter_map(|(key, value)| Some((key.clone(), value.clone()?))).collect();
    check_metadata(Some(&set))?;
    Ok(SessionPatch {
        metadata,
        token_budget: patch.token_budget.map(tokens).transpose()?,
        cost_budget: patch.cost_budget_usd.map(money).transpose()?,
    })
}

/// Bounds on a session's time to live.
pub fn check_ttl(ttl_s: Option<u64>) -> Result<(), WireError> {
    match ttl_s {
        Some(ttl) if !(1..=MAX_TTL_S).contains(&ttl) => {
            Err(WireError::invalid("ttl_s", format!("must be between 1 and {MAX_TTL_S}")))
        }
        Some(_) | None => Ok(()),
    }
}

/// A session's token budget, which is never nothing.
pub fn tokens(budget: Option<u64>) -> Result<Option<u64>, WireError> {
    bad_tokens(budget, "no limit").map_or(Ok(budget), |wrong| Err(WireError::invalid("token_budget", wrong)))
}

/// A session's cost budget, which is never nothing.
pub fn money(budget: Option<f64>) -> Result<Option<Micros>, WireError> {
    match bad_money(budget, "no limit") {
        Some(wrong) => Err(WireError::invalid("cost_budget_usd", wrong)),
        None => Ok(budget.map(Micros::from_usd)),
    }
}

/// A message of a session with its place.
#[derive(Debug, Serialize, ToSchema)]
pub struct MessageObject {
    /// Its place, counted from 1; what `after` names.
    pub index: u64,
    /// The message in OpenAI's shape.
    #[schema(value_type = ChatMessage)]
    pub message: Box<RawValue>,
}

impl MessageObject {
    /// The message at `index`.
    pub fn new(index: u64, message: &Message) -> Result<Self, WireError> {
        let message = RawValue::from_string(encoded(message).to_owned()).map_err(|error| malformed(&error))?;
        Ok(Self { index, message })
    }
}
