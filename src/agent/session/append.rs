//! Adds messages to the end of a session's history, without a run.

use std::sync::Arc;

use bytes::Bytes;

use crate::agent::error::{LookupError, SpliceError, unavailable};
use crate::agent::ledger::document::encode;
use crate::agent::ledger::keys;
use crate::agent::ledger::session::{Versioned, keep_session};
use crate::agent::session::Sessions;
use crate::store::retry::RetryConflicts;
use crate::store::{CommitError, Tx, Write};
use crate::types::clock::now_ms;
use crate::types::{Message, SessionId, Tenant};

impl Sessions {
    /// Adds messages of which every call has its result. The session must have no run that has not ended. What has begun is
    /// completed whether or not the caller waits for it.
    pub async fn append(
        self: &Arc<Self>,
        tenant: &Tenant,
        id: &SessionId,
        messages: Vec<Message>,
    ) -> Result<Versioned, SpliceError> {
        let (sessions, tenant, id) = (self.clone(), tenant.clone(), id.clone());
        let appending = async move {
            let entries: Vec<Bytes> = messages.iter().map(encode).collect();
            let mut retry = RetryConflicts::new();
            while retry.next().await {
                if let Some(appended) = sessions.try_append(&tenant, &id, &entries).await? {
                    return Ok(appended);
                }
            }
            Err(LookupError::VersionConflict(id).into())
        };
        self.lifecycle.run_detached(Box::pin(appending)).await
    }

    /// `None` if the session was changed meanwhile.
    async fn try_append(
        &self,
        tenant: &Tenant,
        id: &SessionId,
        entries: &[Bytes],
    ) -> Result<Option<Versioned>, SpliceError> {
        let Versioned { mut session, version } = self.get(tenant, id).await?;
        self.check_idle(tenant, &mut session).await?;
        let (after, added) = (session.message_count, entries.iter().map(|entry| entry.len() as u64).sum::<u64>());
        session.message_count += entries.len() as u64;
        session.bytes += added;
        session.digest = session.digest.with(entries);
        session.updated_ms = now_ms();
        if let Some(context) = session.context.take() {
            session.context = Some(Box::new(context.spliced(after, 0, entries.len() as u64)));
        }
        self.ledger.fits_storage(session.all_bytes())?;
        self.ledger.take_storage(tenant, added).await?;
        let ttl = self.ledger.session_ttl(&session);
        let partition = keys::session_partition(tenant, id);
        let tx = Tx::new(partition).put_at(keys::session(), version, encode(&session), Some(ttl));
        let tx = tx.write(Write::Append { log: keys::messages(), after, entries: entries.to_vec() });
        match self.ledger.commit(keep_session(tx, &session, ttl)).await {
            Ok(()) => {
                // What was added counts: a client that is told otherwise would add it again.
                if let Err(error) = self.ledger.index_session(tenant, &session, ttl).await {
                    tracing::debug!(session = %id, %error, "the list of sessions has an earlier time of this one");
                }
                Ok(Some(Versioned { session, version: version + 1 }))
            }
            Err(CommitError::VersionConflict { .. }) => {
                self.ledger.return_storage(tenant, added).await;
                Ok(None)
            }
            Err(error) => Err(unavailable(error).into()),
        }
    }
}
