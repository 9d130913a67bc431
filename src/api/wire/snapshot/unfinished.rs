//! Runs of a session that had not ended when it was exported, and what an import makes of them.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::agent::control::Unfinished;
use crate::api::wire::agent::object::RequiredCall;
use crate::api::wire::error::WireError;
use crate::api::wire::openai_chat::described::ChatMessage;
use crate::api::wire::openai_chat::message::{check_history, encoded};
use crate::api::wire::restored::LeftRun;
use crate::api::wire::vocabulary::RunStatusText;
use crate::types::{Message, RunStatus};

/// A run that had not ended.
#[derive(Debug, Serialize, ToSchema)]
pub struct UnfinishedRun<'a> {
    /// The run.
    #[schema(example = "run_019a0000000070008000000000000000")]
    pub id: &'a str,
    /// `queued`, `in_progress` or `requires_action`.
    #[schema(value_type = RunStatusText)]
    pub status: &'static str,
    /// The calls that it waits for.
    pub calls: Vec<RequiredCall<'a>>,
    /// What it would leave to its session if it were cancelled: its calls have the result that the run ended before.
    #[schema(value_type = Vec<ChatMessage>)]
    pub messages: Vec<Box<RawValue>>,
}

impl<'a> From<&'a Unfinished> for UnfinishedRun<'a> {
    fn from(Unfinished { head, calls, messages }: &'a Unfinished) -> Self {
        let raw = |message: &Message| RawValue::from_string(encoded(message).to_owned()).ok();
        Self {
            id: head.id.as_str(),
            status: head.status.as_str(),
            calls: calls.iter().map(RequiredCall::new).collect(),
            messages: messages.iter().filter_map(raw).collect(),
        }
    }
}

/// The same, as far as an import reads it.
#[derive(Debug, Deserialize)]
pub struct SnapshotUnfinished<'a> {
    #[serde(default)]
    id: String,
    #[serde(default)]
    status: String,
    #[serde(borrow, default)]
    messages: Vec<&'a RawValue>,
}

/// A run in a snapshot, as far as an import reads it.
#[derive(Debug, Deserialize, ToSchema)]
pub struct SnapshotRun {
    /// The run.
    #[serde(default)]
    #[schema(example = "run_019a0000000070008000000000000000")]
    pub id: String,
    /// Where it stands.
    #[serde(default)]
    #[schema(value_type = RunStatusText)]
    pub status: String,
}

/// What becomes of the runs of a snapshot that had not ended: what those have said that waited comes behind the session's messages.
/// A snapshot that lists no such runs tells them by its `runs`, without what they said.
pub fn read(
    unfinished: Option<Vec<SnapshotUnfinished<'_>>>,
    runs: Option<Vec<SnapshotRun>>,
    messages: &mut Vec<Message>,
) -> Result<Vec<LeftRun>, WireError> {
    let waits = |status: &str| status == RunStatus::RequiresAction.as_str();
    let Some(unfinished) = unfinished else {
        let waiting = runs.into_iter().flatten().filter(|run| waits(&run.status));
        return Ok(waiting.map(|run| LeftRun { id: run.id, waited: true, is_kept: false }).collect());
    };
    let mut left = Vec::new();
    for (index, run) in unfinished.into_iter().enumerate() {
        let (waited, is_kept) = (waits(&run.status), !run.messages.is_empty());
        let said = check_history(&run.messages).map_err(|error| error.within(&format!("unfinished[{index}]")))?;
        messages.extend(said);
        left.push(LeftRun { id: run.id, waited, is_kept });
    }
    Ok(left)
}
