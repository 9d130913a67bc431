//! Replacing messages of a session's history.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::agent::session::splice::{Asked, Done};
use crate::api::wire::body::parse;
use crate::api::wire::error::WireError;
use crate::api::wire::openai_chat::described::ChatMessage;
use crate::api::wire::openai_chat::message::check_messages;
use crate::api::wire::session::{MessageObject, SessionObject};
use crate::types::session::Splice;

/// Which messages of a session's history are to be replaced. An unknown field is an error.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SpliceSession<'a> {
    /// How many messages stay before those that are replaced; 0 if the first is.
    #[schema(example = 4)]
    pub after: u64,
    /// How many are removed; none without it.
    #[schema(example = 2)]
    pub remove: Option<u64>,
    /// What takes their place; nothing without it.
    #[serde(borrow)]
    #[schema(value_type = Option<Vec<ChatMessage>>, max_items = 10_000)]
    pub messages: Option<Vec<&'a RawValue>>,
    /// How many messages the history must have. A request says that, or sends `if-match` with the session's `version`.
    #[schema(example = 12)]
    pub message_count: Option<u64>,
}

/// Reads the body of `POST /v1/sessions/{id}/splice`, sent for a session of this version if that is said.
pub fn read_splice(body: &str, version: Option<u64>) -> Result<Asked, WireError> {
    let SpliceSession { after, remove, messages, message_count } = parse(body)?;
    if version.is_none() && message_count.is_none() {
        let message = "must say how many messages the session has, unless if-match has its version: what was not read is not replaced";
        return Err(WireError::invalid("message_count", message));
    }
    let messages = match messages.as_deref() {
        None | Some([]) => Vec::new(),
        Some(raw) => check_messages(raw, false)?.all,
    };
    Ok(Asked { after, remove: remove.unwrap_or(0), messages, version, count: message_count })
}

/// What became of a session's history.
#[derive(Debug, Serialize, ToSchema)]
pub struct SpliceObject {
    /// `session.splice`.
    pub object: &'static str,
    /// How many messages were removed.
    pub removed: u64,
    /// How many stand in their place.
    pub inserted: u64,
    /// Whether a summary was dropped, as it told of what is no longer there. Models are shown all messages again, until these are
    /// summarised anew.
    pub summary_dropped: bool,
    /// The session as it is now.
    pub session: SessionObject,
}

impl SpliceObject {
    /// What came of a request to remove so many and to insert so many.
    pub fn new(removed: u64, inserted: u64, done: &Done) -> Self {
        let (object, summary_dropped) = ("session.splice", done.summary_dropped);
        Self { object, removed, inserted, summary_dropped, session: SessionObject::from(&done.session) }
    }
}

/// What was replaced in a session's history once.
#[derive(Debug, Serialize, ToSchema)]
pub struct SpliceRecord {
    /// Which time that was, counted from 1; what `after` names.
    pub index: u64,
    /// When, Unix milliseconds.
    pub at_ms: u64,
    /// How many messages stood before.
    pub after: u64,
    /// How many took the place.
    pub inserted: u64,
    /// Those that stood there, with the places that they had.
    pub removed: Vec<MessageObject>,
}

impl SpliceRecord {
    /// The record of this number.
    pub fn new(index: u64, splice: &Splice) -> Result<Self, WireError> {
        let &Splice { at_ms, after, inserted, .. } = splice;
        let removed = (after + 1..).zip(&splice.removed).map(|(place, message)| MessageObject::new(place, message));
        Ok(Self { index, at_ms, after, inserted, removed: removed.collect::<Result<_, _>>()? })
    }
}
