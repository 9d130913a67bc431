//! A session's document, and the counters beside it.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::try_join_all;

use crate::agent::error::unavailable;
use crate::agent::ledger::document::{decode, encode};
use crate::agent::ledger::head::Head;
use crate::agent::ledger::retention::Retention;
use crate::agent::ledger::{Ledger, keys};
use crate::store::{Key, Tx, Unavailable, Write};
use crate::types::session::Session;
use crate::types::shortfall::BudgetKind;
use crate::types::{RunId, RunStatus, SessionId, Tenant};

/// A session and the version of its document.
#[derive(Debug, Clone)]
pub struct Versioned {
    /// The session.
    pub session: Session,
    /// Grows with every change.
    pub version: u64,
}

impl Versioned {
    /// A session that does not exist yet.
    #[must_use]
    pub fn new(id: &SessionId) -> Self {
        Self { session: Session::new(id.clone()), version: 0 }
    }
}

/// The budgets that a session's runs share.
#[derive(Debug, Clone, Copy, Default)]
pub struct SessionBudget {
    /// Tokens of all runs.
    pub tokens: Option<u64>,
    /// Micro-dollars of all runs.
    pub cost: Option<u64>,
}

impl SessionBudget {
    /// What this session allows.
    #[must_use]
    pub fn of(session: &Session) -> Self {
        Self { tokens: session.token_budget, cost: session.cost_budget.map(|cost| cost.0) }
    }

    /// Whether there is any.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.tokens.is_some() || self.cost.is_some()
    }

    /// How much there is, and where it is counted.
    #[must_use]
    pub fn of_kind(&self, kind: BudgetKind) -> Option<(u64, Key)> {
        match kind {
            BudgetKind::Tokens => self.tokens.map(|limit| (limit, keys::session_tokens())),
            BudgetKind::Cost => self.cost.map(|limit| (limit, keys::session_cost())),
        }
    }
}

impl Ledger {
    /// A session of this tenant, if there is one.
    pub(in crate::agent) async fn find_session(
        &self,
        tenant: &Tenant,
        id: &SessionId,
    ) -> Result<Option<Versioned>, Unavailable> {
        let document = self.store.get(&keys::session_partition(tenant, id), &keys::session()).await?;
        document
            .map(|document| Ok(Versioned { session: decode(&document.value)?, version: document.version }))
            .transpose()
    }

    /// The run that holds a session, if it is live or about to be, or waits for services. One that waits for its client is not.
    pub(in crate::agent) async fn active_run(
        &self,
        tenant: &Tenant,
        session: &Session,
    ) -> Result<Option<RunId>, Unavailable> {
        Ok(self.holder(tenant, session).await?.filter(Head::goes_on).map(|head| head.id))
    }

    /// The run that holds a session while it waits for its client.
    pub(in crate::agent) async fn waiting_holder(
        &self,
        tenant: &Tenant,
        session: &Session,
    ) -> Result<Option<Head>, Unavailable> {
        let holder = self.holder(tenant, session).await?;
        Ok(holder.filter(|head| head.status == RunStatus::RequiresAction))
    }

    async fn holder(&self, tenant: &Tenant, session: &Session) -> Result<Option<Head>, Unavailable> {
        let Some(run) = &session.active_run else { return Ok(None) };
        self.head(&keys::session_partition(tenant, &session.id), run).await
    }

    /// Drops the runs beside a session's own that are over: those that waited for their client in vain, and
    /// those of which the store lost a part, did not say so.
    pub(in crate::agent) async fn forget_ended(
        &self,
        tenant: &Tenant,
        session: &mut Session,
    ) -> Result<(), Unavailable> {
        let partition = keys::session_partition(tenant, &session.id);
        let heads = try_join_all(session.concurrent_runs.iter().map(|run| self.head(&partition, run))).await?;
        let live: Vec<_> = heads.into_iter().flatten().filter(|head| !head.status.is_final()).collect();
        session.concurrent_runs.retain(|run| live.iter().any(|head| head.id == *run));
        let Session { concurrent_runs, compacting, .. } = session;
        compacting.take_if(|run| !concurrent_runs.contains(run));
        Ok(())
    }

    /// How long a session is kept from now on: a change must not make it expire under any of its runs.
    pub(in crate::agent) async fn session_ttl_under_all(
        &self,
        tenant: &Tenant,
        session: &Session,
    ) -> Result<Duration, Unavailable> {
        let partition = keys::session_partition(tenant, &session.id);
        let mut ttl = self.retention.session_ttl(session);
        for run in session.all_runs() {
            if let Some(spec) = self.spec(&partition, run).await? {
                ttl = ttl.max(self.retention.session_ttl_under(session, &spec));
            }
        }
        Ok(ttl)
    }

    /// How long a session is kept after its last change.
    pub(in crate::agent) fn session_ttl(&self, session: &Session) -> Duration {
        self.retention.session_ttl(session)
    }

    /// Puts a session's entries into its tenant's index.
    pub(in crate::agent) async fn index_session(
        &self,
        tenant: &Tenant,
        session: &Session,
        ttl: Duration,
    ) -> Result<(), Unavailable> {
        let tx = put_entries(Tx::new(keys::tenant_partition(tenant)), session, ttl);
        self.commit(tx).await.map_err(unavailable)
    }
}

/// Removes what a session has beside its document.
pub(in crate::agent) fn forget_session(tx: Tx) -> Tx {
    tx.write(Write::DeleteLog { log: keys::messages() })
        .write(Write::DeleteCounter { counter: keys::session_tokens() })
        .write(Write::DeleteCounter { counter: keys::session_cost() })
        .write(Write::Delete { key: keys::warned(&keys::session_tokens()) })
        .write(Write::Delete { key: keys::warned(&keys::session_cost()) })
}

/// Lets what a session has beside its document live as long as that.
pub(in crate::agent) fn keep_session(tx: Tx, session: &Session, ttl: Duration) -> Tx {
    let tx = if session.spliced.is_some() { tx.write(Write::ExpireLog { log: keys::spliced(), ttl }) } else { tx };
    tx.write(Write::ExpireLog { log: keys::messages(), ttl })
        .write(Write::ExpireCounter { counter: keys::session_tokens(), ttl })
        .write(Write::ExpireCounter { counter: keys::session_cost(), ttl })
}

/// Puts a session's entries into its tenant's index. Renewed by every run and change; the session's own document
/// decides whether it still exists.
pub(in crate::agent) fn put_entries(index: Tx, session: &Session, ttl: Duration) -> Tx {
    let ttl = Some(Retention::session_entry_ttl(ttl));
    let by_time = keys::session_by_time(session.created_ms, &session.id);
    index
        .write(Write::Put { key: keys::session_entry(&session.id), value: encode(&session.created_ms), ttl })
        .write(Write::Put { key: by_time, value: Bytes::new(), ttl })
}

/// Removes the entries of a session that is deleted. The one that says where the session stood stays for a while, for
/// clients that page through their sessions and delete them.
pub(in crate::agent) fn drop_entries(index: Tx, session: &Session) -> Tx {
    let (key, value) = (keys::session_entry(&session.id), encode(&session.created_ms));
    index
        .write(Write::Put { key, value, ttl: Some(Retention::DELETED_SESSION_ENTRY) })
        .write(Write::Delete { key: keys::session_by_time(session.created_ms, &session.id) })
}

/// Changes a session's document, and lets all that the session has live as long.
pub(super) fn put_session(tx: Tx, session: &Session, version: u64, ttl: Duration) -> Tx {
    keep_session(put_session_document(tx, session, version, ttl), session, ttl)
}

/// Changes a session's document.
pub(super) fn put_session_document(tx: Tx, session: &Session, version: u64, ttl: Duration) -> Tx {
    tx.put_at(keys::session(), version, encode(session), Some(ttl))
}
