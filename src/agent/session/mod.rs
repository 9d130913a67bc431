//! Sessions: conversations that outlive their runs.

pub mod fork;
pub(super) mod history;
pub mod snapshot;
pub(super) mod write;

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt;

use crate::agent::Agent;
use crate::agent::control::RunView;
use crate::agent::error::{LookupError, unavailable};
use crate::agent::ledger::document::{decode, encode};
use crate::agent::ledger::head::Head;
use crate::agent::ledger::keys;
use crate::agent::ledger::session::Versioned;
use crate::agent::ledger::session::active_run;
use crate::agent::ledger::session::forget_session;
use crate::agent::ledger::session::keep_session;
use crate::agent::session::history::in_pages;
use crate::store::{CommitError, Order, Scan, Tx, Write};
use crate::types::clock::now_ms;
use crate::types::session::Session;
use crate::types::{Message, Micros, RunId, RunSpec, RunStatus, SessionId, Tenant};

/// How often a session that changed meanwhile is read again.
const ATTEMPTS: usize = 8;
/// Most entries of a session's metadata.
const MAX_METADATA: usize = 16;
/// How much longer than its session an index entry is kept, since a run's end renews only the session.
const INDEX_SLACK: Duration = Duration::from_secs(2 * 24 * 3600);
/// Heads of a session's runs read at a time.
const PAGE: usize = 256;
/// Runs cancelled at once.
const CANCELLED_AT_ONCE: usize = 16;

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

impl Agent {
    /// Creates a session.
    pub async fn create_session(&self, tenant: &Tenant, new: NewSession) -> Result<Versioned, LookupError> {
        let session = Session {
            agent: new.agent,
            metadata: new.metadata,
            ttl_s: new.ttl_s,
            token_budget: new.token_budget,
            cost_budget: new.cost_budget,
            ..Session::new(new.id.unwrap_or_else(SessionId::mint))
        };
        let (agent, tenant) = (self.clone(), tenant.clone());
        self.run_detached(async move { agent.write_session(&tenant, session, in_pages(&new.messages)).await }).await
    }

    /// A session of this tenant.
    pub async fn session(&self, tenant: &Tenant, id: &SessionId) -> Result<Versioned, LookupError> {
        self.find_session(tenant, id).await?.ok_or_else(|| LookupError::SessionNotFound(id.to_string()))
    }

    /// This tenant's sessions by id, those after `after`.
    pub async fn sessions(
        &self,
        tenant: &Tenant,
        after: Option<&SessionId>,
        limit: usize,
        order: Order,
    ) -> Result<Vec<Versioned>, LookupError> {
        let mut found = Vec::new();
        let mut after = after.map(|id| keys::session_entry(id).to_string());
        loop {
            let scan = Scan { prefix: keys::SESSIONS.to_owned(), after: after.clone(), limit, order };
            let entries = self.store.scan(&keys::tenant_partition(tenant), scan).await?;
            let exhausted = entries.len() < limit;
            for (key, _) in entries {
                if let Some(id) = key.strip_prefix(keys::SESSIONS).and_then(SessionId::parse)
                    && let Some(session) = self.find_session(tenant, &id).await?
                {
                    found.push(session);
                }
                after = Some(key);
                if found.len() == limit {
                    return Ok(found);
                }
            }
            if exhausted {
                return Ok(found);
            }
        }
    }

    /// Changes a session's metadata and budgets.
    pub async fn patch_session(
        &self,
        tenant: &Tenant,
        id: &SessionId,
        patch: SessionPatch,
    ) -> Result<Versioned, LookupError> {
        for _ in 0..ATTEMPTS {
            let Versioned { mut session, version } = self.session(tenant, id).await?;
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
            let ttl = self.session_ttl_under_all(tenant, &session).await?;
            let tx = Tx::new(partition).put_at(keys::session(), version, encode(&session), Some(ttl));
            match self.store.commit(keep_session(tx, ttl)).await {
                Ok(()) => {
                    self.index_session(tenant, &session, ttl).await?;
                    return Ok(Versioned { session, version: version + 1 });
                }
                Err(CommitError::VersionConflict { .. }) => {}
                Err(error) => return Err(unavailable(error).into()),
            }
        }
        Err(LookupError::VersionConflict(id.clone()))
    }

    /// Deletes a session with its messages and ended runs. A live run must be cancelled first.
    pub async fn delete_session(&self, tenant: &Tenant, id: &SessionId) -> Result<(), LookupError> {
        let Versioned { session, version } = self.session(tenant, id).await?;
        if let Some(run) = active_run(&*self.store, tenant, &session).await? {
            return Err(LookupError::SessionBusy { session: id.clone(), run });
        }
        let partition = keys::session_partition(tenant, id);
        let scan = Scan { prefix: keys::HEADS.to_owned(), after: None, limit: usize::MAX, order: Order::Ascending };
        let heads = self.store.scan(&partition, scan).await?;
        for (_, head) in &heads {
            let head: Head = decode(&head.value)?;
            if head.is_under_way() {
                return Err(LookupError::SessionBusy { session: id.clone(), run: head.id });
            }
        }
        let runs: Vec<RunId> =
            heads.iter().filter_map(|(key, _)| RunId::parse(key.strip_prefix(keys::HEADS)?)).collect();
        let mut tx = Tx::new(partition)
            .check(crate::store::Check::Version { key: keys::session(), version })
            .write(Write::Delete { key: keys::session() });
        tx = forget_session(tx);
        let mut index = Tx::new(keys::tenant_partition(tenant)).write(Write::Delete { key: keys::session_entry(id) });
        for run in &runs {
            tx = tx
                .write(Write::Delete { key: keys::head(run) })
                .write(Write::Delete { key: keys::spec(run) })
                .write(Write::DeleteLog { log: keys::events(run) })
                .write(Write::DeleteLog { log: keys::inbox(run) });
            index = index.write(Write::Delete { key: keys::run_entry(run) });
        }
        match self.store.commit(tx).await {
            Ok(()) => {}
            Err(CommitError::VersionConflict { .. }) => return Err(LookupError::VersionConflict(id.clone())),
            Err(error) => return Err(unavailable(error).into()),
        }
        self.store.commit(index).await.map_err(unavailable)?;
        Ok(())
    }

    /// A session's messages with numbers above `after`, counted from 1, and how many there are in all.
    pub async fn messages(
        &self,
        tenant: &Tenant,
        id: &SessionId,
        after: u64,
        limit: usize,
    ) -> Result<(Vec<Message>, u64), LookupError> {
        let total = self.session(tenant, id).await?.session.message_count;
        let page = self.store.read_log(&keys::session_partition(tenant, id), &keys::messages(), after, limit).await?;
        let messages = page.entries.iter().map(|entry| decode(entry)).collect::<Result<_, _>>()?;
        Ok((messages, total))
    }

    /// Cancels a session's runs and returns them, newest first, once they have stopped.
    pub async fn cancel_session(&self, tenant: &Tenant, id: &SessionId) -> Result<Vec<RunView>, LookupError> {
        self.session(tenant, id).await?;
        let live = self.unfinished_runs(tenant, id).await?;
        // Those that wait for their turn go first, so that none of them gets it.
        let (queued, others): (Vec<_>, Vec<_>) = live.into_iter().partition(|head| head.status == RunStatus::Queued);
        let mut cancelled = Vec::new();
        for heads in [queued, others] {
            let cancelling = heads.into_iter().map(|head| async move { self.cancel(tenant, &head.id).await });
            let mut cancelling = futures_util::stream::iter(cancelling).buffer_unordered(CANCELLED_AT_ONCE);
            while let Some(result) = cancelling.next().await {
                match result {
                    Ok(view) => cancelled.push(view),
                    // It ended and expired meanwhile.
                    Err(LookupError::RunNotFound(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        cancelled.sort_by(|one, other| other.head.id.cmp(&one.head.id));
        Ok(cancelled)
    }

    /// The heads of a session's runs that have not ended.
    async fn unfinished_runs(&self, tenant: &Tenant, id: &SessionId) -> Result<Vec<Head>, LookupError> {
        let partition = keys::session_partition(tenant, id);
        let mut found: Vec<Head> = Vec::new();
        let mut after = None;
        loop {
            let scan = Scan { prefix: keys::HEADS.to_owned(), after, limit: PAGE, order: Order::Ascending };
            let page = self.store.scan(&partition, scan).await?;
            for (_, document) in &page {
                let head: Head = decode(&document.value)?;
                found.extend(Some(head).filter(|head| !head.status.is_final()));
            }
            if page.len() < PAGE {
                return Ok(found);
            }
            after = page.last().map(|(key, _)| key.clone());
        }
    }

    pub(in crate::agent) async fn find_session(
        &self,
        tenant: &Tenant,
        id: &SessionId,
    ) -> Result<Option<Versioned>, crate::store::Unavailable> {
        let document = self.store.get(&keys::session_partition(tenant, id), &keys::session()).await?;
        document
            .map(|document| Ok(Versioned { session: decode(&document.value)?, version: document.version }))
            .transpose()
    }

    pub(in crate::agent) async fn index_session(
        &self,
        tenant: &Tenant,
        session: &Session,
        ttl: Duration,
    ) -> Result<(), crate::store::Unavailable> {
        let tx = Tx::new(keys::tenant_partition(tenant)).write(Self::session_index_entry(session, ttl));
        self.store.commit(tx).await.map_err(unavailable)
    }

    /// Puts a session's entry into its tenant's index. Renewed by every run and change; the session's own
    /// document decides whether it still exists.
    pub(in crate::agent) fn session_index_entry(session: &Session, ttl: Duration) -> Write {
        let (key, ttl) = (keys::session_entry(&session.id), Some(ttl + INDEX_SLACK));
        Write::Put { key, value: Vec::new().into(), ttl }
    }

    pub(in crate::agent) fn session_ttl(&self, session: &Session) -> Duration {
        session.ttl_s.map_or(self.retention.session, Duration::from_secs)
    }

    /// How long a session is kept from now on while this run is under way in it: not less than the run
    /// may take and wait.
    pub(in crate::agent) fn session_ttl_under(&self, session: &Session, spec: &RunSpec) -> Duration {
        let run = Duration::from_millis(spec.limits.timeout_ms) + self.retention.run;
        self.session_ttl(session).max(run)
    }

    /// The same for all runs in it: a change must not make it expire under any of them.
    pub(in crate::agent) async fn session_ttl_under_all(
        &self,
        tenant: &Tenant,
        session: &Session,
    ) -> Result<Duration, crate::store::Unavailable> {
        let partition = keys::session_partition(tenant, &session.id);
        let mut ttl = self.session_ttl(session);
        for run in session.all_runs() {
            if let Some(spec) = self.store.get(&partition, &keys::spec(run)).await? {
                ttl = ttl.max(self.session_ttl_under(session, &decode(&spec.value)?));
            }
        }
        Ok(ttl)
    }
}
