//! Deletes a session with its messages and runs.
//!
//! Ended runs go first, a page at a time, so that no change grows with the session. Ended runs do not change any
//! more. What hooks were to be told of them goes before, as nobody is told of what is deleted. The session's document goes last, together with all that may still change. So a deletion that breaks off is
//! completed by repeating it.

use std::pin::pin;
use std::sync::Arc;

use futures_util::TryStreamExt;

use crate::agent::error::{LookupError, unavailable};
use crate::agent::ledger::commits::{delete_inbox, delete_run};
use crate::agent::ledger::document::{decode, encode};
use crate::agent::ledger::head::Head;
use crate::agent::ledger::keys;
use crate::agent::ledger::outbox;
use crate::agent::ledger::session::{Versioned, drop_entries, forget_session};
use crate::agent::ledger::stored;
use crate::agent::requester::Requester;
use crate::agent::session::Sessions;
use crate::store::pages::scan_pages;
use crate::store::{Check, CommitError, Order, Partition, Scan, Tx, Unavailable, Write};
use crate::types::{RunId, SessionId, Tenant};

/// Runs read, and runs deleted, at a time.
pub(in crate::agent) const PAGE: usize = 128;

/// The runs of a session none of whose runs is under way.
#[derive(Debug, Default)]
struct Runs {
    ended: Vec<Head>,
    /// Runs that wait for their client, which may answer at any time.
    waiting: Vec<Head>,
}

impl Sessions {
    /// Deletes a session with its messages and ended runs. A live run must be cancelled first. What has begun is
    /// completed whether or not the caller waits for it.
    pub async fn delete<'a>(
        self: &Arc<Self>,
        requester: impl Into<Requester<'a>>,
        id: &SessionId,
    ) -> Result<(), LookupError> {
        let requester = requester.into();
        let (sessions, tenant, id) = (self.clone(), requester.tenant.clone(), id.clone());
        let agents = requester.agents.map(<[String]>::to_vec);
        let deleting = async move {
            let requester = Requester { tenant: &tenant, agents: agents.as_deref() };
            sessions.delete_attached(requester, &id).await
        };
        self.lifecycle.run_detached(Box::pin(deleting)).await
    }

    async fn delete_attached(&self, requester: Requester<'_>, id: &SessionId) -> Result<(), LookupError> {
        let tenant = requester.tenant;
        let Versioned { session, version } = self.get(tenant, id).await?;
        if let Some(run) = self.ledger.active_run(tenant, &session).await? {
            return Err(LookupError::SessionBusy { session: id.clone(), run });
        }
        let partition = keys::session_partition(tenant, id);
        let runs = self.runs_to_delete(requester, &partition, id).await?;
        // The replica that drove a run may have died before it counted the run.
        for heads in [&runs.ended, &runs.waiting] {
            self.usage.count_before_deletion(tenant, &partition, heads).await?;
        }
        let ended = runs.ended.iter().map(|head| head.id.as_str()).collect();
        let messages = outbox::delete_messages_of(&**self.ledger.store(), &partition, &ended).await?;
        for page in runs.ended.chunks(PAGE) {
            self.ledger.commit(ids(page).fold(Tx::new(partition.clone()), delete_run)).await.map_err(unavailable)?;
            self.unindex(Tx::new(keys::tenant_partition(tenant)), page).await?;
        }
        let mut sent = 0;
        for head in &runs.waiting {
            sent += self.ledger.inbox_bytes(&partition, head).await?;
        }
        self.delete_files(tenant, id).await?;
        let tx = Tx::new(partition.clone())
            .check(Check::Version { key: keys::session(), version })
            .write(Write::Delete { key: keys::session() });
        let is_spliced = session.spliced.is_some();
        let tx = if is_spliced { tx.write(Write::DeleteLog { log: keys::spliced() }) } else { tx };
        let tx = ids(&runs.waiting).fold(forget_session(tx), delete_run);
        // Runs that ended have no inbox.
        let tx = ids(&runs.waiting).fold(tx, delete_inbox);
        let tx = messages.into_iter().fold(tx, |tx, key| tx.write(Write::Delete { key }));
        match self.ledger.commit(tx).await {
            Ok(()) => {}
            Err(CommitError::VersionConflict { .. }) => return Err(LookupError::VersionConflict(id.clone())),
            Err(error) => return Err(unavailable(error).into()),
        }
        // Those beyond what one change deletes, about runs that waited for their client.
        if let Err(error) = outbox::delete_messages(&**self.ledger.store(), &partition, None).await {
            tracing::warn!(session = %id, %error, "messages about the runs of a deleted session are sent, or expire");
        }
        let index = drop_entries(Tx::new(keys::tenant_partition(tenant)), &session)
            .write(stored::uncount(session.all_bytes() + encode(&session).len() as u64 + sent));
        Ok(self.unindex(index, &runs.waiting).await?)
    }

    /// Deletes the files that tools keep for a session. They go before the session's document, so that a new session of the same
    /// id finds none of them.
    async fn delete_files(&self, tenant: &Tenant, id: &SessionId) -> Result<(), Unavailable> {
        let Some(workspaces) = self.generations.current().workspaces.clone() else { return Ok(()) };
        let removed = Box::pin(workspaces.remove_session(tenant, id)).await;
        removed.map_err(|fault| {
            tracing::error!(session = %id, ?fault, "the files of a session cannot be deleted, so the session stays");
            Unavailable("the files of the session cannot be deleted".to_owned())
        })
    }

    async fn runs_to_delete(
        &self,
        requester: Requester<'_>,
        partition: &Partition,
        id: &SessionId,
    ) -> Result<Runs, LookupError> {
        let scan = Scan { prefix: keys::HEADS.to_owned(), after: None, limit: PAGE, order: Order::Ascending };
        let mut pages = pin!(scan_pages(&**self.ledger.store(), partition, scan));
        let mut runs = Runs::default();
        while let Some(page) = pages.try_next().await? {
            for (_, document) in &page {
                let head: Head = decode(&document.value)?;
                requester.check(&head)?;
                // Also one that goes on by itself once others have answered.
                if head.goes_on() {
                    return Err(LookupError::SessionBusy { session: id.clone(), run: head.id });
                }
                if head.status.is_final() { &mut runs.ended } else { &mut runs.waiting }.push(head);
            }
        }
        Ok(runs)
    }

    /// Removes runs from their tenant's index, and no longer counts them as stored.
    pub(super) async fn unindex_runs(&self, tenant: &Tenant, runs: &[Head]) -> Result<(), Unavailable> {
        self.unindex(Tx::new(keys::tenant_partition(tenant)), runs).await
    }

    /// Removes runs from the tenant's index, and no longer counts them as stored.
    async fn unindex(&self, tx: Tx, runs: &[Head]) -> Result<(), Unavailable> {
        let tx = tx.write(stored::uncount(runs.iter().map(|head| head.bytes).sum()));
        let tx = ids(runs).fold(tx, |tx, run| tx.write(Write::Delete { key: keys::run_entry(run) }));
        self.ledger.commit(tx).await.map_err(unavailable)
    }
}

fn ids(runs: &[Head]) -> impl Iterator<Item = &RunId> {
    runs.iter().map(|head| &head.id)
}
