//! Snapshots of sessions: whole copies for export and import.

use std::sync::Arc;

use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};

use crate::agent::error::LookupError;
use crate::agent::ledger::keys;
use crate::agent::ledger::session::Versioned;
use crate::agent::request_memory::RequestMemory;
use crate::agent::session::Sessions;
use crate::agent::session::history::{decoded, in_pages, pages};
use crate::types::session::Session;
use crate::types::{Message, SessionId, Tenant};

/// A session that is being read whole.
pub struct Export {
    /// What is known of it.
    pub session: Session,
    /// Its messages, page by page. An error at the end says that they are not all, or not all
    /// of this session.
    pub pages: BoxStream<'static, Result<Vec<Message>, LookupError>>,
}

impl Sessions {
    /// Reads a session with all of its messages.
    pub async fn export(self: &Arc<Self>, tenant: &Tenant, id: &SessionId) -> Result<Export, LookupError> {
        let session = self.get(tenant, id).await?.session;
        let (sessions, tenant, found) = (self.clone(), tenant.clone(), session.clone());
        let pages = async_stream::try_stream! {
            let partition = keys::session_partition(&tenant, &found.id);
            let mut read = 0;
            let mut pages = std::pin::pin!(pages(&**sessions.ledger.store(), &partition, 0, found.message_count));
            while let Some(page) = pages.try_next().await? {
                read += page.len() as u64;
                yield decoded(&page)?;
            }
            sessions.still_is(&tenant, &found).await?;
            if read < found.message_count {
                Err(LookupError::VersionConflict(found.id.clone()))?;
            }
        };
        Ok(Export { session, pages: pages.boxed() })
    }

    /// Stores a session as it was when it was read: with its times and what it has used, but with no run. `memory` is
    /// counted for the messages, also after the client has hung up.
    pub async fn import(
        self: &Arc<Self>,
        tenant: &Tenant,
        session: Session,
        messages: Vec<Message>,
        memory: Arc<RequestMemory>,
    ) -> Result<Versioned, LookupError> {
        let (sessions, tenant, session) = (self.clone(), tenant.clone(), Session { active_run: None, ..session });
        self.lifecycle
            .run_detached(Box::pin(async move {
                let _counted = memory;
                sessions.write(&tenant, session, in_pages(&messages)).await
            }))
            .await
    }
}
