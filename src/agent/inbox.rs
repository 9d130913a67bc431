//! Commands for the driver of a run: a log beside the run's own, to which every replica appends and which the driver
//! reads.
//!
//! A command is committed with a check that the run has not ended. A run ends only in a commit that has seen all
//! commands. So no command is lost, and none comes too late. A nudge tells the driver at once. Each renewal of the
//! lease tells the inbox's length, so a lost nudge costs only time.
//!
//! The bytes of an inbox are bounded, and counted in the commits that add commands. They are also counted as stored by
//! the run's tenant before they are sent, until the run ends. A cancellation is accepted even when the inbox or the
//! tenant is full; it takes a few bytes, which are not counted. The driver reads the inbox a page at a time.
//!
//! A request that may be repeated sends its command together with a note under the request's key. Only the attempt
//! that writes the note sends the command.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt;
use serde::{Deserialize, Serialize};

use crate::agent::error::{ClaimError, LookupError, StorageError, unavailable};
use crate::agent::ledger::Ledger;
use crate::agent::ledger::commits;
use crate::agent::ledger::document::{decode, encode};
use crate::agent::ledger::head::Head;
use crate::agent::ledger::keys;
use crate::agent::ledger::stored::ClaimEnd;
use crate::agent::request_key::RequestKey;
use crate::store::pages::log_pages;
use crate::store::retry::RetryConflicts;
use crate::store::{CommitError, Partition, Store, Unavailable};
use crate::types::delegate::ChildEnd;
use crate::types::tool_question::UserAnswer;
use crate::types::{CallId, Message, RunId, Tenant, ToolOutcome};

/// How long it is known that a request sent its command.
const RECEIPT_TTL: Duration = Duration::from_secs(24 * 3600);
/// Most commands of one run.
const MOST: u64 = 1024;
/// Commands read at a time.
const PAGE: usize = 64;

/// A command for the driver of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Stop at once.
    Cancel,
    /// Stop once the step that is under way is done.
    CancelAfterStep,
    /// These join the conversation before the next model call.
    Steer {
        /// What the caller says.
        messages: Vec<Message>,
    },
    /// The service of a call answers it.
    ToolResult {
        /// The call.
        call_id: CallId,
        /// What it answers.
        outcome: Box<ToolOutcome>,
    },
    /// The run that a call began has ended.
    ChildEnded {
        /// The call.
        call_id: CallId,
        /// How the run ended.
        end: Box<ChildEnd>,
    },
    /// A user answers what a call asks.
    AnswerQuestion {
        /// The question.
        question: String,
        /// What the user says.
        answer: UserAnswer,
        /// The name of the key of the caller; `None` where no keys are declared.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// A command of another version of this program.
    #[serde(skip)]
    Unreadable,
}

impl Command {
    /// Whether it is accepted even where there is no room for others: it stops the run at once, or answers a call, of which
    /// each has one answer of a bounded size.
    fn has_room(&self) -> bool {
        match self {
            Self::Cancel | Self::ToolResult { .. } | Self::ChildEnded { .. } => true,
            Self::CancelAfterStep | Self::Steer { .. } | Self::AnswerQuestion { .. } | Self::Unreadable => false,
        }
    }
}

/// The note that a request has sent its command.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    /// Hash of what it asked for.
    fingerprint: String,
}

/// What came of leaving a command.
#[derive(Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The run's driver will read it.
    Delivered,
    /// The same request has sent the command before.
    Repeated,
    /// The run has ended; its head as it is.
    Ended(Box<Head>),
}

/// Leaves a command for a run that has not ended, unless the request of this key did already.
pub async fn send(
    ledger: &Ledger,
    tenant: &Tenant,
    run: &RunId,
    command: &Command,
    key: Option<&RequestKey>,
) -> Result<Delivery, LookupError> {
    let (partition, _) = ledger.find_run(tenant, run).await?;
    let (entry, limit) = (encode(command), ledger.retention().inbox_bytes);
    let ceiling = (!command.has_room()).then_some(limit);
    if ceiling.is_some_and(|limit| entry.len() as u64 > limit) {
        return Err(LookupError::CommandTooLarge { bytes: entry.len() as u64, limit });
    }
    let mut sending = Sending { ledger, tenant, partition, run, entry, ceiling, key, note: None, counted: 0 };
    let sent = sending.send().await;
    match &sent {
        // If the store did not answer, the command may have been sent.
        Ok(Some(Delivery::Delivered)) | Err(LookupError::Store(_)) => {}
        Ok(_) | Err(_) => ledger.return_storage_with(tenant, sending.counted, sending.note).await,
    }
    sent?.ok_or_else(|| LookupError::Store(Unavailable(format!("run {run} is being changed by others"))))
}

/// A command on its way to a run.
struct Sending<'a> {
    ledger: &'a Ledger,
    tenant: &'a Tenant,
    partition: Partition,
    run: &'a RunId,
    entry: Bytes,
    /// Most bytes that the inbox may have with it; `None` for a command that is always accepted and not counted.
    ceiling: Option<u64>,
    key: Option<&'a RequestKey>,
    /// The note under its key, once that is counted.
    note: Option<ClaimEnd>,
    /// How many bytes of it are counted as stored by the tenant.
    counted: u64,
}

impl Sending<'_> {
    /// Sends the command, unless the request of its key did already; `None` if the run or its inbox changed at each
    /// attempt.
    async fn send(&mut self) -> Result<Option<Delivery>, LookupError> {
        let mut retry = RetryConflicts::new();
        while retry.next().await {
            if let Some(key) = self.key
                && was_sent(self.ledger, &self.partition, self.run, key).await?
            {
                return Ok(Some(Delivery::Repeated));
            }
            if let Some(delivery) = self.try_send().await? {
                return Ok(Some(delivery));
            }
        }
        Ok(None)
    }

    /// Commits the command with a check that the run has not ended; `None` if the run or its inbox changed meanwhile.
    async fn try_send(&mut self) -> Result<Option<Delivery>, LookupError> {
        let Self { ledger, partition, run, ceiling, .. } = &*self;
        let document = ledger.store().get(partition, &keys::head(run)).await?;
        let Some(document) = document else { return Err(LookupError::RunNotFound(run.to_string())) };
        let head: Head = decode(&document.value)?;
        if head.status.is_final() {
            return Ok(Some(Delivery::Ended(Box::new(head))));
        }
        let after = length(ledger.store(), partition, run).await?;
        if after >= MOST && ceiling.is_some() {
            return Err(LookupError::InboxFull((*run).clone()));
        }
        let ttl =
            head.waits_until_ms.map(|at_ms| ledger.retention().waiting_run_ttl_left(at_ms, ledger.store().now_ms()));
        let (head, command) = ((*run, document.version), (after, self.entry.clone()));
        let mut tx = commits::send(partition.clone(), head, command, *ceiling, ttl);
        if let Some(key) = self.key {
            let note = Note { fingerprint: key.fingerprint.clone() };
            tx = tx.put_at(keys::receipt(run, &key.name), 0, encode(&note), Some(RECEIPT_TTL));
        }
        self.count().await?;
        match self.ledger.commit(tx).await {
            Ok(()) => Ok(Some(Delivery::Delivered)),
            Err(CommitError::VersionConflict { .. } | CommitError::SequenceConflict { .. }) => Ok(None),
            Err(CommitError::CeilingReached { .. }) => Err(LookupError::InboxFull(self.run.clone())),
            Err(error) => Err(unavailable(error).into()),
        }
    }

    /// Counts the command as stored by its tenant, once, before it is.
    async fn count(&mut self) -> Result<(), StorageError> {
        if self.ceiling.is_some() && self.counted == 0 {
            let note = self.key.map(|_| self.ledger.claim_end(RECEIPT_TTL));
            let bytes = self.entry.len() as u64 + note.map_or(0, |_| ClaimEnd::BYTES);
            self.ledger.take_storage_with(self.tenant, bytes, note).await?;
            (self.note, self.counted) = (note, bytes);
        }
        Ok(())
    }
}

/// Whether the request of this key has sent its command already.
pub(in crate::agent) async fn was_sent(
    ledger: &Ledger,
    partition: &Partition,
    run: &RunId,
    key: &RequestKey,
) -> Result<bool, LookupError> {
    let Some(note) = ledger.store().get(partition, &keys::receipt(run, &key.name)).await? else { return Ok(false) };
    let Note { fingerprint } = decode(&note.value)?;
    if fingerprint == key.fingerprint { Ok(true) } else { Err(ClaimError::Reused.into()) }
}

/// Returns `seen`, or 0 if the inbox is now shorter: then the store lost entries, and their numbers may have
/// been reused.
pub fn known(seen: u64, length: u64) -> u64 {
    if length < seen { 0 } else { seen }
}

/// How many commands there are.
pub async fn length(store: &Arc<dyn Store>, partition: &Partition, run: &RunId) -> Result<u64, Unavailable> {
    Ok(store.read_log(partition, &keys::inbox(run), u64::MAX, 0).await?.head)
}

/// The commands of a run after the first `after`, a page of them, none where there are no more, and how many there are.
pub async fn read(
    store: &Arc<dyn Store>,
    partition: &Partition,
    run: &RunId,
    after: u64,
) -> Result<(Vec<Command>, u64), Unavailable> {
    let page = store.read_log(partition, &keys::inbox(run), after, PAGE).await?;
    let commands = page.entries.iter().map(|entry| {
        // Nothing would be better for waiting, and the run would not go on.
        decode(entry).unwrap_or_else(|error| {
            tracing::error!(%run, %error, "a command in the run's inbox cannot be read");
            Command::Unreadable
        })
    });
    Ok((commands.collect(), page.head))
}

/// What is new in a run's inbox, as far as a glance tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Glance {
    /// How many commands there are.
    pub length: u64,
    /// Whether one of the new ones is to cancel the run at once.
    pub cancels: bool,
}

/// Looks at the commands of a run after the first `seen`, without keeping them.
pub async fn glance(
    store: &Arc<dyn Store>,
    partition: &Partition,
    run: &RunId,
    seen: u64,
) -> Result<Glance, Unavailable> {
    let length = length(store, partition, run).await?;
    let mut glance = Glance { length, cancels: false };
    let cancel = encode(&Command::Cancel);
    let mut pages = pin!(log_pages(&**store, partition, keys::inbox(run), known(seen, length)..length, PAGE));
    while let Some(page) = pages.try_next().await? {
        glance.cancels |= page.contains(&cancel);
    }
    Ok(glance)
}
