//! Sessions: conversations that outlive their runs.

mod append;
pub(super) mod delete;
mod delete_run;
pub mod environment;
pub mod fork;
pub(super) mod history;
pub mod layers;
pub mod list;
pub mod snapshot;
pub mod splice;
pub(super) mod write;

use std::collections::{BTreeMap, VecDeque};
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt;

use crate::agent::error::{LookupError, unavailable};
use crate::agent::generation::Generations;
use crate::agent::ledger::Ledger;
use crate::agent::ledger::document::{decode, encode};
use crate::agent::ledger::head::Head;
use crate::agent::ledger::keys;
use crate::agent::ledger::session::Versioned;
use crate::agent::ledger::session::keep_session;
use crate::agent::lifecycle::Lifecycle;
use crate::agent::request_memory::RequestMemory;
use crate::agent::session::history::Histories;
use crate::agent::session::history::in_pages;
use crate::agent::usage::Usage;
use crate::store::pages::{log_pages, scan_pages};
use crate::store::retry::RetryConflicts;
use crate::store::{CommitError, Order, Scan, Tx, Unavailable};
use crate::types::clock::now_ms;
use crate::types::context::View;
use crate::types::session::Session;
use crate::types::{History, Message, Micros, RunSpec, SessionId, Tenant};

/// Most entries of a session's metadata.
const MAX_METADATA: usize = 16;
/// Heads of a session's runs read at a time.
const PAGE: usize = 256;
/// A list of messages ends once they have so many bytes.
const LIST_BYTES: usize = 1 << 20;

/// What a new session is to be.
#[derive(Debug, Clone, Default)]
pub struct NewSession {
    /// The id, if the caller chose one.
    pub id: Option<SessionId>,
    /// The agent of requests that name no model.
    pub agent: Option<String>,
    /// The caller's notes.
    pub metadata: BTreeMap<String, String>,
    /// Its first messages.
    pub messages: Vec<Message>,
    /// Most tokens of all its runs.
    pub token_budget: Option<u64>,
    /// Most money of all its runs.
    pub cost_budget: Option<Micros>,
    /// How long it is kept after its last change, in seconds.
    pub ttl_s: Option<u64>,
    /// What is counted for the messages, also after the client has hung up.
    pub memory: Arc<RequestMemory>,
}

/// What is to change in a session; `None` leaves a thing as it is, `Some(None)` unsets it.
#[derive(Debug, Clone, Default)]
pub struct SessionPatch {
    /// Entries to set, or to remove where `None`.
    pub metadata: BTreeMap<String, Option<String>>,
    /// The token budget.
    pub token_budget: Option<Option<u64>>,
    /// The cost budget.
    pub cost_budget: Option<Option<Micros>>,
}

/// The sessions in a store.
#[derive(Debug)]
pub struct Sessions {
    ledger: Ledger,
    histories: Histories,
    usage: Arc<Usage>,
    lifecycle: Arc<Lifecycle>,
    generations: Arc<Generations>,
}

impl Sessions {
    /// The sessions of this ledger.
    pub(super) fn new(
        ledger: Ledger,
        usage: Arc<Usage>,
        lifecycle: Arc<Lifecycle>,
        generations: Arc<Generations>,
    ) -> Self {
        Self { histories: Histories::new(ledger.retention().history_bytes), ledger, usage, lifecycle, generations }
    }

    /// Creates a session.
    pub async fn create(self: &Arc<Self>, tenant: &Tenant, new: NewSession) -> Result<Versioned, LookupError> {
        let session = Session {
            agent: new.agent,
            metadata: new.metadata,
            ttl_s: new.ttl_s,
            token_budget: new.token_budget,
            cost_budget: new.cost_budget,
            ..Session::new(new.id.unwrap_or_else(SessionId::mint))
        };
        let (sessions, tenant) = (self.clone(), tenant.clone());
        self.lifecycle
            .run_detached(Box::pin(async move {
                let _counted = new.memory;
                sessions.write(&tenant, session, in_pages(&new.messages)).await
            }))
            .await
    }

    /// A session of this tenant.
    pub async fn get(&self, tenant: &Tenant, id: &SessionId) -> Result<Versioned, LookupError> {
        self.ledger.find_session(tenant, id).await?.ok_or_else(|| LookupError::SessionNotFound(id.to_string()))
    }

    /// Changes a session's metadata and budgets.
    pub async fn patch(&self, tenant: &Tenant, id: &SessionId, patch: SessionPatch) -> Result<Versioned, LookupError> {
        let mut retry = RetryConflicts::new();
        while retry.next().await {
            let Versioned { mut session, version } = self.get(tenant, id).await?;
            for (key, value) in patch.metadata.clone() {
                match value {
                    Some(value) => session.metadata.insert(key, value),
                    None => session.metadata.remove(&key),
                };
            }
            if session.metadata.len() > MAX_METADATA {
                return Err(LookupError::TooMuchMetadata(MAX_METADATA));
            }
            session.token_budget = patch.token_budget.unwrap_or(session.token_budget);
            session.cost_budget = patch.cost_budget.unwrap_or(session.cost_budget);
            session.updated_ms = now_ms();
            let partition = keys::session_partition(tenant, id);
            let ttl = self.ledger.session_ttl_under_all(tenant, &session).await?;
            let tx = Tx::new(partition).put_at(keys::session(), version, encode(&session), Some(ttl));
            match self.ledger.commit(keep_session(tx, &session, ttl)).await {
                Ok(()) => {
                    self.ledger.index_session(tenant, &session, ttl).await?;
                    return Ok(Versioned { session, version: version + 1 });
                }
                Err(CommitError::VersionConflict { .. }) => {}
                Err(error) => return Err(unavailable(error).into()),
            }
        }
        Err(LookupError::VersionConflict(id.clone()))
    }

    /// A session's messages with numbers above `after`, counted from 1, and how many stand before them. Where they are
    /// too large to be read together, those that come first in this order.
    pub async fn messages(
        &self,
        tenant: &Tenant,
        id: &SessionId,
        after: u64,
        limit: usize,
        order: Order,
    ) -> Result<(Vec<Message>, u64), LookupError> {
        self.get(tenant, id).await?;
        let partition = keys::session_partition(tenant, id);
        let numbers = after..after.saturating_add(limit as u64);
        let mut pages = pin!(log_pages(&**self.ledger.store(), &partition, keys::messages(), numbers, limit));
        let (mut found, mut bytes, mut before) = (VecDeque::new(), 0, after);
        while let Some(page) = pages.try_next().await? {
            bytes += page.iter().map(Bytes::len).sum::<usize>();
            found.extend(page);
            if order == Order::Ascending && bytes >= LIST_BYTES {
                break;
            }
            while let Some(first) = found.front().filter(|first| bytes - first.len() >= LIST_BYTES) {
                bytes -= first.len();
                before += 1;
                found.pop_front();
            }
        }
        let messages = found.iter().map(|entry| decode(entry)).collect::<Result<_, _>>()?;
        Ok((messages, before))
    }

    /// The heads of a session's runs that have not ended.
    pub(super) async fn unfinished_runs(&self, tenant: &Tenant, id: &SessionId) -> Result<Vec<Head>, LookupError> {
        let partition = keys::session_partition(tenant, id);
        let mut found: Vec<Head> = Vec::new();
        let scan = Scan { prefix: keys::HEADS.to_owned(), after: None, limit: PAGE, order: Order::Ascending };
        let mut pages = pin!(scan_pages(&**self.ledger.store(), &partition, scan));
        while let Some(page) = pages.try_next().await? {
            for (_, document) in &page {
                let head: Head = decode(&document.value)?;
                found.extend(Some(head).filter(|head| !head.status.is_final()));
            }
        }
        Ok(found)
    }
}

impl Sessions {
    /// A session's messages, as its document counts them, but for those that models are shown a summary of.
    pub(in crate::agent) async fn history(&self, tenant: &Tenant, session: &Session) -> Result<History, Unavailable> {
        let whole = View::default();
        let view = session.context.as_ref().map_or(&whole, |context| &context.view);
        self.read(tenant, session, view).await
    }

    /// The messages that a run began with, but for those that it shows its model a summary of; none for a run without a session.
    pub(in crate::agent) async fn history_of(&self, spec: &RunSpec) -> Result<History, Unavailable> {
        let Some(id) = &spec.session else { return Ok(History::default()) };
        let Some(found) = self.ledger.find_session(&spec.tenant, id).await? else { return Ok(History::default()) };
        let whole = View::default();
        let view = spec.view.as_deref().unwrap_or(&whole);
        Ok(self.read(&spec.tenant, &found.session, view).await?.first(spec.history_len))
    }

    /// All messages that a run began with; none for a run without a session.
    pub(in crate::agent) async fn whole_history_of(&self, spec: &RunSpec) -> Result<History, Unavailable> {
        let Some(id) = &spec.session else { return Ok(History::default()) };
        let Some(found) = self.ledger.find_session(&spec.tenant, id).await? else { return Ok(History::default()) };
        Ok(self.read(&spec.tenant, &found.session, &View::default()).await?.first(spec.history_len))
    }

    async fn read(&self, tenant: &Tenant, session: &Session, view: &View) -> Result<History, Unavailable> {
        let partition = keys::session_partition(tenant, &session.id);
        self.histories.read(&**self.ledger.store(), &partition, (session, view)).await
    }
}
