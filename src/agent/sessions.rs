//! Sessions: conversations that outlive their runs.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::agent::Agent;
use crate::agent::error::{LookupError, unavailable};
use crate::agent::head::{decode, encode};
use crate::agent::{active_run, keys};
use crate::store::{CommitError, Order, Scan, Tx, Write};
use crate::types::clock::now_ms;
use crate::types::session::Session;
use crate::types::{Message, Micros, RunId, RunSpec, SessionId, Tenant, Usage};

/// How often a session that changed meanwhile is read again.
const ATTEMPTS: usize = 8;
/// Most entries of a session's metadata.
const MAX_METADATA: usize = 16;
/// How much longer than its session an index entry is kept, since a run's end renews only the session.
const INDEX_SLACK: Duration = Duration::from_secs(2 * 24 * 3600);
/// Messages copied from the store at a time.
const PAGE: usize = 512;

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

/// A session and the version of its document.
#[derive(Debug, Clone)]
pub struct Versioned {
    /// The session.
    pub session: Session,
    /// Grows with every change.
    pub version: u64,
}

impl Session {
    /// A session as it begins.
    #[must_use]
    pub fn new(id: SessionId) -> Self {
        let now = now_ms();
        Self {
            id,
            created_ms: now,
            updated_ms: now,
            agent: None,
            metadata: BTreeMap::new(),
            ttl_s: None,
            token_budget: None,
            cost_budget: None,
            message_count: 0,
            usage: Usage::default(),
            cost: Micros::default(),
            runs: 0,
            active_run: None,
        }
    }
}

impl Agent {
    /// Creates a session.
    pub async fn create_session(&self, tenant: &Tenant, new: NewSession) -> Result<Versioned, LookupError> {
        let id = new.id.unwrap_or_else(SessionId::mint);
        let session = Session {
            agent: new.agent,
            metadata: new.metadata,
            ttl_s: new.ttl_s,
            token_budget: new.token_budget,
            cost_budget: new.cost_budget,
            message_count: new.messages.len() as u64,
            ..Session::new(id.clone())
        };
        let ttl = self.session_ttl(&session);
        let entries = new.messages.iter().map(|message| message.json().to_owned().into()).collect();
        let tx = forget_session(Tx::new(keys::session_partition(tenant, &id)))
            .put_at(keys::session(), 0, encode(&session), Some(ttl))
            .write(Write::Append { log: keys::messages(), after: 0, entries })
            .write(Write::ExpireLog { log: keys::messages(), ttl });
        match self.store.commit(tx).await {
            Ok(()) => {}
            Err(CommitError::VersionConflict { .. }) => return Err(LookupError::SessionExists(id)),
            Err(error) => return Err(unavailable(error).into()),
        }
        self.index_session(tenant, &session).await?;
        Ok(Versioned { session, version: 1 })
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
            let ttl = self.session_ttl(&session);
            let tx = Tx::new(keys::session_partition(tenant, id))
                .put_at(keys::session(), version, encode(&session), Some(ttl))
                .write(Write::ExpireLog { log: keys::messages(), ttl });
            match self.store.commit(tx).await {
                Ok(()) => {
                    self.index_session(tenant, &session).await?;
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
        if let Some(run) = active_run(self, tenant, &session).await? {
            return Err(LookupError::SessionBusy { session: id.clone(), run });
        }
        let partition = keys::session_partition(tenant, id);
        let scan = Scan { prefix: keys::HEADS.to_owned(), after: None, limit: usize::MAX, order: Order::Ascending };
        let heads = self.store.scan(&partition, scan).await?;
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
                .write(Write::DeleteLog { log: keys::events(run) });
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

    pub(super) async fn find_session(
        &self,
        tenant: &Tenant,
        id: &SessionId,
    ) -> Result<Option<Versioned>, crate::store::Unavailable> {
        let document = self.store.get(&keys::session_partition(tenant, id), &keys::session()).await?;
        document
            .map(|document| Ok(Versioned { session: decode(&document.value)?, version: document.version }))
            .transpose()
    }

    pub(super) async fn index_session(
        &self,
        tenant: &Tenant,
        session: &Session,
    ) -> Result<(), crate::store::Unavailable> {
        let key = keys::session_entry(&session.id);
        // Renewed by every run and change; the session's own document decides whether it still exists.
        let ttl = Some(self.session_ttl(session) + INDEX_SLACK);
        let tx = Tx::new(keys::tenant_partition(tenant)).write(Write::Put { key, value: Vec::new().into(), ttl });
        self.store.commit(tx).await.map_err(unavailable)
    }

    pub(super) fn session_ttl(&self, session: &Session) -> Duration {
        session.ttl_s.map_or(self.keep.session, Duration::from_secs)
    }

    /// How long a session is kept from now on while this run is under way in it: not less than the run
    /// may take and wait.
    pub(super) fn session_ttl_under(&self, session: &Session, spec: &RunSpec) -> Duration {
        let run = Duration::from_millis(spec.limits.timeout_ms) + self.keep.run;
        self.session_ttl(session).max(run)
    }

    /// The first `count` messages of a session, encoded and joined with commas.
    pub(super) async fn history(
        &self,
        tenant: &Tenant,
        id: &SessionId,
        count: u64,
    ) -> Result<String, crate::store::Unavailable> {
        let partition = keys::session_partition(tenant, id);
        let mut history = String::new();
        let mut read = 0;
        while read < count {
            let limit = PAGE.min(usize::try_from(count - read).unwrap_or(PAGE));
            let page = self.store.read_log(&partition, &keys::messages(), read, limit).await?;
            if page.entries.is_empty() {
                break;
            }
            for entry in &page.entries {
                if !history.is_empty() {
                    history.push(',');
                }
                history.push_str(&String::from_utf8_lossy(entry));
            }
            read += page.entries.len() as u64;
        }
        Ok(history)
    }
}

/// Removes what a session has beside its document.
pub(super) fn forget_session(tx: Tx) -> Tx {
    tx.write(Write::DeleteLog { log: keys::messages() })
        .write(Write::DeleteCounter { counter: keys::session_tokens() })
        .write(Write::DeleteCounter { counter: keys::session_cost() })
}
