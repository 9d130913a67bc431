//! Forks a session: a new session that continues from any message of another one.

use std::future::ready;
use std::pin::pin;
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt};

use crate::agent::error::{ForkError, LookupError};
use crate::agent::ledger::document::decode;
use crate::agent::ledger::keys;
use crate::agent::ledger::session::Versioned;
use crate::agent::session::Sessions;
use crate::agent::session::history::pages;
use crate::store::pages::log_pages;
use crate::store::{Partition, Unavailable};
use crate::types::session::Session;
use crate::types::{Message, Micros, Role, SessionId, Tenant};

/// Messages looked at together around the place of a fork.
const WINDOW: usize = 64;

/// Where a session is to be forked.
#[derive(Debug, Clone, Default)]
pub struct Fork {
    /// After how many messages; all of them without it.
    pub at: Option<u64>,
    /// The new session's id, if the caller chose one.
    pub id: Option<SessionId>,
    /// Whether a fork between a call and its results is made before the call instead.
    pub round_down: bool,
}

impl Sessions {
    /// Makes a new session of another's first messages. It inherits the agent, the user, metadata, layers, time to live and what is left
    /// of the budgets; it has used nothing yet. What a live run has not stored yet is not part of it.
    pub async fn fork(self: &Arc<Self>, tenant: &Tenant, id: &SessionId, fork: Fork) -> Result<Versioned, ForkError> {
        let (sessions, tenant, id) = (self.clone(), tenant.clone(), id.clone());
        self.lifecycle.run_detached(Box::pin(async move { sessions.copy(&tenant, &id, fork).await })).await
    }

    async fn copy(&self, tenant: &Tenant, id: &SessionId, fork: Fork) -> Result<Versioned, ForkError> {
        let source = self.get(tenant, id).await?.session;
        let partition = keys::session_partition(tenant, id);
        let mut at = fork.at.unwrap_or(source.message_count);
        if at > source.message_count {
            return Err(ForkError::BeyondEnd { at, count: source.message_count });
        }
        match self.check_cut(&partition, at, source.message_count).await {
            Err(ForkError::SplitsCalls { before, .. }) if fork.round_down => at = before,
            checked => checked?,
        }
        let session = Session {
            agent: source.agent.clone(),
            user: source.user.clone(),
            metadata: source.metadata.clone(),
            ttl_s: source.ttl_s,
            token_budget: source.token_budget.map(|budget| left(budget, source.usage.total())),
            cost_budget: source.cost_budget.map(|budget| Micros(left(budget.0, source.cost.0))),
            layers: source.layers.clone(),
            context: source.context.as_ref().and_then(|context| context.of_first(at)).map(Box::new),
            ..Session::new(fork.id.unwrap_or_else(SessionId::mint))
        };
        let copied = pages(&**self.ledger.store(), &partition, 0, at).map_err(LookupError::from);
        // The new session appears once its pages have ended: not unless they are all of one session.
        let checked = futures_util::stream::once(self.still_is(tenant, &source)).try_filter_map(|()| ready(Ok(None)));
        Ok(self.write(tenant, session, copied.chain(checked)).await?)
    }

    /// Checks that a session was neither deleted nor created again since it was read, and that nothing was replaced in its history.
    pub(in crate::agent) async fn still_is(&self, tenant: &Tenant, session: &Session) -> Result<(), LookupError> {
        let now = self.get(tenant, &session.id).await?.session;
        let is_spliced = now.spliced != session.spliced;
        let same = now.created_ms == session.created_ms && now.message_count >= session.message_count && !is_spliced;
        if same { Ok(()) } else { Err(LookupError::VersionConflict(session.id.clone())) }
    }

    /// Checks that a history of `count` messages can be cut after message `at`: a call and its results stay
    /// together.
    async fn check_cut(&self, partition: &Partition, at: u64, count: u64) -> Result<(), ForkError> {
        let mut after = at;
        let mut window = self.roles(partition, after, count).await?;
        if window.first() != Some(&Role::Tool) {
            return Ok(());
        }
        while after < count && !window.is_empty() {
            let results = window.iter().take_while(|role| **role == Role::Tool).count() as u64;
            after += results;
            if results < window.len() as u64 {
                break;
            }
            window = self.roles(partition, after, count).await?;
        }
        let mut before = at;
        while before > 0 {
            let from = before.saturating_sub(WINDOW as u64);
            let window = self.roles(partition, from, before).await?;
            let results = window.iter().rev().take_while(|role| **role == Role::Tool).count() as u64;
            before = before.saturating_sub(results + 1).max(from);
            if results < window.len() as u64 {
                break;
            }
        }
        Err(ForkError::SplitsCalls { at, before, after })
    }

    /// Who speaks in the messages above number `after`, a few of them, up to number `count`.
    async fn roles(&self, partition: &Partition, after: u64, count: u64) -> Result<Vec<Role>, Unavailable> {
        let numbers = after..count.min(after.saturating_add(WINDOW as u64));
        let mut pages = pin!(log_pages(&**self.ledger.store(), partition, keys::messages(), numbers, WINDOW));
        let mut roles = Vec::new();
        while let Some(page) = pages.try_next().await? {
            for message in &page {
                roles.push(decode::<Message>(message)?.role);
            }
        }
        Ok(roles)
    }
}

/// What is left of a budget. One that is used up is not without end: it has room for nothing.
fn left(budget: u64, used: u64) -> u64 {
    budget.saturating_sub(used).max(1)
}
