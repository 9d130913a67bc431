//! What is left of the budgets that a key's runs, and those of a session, share.

use futures_util::future::try_join_all;

use crate::agent::error::LookupError;
use crate::agent::ledger::head::Head;
use crate::agent::ledger::keys;
use crate::agent::ledger::session::SessionBudget;
use crate::agent::limits::Limits;
use crate::agent::limits::shared::{BudgetLeft, BudgetState, SharedBudget};
use crate::agent::quotas::Quotas;
use crate::store::Unavailable;
use crate::types::{SessionId, Tenant};

/// The session of a run, and its budgets if they are known.
#[derive(Debug, Clone)]
pub struct SharedSession {
    pub(in crate::agent) id: SessionId,
    pub(in crate::agent) budgets: Option<SessionBudget>,
}

impl SharedSession {
    /// The session of this id.
    #[must_use]
    pub fn named(id: SessionId) -> Self {
        Self { id, budgets: None }
    }

    /// That of the run with this head.
    pub(in crate::agent) fn unread(head: &Head) -> Option<Self> {
        head.session.clone().map(|id| Self { id, budgets: None })
    }
}

impl Limits {
    /// The budgets of this key, and of this session, if the request names them.
    ///
    /// # Errors
    /// If there is no such session, or the store does not answer.
    pub async fn budgets(
        &self,
        tenant: &Tenant,
        key_name: Option<&str>,
        session: Option<&SessionId>,
        quotas: &Quotas,
    ) -> Result<Vec<BudgetState>, LookupError> {
        let session = match session {
            Some(id) => {
                let missing = || LookupError::SessionNotFound(id.to_string());
                let found = self.ledger.find_session(tenant, id).await?.ok_or_else(missing)?;
                Some((id, SessionBudget::of(&found.session)))
            }
            None => None,
        };
        let (store, now_ms) = (&**self.ledger.store(), self.ledger.store().now_ms());
        let shared = in_force(tenant, key_name, session, quotas, now_ms);
        Ok(try_join_all(shared.iter().map(|budget| budget.state(store, now_ms))).await?)
    }

    /// What is left of the budgets of a run with this key and in this session.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn budgets_left(
        &self,
        tenant: &Tenant,
        key_name: Option<&str>,
        session: Option<&SharedSession>,
        quotas: &Quotas,
    ) -> Result<Vec<BudgetLeft>, Unavailable> {
        let session = match session {
            Some(SharedSession { id, budgets: Some(budgets) }) => Some((id, *budgets)),
            Some(SharedSession { id, budgets: None }) => {
                self.ledger.find_session(tenant, id).await?.map(|found| (id, SessionBudget::of(&found.session)))
            }
            None => None,
        };
        let (store, now_ms) = (&**self.ledger.store(), self.ledger.store().now_ms());
        let shared = in_force(tenant, key_name, session, quotas, now_ms);
        try_join_all(shared.iter().map(|budget| budget.left(store, now_ms))).await
    }
}

/// The budgets in force of this key and session.
fn in_force(
    tenant: &Tenant,
    key_name: Option<&str>,
    session: Option<(&SessionId, SessionBudget)>,
    quotas: &Quotas,
    now_ms: u64,
) -> Vec<SharedBudget> {
    let mut shared = Vec::new();
    if let Some((name, quota)) = key_name.and_then(|name| Some((name, quotas.of(name)?))) {
        shared.extend(SharedBudget::of_key(&quota, &keys::budget_partition(tenant, name), now_ms));
    }
    if let Some((id, budgets)) = session {
        shared.extend(SharedBudget::of_session(budgets, &keys::session_partition(tenant, id)));
    }
    shared
}
