//! Writes a new session as a whole: the session exists with its last message, or not at all.
//!
//! A history that fits one commit is written in one. A longer history is written before the session's document. The
//! session exists once its document does. What a crash leaves behind expires by itself.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, TryStreamExt};

use crate::agent::error::{LookupError, unavailable};
use crate::agent::ledger::Ledger;
use crate::agent::ledger::document::encode;
use crate::agent::ledger::keys;
use crate::agent::ledger::session::{Versioned, forget_session, keep_session};
use crate::agent::ledger::stored;
use crate::agent::machine::budget::signed;
use crate::agent::session::Sessions;
use crate::agent::session::layers::layer_bytes;
use crate::store::{Check, CommitError, Fence, Partition, Tx, Write};
use crate::types::Tenant;
use crate::types::session::{Digest, Session};

/// How long an unfinished session is kept after its last page.
const DRAFT_TTL: Duration = Duration::from_secs(60);

struct Draft<'a> {
    ledger: &'a Ledger,
    tenant: &'a Tenant,
    partition: Partition,
    session: Session,
    /// Taken before the first of several pages: keeps others from writing the same session.
    fence: Option<Fence>,
    /// How many bytes are counted as stored for it.
    counted: u64,
}

impl Sessions {
    /// Stores a new session with these messages, page by page. Its usage and cost count against its
    /// budgets.
    pub(in crate::agent) async fn write(
        &self,
        tenant: &Tenant,
        session: Session,
        pages: impl Stream<Item = Result<Vec<Bytes>, LookupError>>,
    ) -> Result<Versioned, LookupError> {
        if self.ledger.find_session(tenant, &session.id).await?.is_some() {
            return Err(LookupError::SessionExists(session.id));
        }
        let partition = keys::session_partition(tenant, &session.id);
        let session = Session { message_count: 0, bytes: 0, digest: Digest::mint(), spliced: None, ..session };
        let mut draft = Draft { ledger: &self.ledger, tenant, partition, session, fence: None, counted: 0 };
        let result = draft.write(pages).await;
        if result.is_err() {
            self.ledger.return_storage(tenant, draft.counted).await;
        }
        if let Some(fence) = draft.fence {
            // A lease that cannot be released expires by itself.
            let _ = self.ledger.store().release(&draft.partition, &keys::drafting(), fence).await;
        }
        result
    }
}

impl Draft<'_> {
    async fn write(
        &mut self,
        pages: impl Stream<Item = Result<Vec<Bytes>, LookupError>>,
    ) -> Result<Versioned, LookupError> {
        let mut pages = std::pin::pin!(pages);
        let mut last = pages.try_next().await?.unwrap_or_default();
        while let Some(next) = pages.try_next().await? {
            self.write_ahead(std::mem::replace(&mut last, next)).await?;
        }
        self.finish(last).await
    }

    async fn write_ahead(&mut self, page: Vec<Bytes>) -> Result<(), LookupError> {
        if self.fence.is_none() {
            let fence = self.ledger.store().acquire(&self.partition, &keys::drafting(), DRAFT_TTL).await?;
            self.fence = Some(fence.ok_or_else(|| LookupError::VersionConflict(self.session.id.clone()))?);
        }
        self.count(weight(&page)).await?;
        let tx = self.begin().check(Check::Version { key: keys::session(), version: 0 });
        let tx = self.append(tx, page).write(Write::ExpireLog { log: keys::messages(), ttl: DRAFT_TTL });
        self.commit(tx).await
    }

    async fn finish(&mut self, page: Vec<Bytes>) -> Result<Versioned, LookupError> {
        let layers = layer_bytes(&self.session);
        self.count(stored::of_new_session(weight(&page) + layers)).await?;
        let tx = self.begin();
        let tx = self.append(tx, page);
        let session = &self.session;
        let ttl = self.ledger.session_ttl(session);
        let add = |counter, amount| Write::Add { counter, delta: signed(amount), ceiling: None };
        let tx = tx
            .put_at(keys::session(), 0, encode(session), Some(ttl))
            .write(add(keys::session_tokens(), session.usage.total()))
            .write(add(keys::session_cost(), session.cost.0));
        // What the index names may not exist yet, but nothing exists unnamed.
        self.ledger.index_session(self.tenant, session, ttl).await?;
        self.commit(keep_session(tx, session, ttl)).await?;
        Ok(Versioned { session: self.session.clone(), version: 1 })
    }

    /// A change by the writer that drafts the session.
    fn begin(&self) -> Tx {
        let tx = Tx::new(self.partition.clone());
        let tx = match self.fence {
            Some(fence) => tx.check(Check::Fence { lease: keys::drafting(), fence }),
            None => tx,
        };
        // An expired or unfinished session of the same name leaves nothing to its successor.
        if self.session.message_count == 0 { forget_session(tx) } else { tx }
    }

    fn append(&mut self, tx: Tx, page: Vec<Bytes>) -> Tx {
        let after = self.session.message_count;
        self.session.message_count += page.len() as u64;
        self.session.bytes += weight(&page);
        self.session.digest = self.session.digest.with(&page);
        tx.write(Write::Append { log: keys::messages(), after, entries: page })
    }

    /// Counts bytes that are about to be stored.
    async fn count(&mut self, bytes: u64) -> Result<(), LookupError> {
        self.ledger.fits_storage(self.counted + bytes)?;
        self.ledger.take_storage(self.tenant, bytes).await?;
        self.counted += bytes;
        Ok(())
    }

    async fn commit(&self, tx: Tx) -> Result<(), LookupError> {
        let id = || self.session.id.clone();
        self.ledger.commit(tx).await.map_err(|error| match error {
            CommitError::VersionConflict { .. } => LookupError::SessionExists(id()),
            CommitError::SequenceConflict { .. } | CommitError::Fenced { .. } => LookupError::VersionConflict(id()),
            CommitError::CeilingReached { .. } | CommitError::Unavailable(_) => unavailable(error).into(),
        })
    }
}

fn weight(page: &[Bytes]) -> u64 {
    page.iter().map(|entry| entry.len() as u64).sum()
}
