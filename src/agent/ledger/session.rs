//! A session's document, and what lies beside it.

use std::time::Duration;

use crate::agent::ledger::head::{self, Head};
use crate::agent::ledger::keys;
use crate::store::{Store, Tx, Unavailable, Write};
use crate::types::session::Session;
use crate::types::{RunId, Tenant};

/// A session and the version of its document.
#[derive(Debug, Clone)]
pub struct Versioned {
    /// The session.
    pub session: Session,
    /// Grows with every change.
    pub version: u64,
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
}

/// The run that holds a session, if it is live or about to be. One that waits for its client is not.
pub(in crate::agent) async fn active_run(
    store: &dyn Store,
    tenant: &Tenant,
    session: &Session,
) -> Result<Option<RunId>, Unavailable> {
    let Some(run) = &session.active_run else { return Ok(None) };
    let partition = keys::session_partition(tenant, &session.id);
    let head = head::read(store, &partition, run).await?;
    Ok(head.filter(Head::is_under_way).map(|head| head.id))
}

/// Removes what a session has beside its document.
pub(in crate::agent) fn forget_session(tx: Tx) -> Tx {
    tx.write(Write::DeleteLog { log: keys::messages() })
        .write(Write::DeleteCounter { counter: keys::session_tokens() })
        .write(Write::DeleteCounter { counter: keys::session_cost() })
}

/// Lets what a session has beside its document live as long as that.
pub(in crate::agent) fn keep_session(tx: Tx, ttl: Duration) -> Tx {
    tx.write(Write::ExpireLog { log: keys::messages(), ttl })
        .write(Write::ExpireCounter { counter: keys::session_tokens(), ttl })
        .write(Write::ExpireCounter { counter: keys::session_cost(), ttl })
}
