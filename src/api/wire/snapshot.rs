//! A session as a snapshot: what leaves the server by export, and comes back by import.

mod unfinished;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

pub use self::unfinished::UnfinishedRun;
use self::unfinished::{SnapshotRun, SnapshotUnfinished};
use crate::agent::control::Unfinished;
use crate::agent::session::layers::{MOST_LAYER_BYTES, MOST_LAYERS};
use crate::api::wire::body::{bad_session_id, check_metadata, missing, parse};
use crate::api::wire::error::WireError;
use crate::api::wire::layer::{NamedLayer, checked};
use crate::api::wire::openai_chat::described::ChatMessage;
use crate::api::wire::openai_chat::message::check_history;
use crate::api::wire::openai_chat::message::encoded;
use crate::api::wire::restored::{EnvironmentObject, LeftRun};
use crate::api::wire::run::RunObject;
use crate::api::wire::session::{check_ttl, money, tokens};
use crate::api::wire::write_json;
use crate::types::context::{Method, SessionContext, Summary, View};
use crate::types::json::{MAX_NUMBER, is_default};
use crate::types::session::{Session, SessionLayer};
use crate::types::usage::MAX_USD;
use crate::types::user::clip_user;
use crate::types::{Message, Micros, Role, SessionId, Usage};

/// The `object` of a snapshot.
const OBJECT: &str = "session.export";
/// The form that is written, and the only one that is read.
const VERSION: u64 = 1;
/// The longest summary that is read, in bytes.
const LONGEST_SUMMARY: usize = 1 << 20;

/// A session with all of its messages.
#[derive(Debug, Deserialize, ToSchema)]
pub struct SessionExport<'a> {
    /// `session.export`.
    #[schema(example = "session.export")]
    pub object: String,
    /// 1.
    #[schema(example = 1)]
    pub version: u64,
    /// For imports: the id to store it under instead of its own.
    #[schema(pattern = "^[A-Za-z0-9_.:-]{1,128}$")]
    pub id: Option<String>,
    /// What is known of it.
    #[serde(borrow)]
    #[schema(value_type = SnapshotObject, required)]
    pub session: Option<&'a RawValue>,
    /// Its messages in OpenAI's shape.
    #[serde(borrow)]
    #[schema(value_type = Vec<ChatMessage>, required)]
    pub messages: Option<Vec<&'a RawValue>>,
    /// Its agent where it was exported, if it names one: what is otherwise where it is imported is told in `warnings`.
    #[serde(default)]
    pub environment: Option<EnvironmentObject>,
    /// Its runs that had not ended. What one that waits has said is imported behind `messages`; its calls are not.
    #[serde(borrow, default)]
    #[schema(value_type = Option<Vec<UnfinishedRun>>)]
    pub unfinished: Option<Vec<SnapshotUnfinished<'a>>>,
    /// With `include=runs`: its runs as `GET /v1/runs/{id}` shows them, newest first. Imports leave them out.
    #[serde(default)]
    pub runs: Option<Vec<SnapshotRun>>,
}

/// A session in a snapshot. Members that are not known are ignored.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SnapshotObject {
    /// Its id.
    #[schema(example = "sess_42", pattern = "^[A-Za-z0-9_.:-]{1,128}$")]
    pub id: Option<String>,
    /// When it was created, Unix milliseconds.
    pub created_ms: u64,
    /// When it last changed, Unix milliseconds.
    pub updated_ms: u64,
    /// The agent of requests that name no model.
    pub agent: Option<String>,
    /// The end user whom a run of it named last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The caller's notes.
    pub metadata: BTreeMap<String, String>,
    /// How long it is kept after its last change, in seconds; null means the server's setting.
    pub ttl_s: Option<u64>,
    /// Most tokens of all its runs.
    pub token_budget: Option<u64>,
    /// Most money of all its runs, in US dollars.
    pub cost_budget_usd: Option<f64>,
    /// Tokens of all its ended runs.
    pub usage: SnapshotUsage,
    /// Cost of all its ended runs, in US dollars.
    pub cost_usd: f64,
    /// Runs that ended in it.
    pub runs: u64,
    /// Layers of its prompts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 32)]
    pub layers: Vec<NamedLayer>,
    /// What models are shown in place of its earlier messages; absent where they are shown all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<SnapshotSummary>,
}

/// What models are shown in place of earlier messages.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SnapshotSummary {
    /// How many messages from the beginning are replaced.
    #[schema(example = 40)]
    pub covers: u64,
    /// The places of those among them that are shown all the same, counted from 0 and in order.
    #[serde(default)]
    pub kept: Vec<u64>,
    /// How often the conversation was shortened.
    #[schema(minimum = 1, example = 1)]
    pub version: u32,
    /// `llm`, `local` or `truncate`: how the summary was made.
    #[schema(value_type = String, example = "llm")]
    pub method: Method,
    /// What it says; empty where a note takes its place.
    #[serde(default)]
    pub text: String,
}

/// Tokens in a snapshot.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SnapshotUsage {
    /// Input tokens, cached ones included.
    pub prompt_tokens: u64,
    /// Output tokens, reasoning included.
    pub completion_tokens: u64,
    /// The part of the input that the upstream had cached.
    pub cached_tokens: u64,
    /// The part of the input that the upstream wrote to its cache.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cache_write_tokens: u64,
    /// The part of the output that was reasoning.
    pub reasoning_tokens: u64,
    /// Whether any of it was estimated because the upstream did not say.
    pub estimated: bool,
}

/// What a snapshot holds, once it was found valid.
#[derive(Debug)]
pub struct Snapshot {
    /// The session.
    pub session: Session,
    /// Its messages.
    pub messages: Vec<Message>,
    /// Its agent where it was exported.
    pub environment: Option<EnvironmentObject>,
    /// Its runs that had not ended.
    pub left: Vec<LeftRun>,
}

/// Everything of a session's snapshot before its first message.
pub fn write_head(session: &Session) -> Bytes {
    let mut out = BytesMut::new();
    out.put_slice(br#"{"object":"session.export","version":1,"session":"#);
    write_json(&SnapshotObject::from(session), &mut out);
    out.put_slice(br#","messages":["#);
    out.freeze()
}

/// Messages of a snapshot; `first` says that none stands before them.
pub fn write_messages(page: &[Message], first: bool) -> Bytes {
    let mut out = BytesMut::with_capacity(page.iter().map(|message| message.bytes() + 64).sum());
    for (index, message) in page.iter().enumerate() {
        if !first || index > 0 {
            out.put_u8(b',');
        }
        out.put_slice(encoded(message).as_bytes());
    }
    out.freeze()
}

/// What follows the last message of a snapshot, up to its runs that have not ended.
pub fn write_environment(environment: Option<EnvironmentObject>) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u8(b']');
    if let Some(environment) = environment {
        out.put_slice(br#","environment":"#);
        write_json(&environment, &mut out);
    }
    out.freeze()
}

/// A run that has not ended; `first` says that none stands before it.
pub fn write_unfinished(run: &Unfinished, first: bool) -> Bytes {
    let mut out = BytesMut::from(if first { &br#","unfinished":["#[..] } else { b"," });
    write_json(&UnfinishedRun::from(run), &mut out);
    out.freeze()
}

/// What follows those, if there are any, up to the runs of a snapshot that has them.
pub fn write_middle(is_any_unfinished: bool, with_runs: bool) -> Bytes {
    Bytes::from_static(match (is_any_unfinished, with_runs) {
        (true, true) => br#"],"runs":["#,
        (true, false) => END,
        (false, true) => br#","runs":["#,
        (false, false) => b"}",
    })
}

/// A run of a snapshot; `first` says that none stands before it.
pub fn write_run(run: &RunObject<'_>, first: bool) -> Bytes {
    let mut out = BytesMut::new();
    if !first {
        out.put_u8(b',');
    }
    write_json(run, &mut out);
    out.freeze()
}

/// What follows the last run of a snapshot.
pub const END: &[u8] = b"]}";

/// Reads the body of `POST /v1/sessions/import`.
pub fn read_snapshot(body: &str) -> Result<Snapshot, WireError> {
    let export: SessionExport<'_> = parse(body)?;
    if export.object != OBJECT {
        return Err(WireError::invalid("object", format!("must be {OBJECT:?}")));
    }
    if export.version != VERSION {
        let message = format!("version {} is not known; this server reads version {VERSION}", export.version);
        return Err(WireError::invalid("version", message));
    }
    let raw = export.session.ok_or_else(|| missing("session"))?;
    let object: SnapshotObject = parse(raw.get()).map_err(|error| error.within("session"))?;
    let (text, param) = match (&export.id, &object.id) {
        (Some(id), _) => (Some(id), "id"),
        (None, id) => (id.as_ref(), "session.id"),
    };
    let id = text.map(|id| SessionId::parse(id).ok_or_else(|| bad_session_id(param))).transpose()?;
    let mut object = object;
    let summary = object.summary.take();
    let mut session = object.session(id.unwrap_or_else(SessionId::mint)).map_err(|error| error.within("session"))?;
    let mut messages = check_history(&export.messages.ok_or_else(|| missing("messages"))?)?;
    if let Some(summary) = summary {
        let view = summary.view(&messages).map_err(|error| error.within("session.summary"))?;
        session.context = Some(Box::new(SessionContext { view, ..SessionContext::default() }));
    }
    let left = unfinished::read(export.unfinished, export.runs, &mut messages)?;
    Ok(Snapshot { session, messages, environment: export.environment, left })
}

impl SnapshotSummary {
    /// What models are shown of these messages, if that can be.
    fn view(self, messages: &[Message]) -> Result<View, WireError> {
        let Self { covers, kept, version, method, text } = self;
        let count = messages.len() as u64;
        if covers == 0 || covers > count {
            return Err(WireError::invalid("covers", format!("must be between 1 and {count}, the number of messages")));
        }
        let next = usize::try_from(covers).ok().and_then(|covers| messages.get(covers));
        if next.is_some_and(|message| message.role == Role::Tool) {
            return Err(WireError::invalid("covers", "must not part a tool call from its results"));
        }
        let is_ordered = kept.windows(2).all(|pair| pair[0] < pair[1]);
        if !is_ordered || kept.last().is_some_and(|last| *last >= covers) {
            return Err(WireError::invalid("kept", "must be places below `covers`, each once and in order"));
        }
        if version == 0 {
            return Err(WireError::invalid("version", "must be above 0"));
        }
        if text.len() > LONGEST_SUMMARY {
            return Err(WireError::invalid("text", format!("must have at most {LONGEST_SUMMARY} bytes")));
        }
        let summary = Some(Arc::new(Summary { version, method, text }));
        Ok(View { covers, kept, summary, ..View::default() })
    }

    /// The summary of a session, if it has one.
    fn of(session: &Session) -> Option<Self> {
        let view = &session.context.as_ref()?.view;
        let Summary { version, method, text } = &**view.summary.as_ref()?;
        Some(Self {
            covers: view.covers,
            kept: view.kept.clone(),
            version: *version,
            method: *method,
            text: text.clone(),
        })
    }
}

impl SnapshotObject {
    fn session(self, id: SessionId) -> Result<Session, WireError> {
        check_metadata(Some(&self.metadata))?;
        check_ttl(self.ttl_s)?;
        let numbers = [
            ("created_ms", self.created_ms),
            ("updated_ms", self.updated_ms),
            ("runs", self.runs),
            ("usage.prompt_tokens", self.usage.prompt_tokens),
            ("usage.completion_tokens", self.usage.completion_tokens),
            ("usage.cached_tokens", self.usage.cached_tokens),
            ("usage.cache_write_tokens", self.usage.cache_write_tokens),
            ("usage.reasoning_tokens", self.usage.reasoning_tokens),
        ];
        if let Some((name, _)) = numbers.iter().find(|(_, number)| *number > MAX_NUMBER) {
            return Err(WireError::invalid(*name, format!("must be at most {MAX_NUMBER}")));
        }
        if !(0.0..=MAX_USD).contains(&self.cost_usd) {
            return Err(WireError::invalid("cost_usd", format!("must be between 0 and {MAX_USD}")));
        }
        Ok(Session {
            created_ms: self.created_ms,
            updated_ms: self.updated_ms,
            agent: self.agent,
            user: self.user.as_deref().map(clip_user),
            metadata: self.metadata,
            ttl_s: self.ttl_s,
            token_budget: tokens(self.token_budget)?,
            cost_budget: money(self.cost_budget_usd)?,
            usage: self.usage.into(),
            cost: Micros::from_usd(self.cost_usd),
            runs: self.runs,
            layers: layers(self.layers, self.updated_ms)?,
            ..Session::new(id)
        })
    }
}

impl From<&Session> for SnapshotObject {
    fn from(session: &Session) -> Self {
        Self {
            id: Some(session.id.to_string()),
            created_ms: session.created_ms,
            updated_ms: session.updated_ms,
            agent: session.agent.clone(),
            user: session.user.clone(),
            metadata: session.metadata.clone(),
            ttl_s: session.ttl_s,
            token_budget: session.token_budget,
            cost_budget_usd: session.cost_budget.map(Micros::as_usd),
            usage: session.usage.into(),
            cost_usd: session.cost.as_usd(),
            runs: session.runs,
            layers: session.layers.iter().map(|layer| NamedLayer::from(&layer.layer)).collect(),
            summary: SnapshotSummary::of(session),
        }
    }
}

/// Layers as a session begins with them.
fn layers(layers: Vec<NamedLayer>, updated_ms: u64) -> Result<Vec<SessionLayer>, WireError> {
    let layers = checked(layers, MOST_LAYERS)?;
    let bytes: usize = layers.iter().map(|layer| layer.text.len()).sum();
    if bytes > MOST_LAYER_BYTES {
        return Err(WireError::invalid("layers", format!("may have {MOST_LAYER_BYTES} bytes together")));
    }
    Ok(layers.into_iter().map(|layer| SessionLayer { layer, version: 1, updated_ms }).collect())
}

impl From<Usage> for SnapshotUsage {
    fn from(usage: Usage) -> Self {
        let Usage { prompt_tokens, completion_tokens, cached_tokens, cache_write_tokens, reasoning_tokens, estimated } =
            usage;
        Self { prompt_tokens, completion_tokens, cached_tokens, cache_write_tokens, reasoning_tokens, estimated }
    }
}

impl From<SnapshotUsage> for Usage {
    fn from(usage: SnapshotUsage) -> Self {
        let SnapshotUsage {
            prompt_tokens,
            completion_tokens,
            cached_tokens,
            cache_write_tokens,
            reasoning_tokens,
            estimated,
        } = usage;
        Self { prompt_tokens, completion_tokens, cached_tokens, cache_write_tokens, reasoning_tokens, estimated }
    }
}
